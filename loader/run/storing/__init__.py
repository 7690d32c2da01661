"""Snapshots while a pipeline runs: which are read, which are written, what is recorded when."""
