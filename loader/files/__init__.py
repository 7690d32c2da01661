"""Datasets of files' records: which files, in which format, and what to do about damage.

May import `loader.dataset`, `loader.operators`, `loader.plan`, `loader.protocols` and `formats`.
"""
