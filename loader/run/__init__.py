"""The engine: computes a plan, with results that do not depend on workers.

Without workers, the machines of a plan run in the caller's process; this run defines what each operator means. With
workers, the same machines make all decisions, and only the work for each element is done elsewhere.

The modules here are the iterator and what only it needs: its engines (`engine` in process, `parallelengine`
with workers), states and checkpoints. They import the folders. A folder may import the folders before it in this list,
but none of these modules:

- `starting`: starting worker processes, and what they receive;
- `wire`: messages between processes;
- `watching`: measurements and statistics;
- `evaluating`: compilers of plans, from refs to elements;
- `storing`: snapshots while a pipeline runs;
- `stages`: machines whose items workers compute;
- `inline`: machines that compute in this process;
- `working`: the worker's side of a task;
- `pool`: the worker processes, their deaths and replacements;
- `coordinating`: the coordinator, which hands out work and takes in results.

May import `loader.plan`, `loader.protocols`, `loader.operators`, `loader.watch`, `formats`, `snapshot` and `shm`.
"""
