"""Snapshots, which outlive a run: elements on disk, as sharded Arrow IPC files that any process goes on with.

Here is what stands in the files that decide (`records`, `manifest`, `journal`, `run`, `lease`) and what is
found under a path (`catalog`, `outcome`, `takeover`, `parts`). Beside it, in folders: `files` of a store,
`encoding` of elements, the `fingerprint` of a pipeline, `writing`, `reading`, and `upkeep`.
"""
