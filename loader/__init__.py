"""The pipeline: what is to be computed (`plan`, `operators`) and how it is computed (`run`).

`dataset` joins the operators' methods to `tundish.Dataset`, and asks `run` for iterators. The folders import one way:
`watch`, `plan`, `protocols`, `operators`, `run`, then `dataset`, then `files` and `dataloader`.

May import `formats`, `snapshot`, `shm` and its own folders.
"""
