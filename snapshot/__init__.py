"""Snapshots: elements that outlive a run, on disk as sharded Arrow IPC files, which any process can continue.

The modules here define the files that decide (`records`, `manifest`, `run`, `index`, `lease`) and find what is under a
path (`catalog`, `finished`, `parts`). The folders are: `files` of a store, `encoding` of elements, the
`fingerprint` of a pipeline, `writing`, `reading`, and `upkeep`.

May import `formats` and its own folders.
"""
