"""Snapshots and caches of a running pipeline: which are read, which are written, and what is recorded when.

May import what `loader.run` may, and the folders before it there.
"""
