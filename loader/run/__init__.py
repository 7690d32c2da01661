"""The running of a plan, with workers or without: the elements are the same.

Without workers the machines of a plan run in the caller's process: that is each operator's
meaning. With workers the same machines decide, and only the work per element goes elsewhere.

- `iterator`, `engine`, `inline`, `parallelengine`: what gives elements, in process and with workers;
- `planner`, `reference`, `parallel`: how a plan becomes a network of machines;
- `machines`, `items`, `operators/`, `files/`, `storing/`: what these are, by family;
- `stages`, `streams`, `coordinating/`: blocks of work, who hands them out and takes them in;
- `pool`, `peers`, `messages`, `starting/`: worker processes, and what travels to them;
- `worker`, `working/`: what they do with it;
- `state`, `checkpoints`, `nested`, `stated`: where an iterator stands, written and read;
- `watching/`: what is measured meanwhile.
"""
