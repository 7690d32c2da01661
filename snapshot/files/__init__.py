"""Immutable files, on a local disk or at a URL, that are published whole or not at all.

May import `snapshot.failpoints`, `snapshot.frame` and `formats`.
"""
