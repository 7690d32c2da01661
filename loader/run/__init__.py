"""Compute what a plan says, so that workers do not show.

Without workers the machines of a plan run in the caller's process: that is each operator's
meaning. With workers the same machines decide, and only the work for each element goes elsewhere.

The modules beside this one are an iterator and what only it needs: its engines (`engine` in process, `parallelengine`
with workers), states and checkpoints. They import the folders. A folder imports those before it in this list and none of
these modules, which a test walks:

- `starting`: how worker processes begin, and what they are handed;
- `wire`: what travels between processes;
- `watching`: what is measured meanwhile;
- `evaluating`: compilers of plans, from refs to elements;
- `storing`: snapshots while a pipeline runs;
- `stages`: what workers made, in order;
- `inline`: computing in this process;
- `working`: what a worker does with a task;
- `pool`: the worker processes, their deaths and replacements;
- `coordinating`: who hands out work and takes it in.
"""
