"""The workloads, one a file: each has `WORKS`, its rows."""

import importlib

TOGETHER = (("photos",), ("text", "table", "records"), ("bare", "skewed"))
"""Files whose rows a peer runs in one process: most of its start is its imports."""

FILES = tuple(name for names in TOGETHER for name in names)


def works():
    """Return all rows by name."""
    return {work.name: work for name in FILES for work in _file(name).WORKS}


def grouped(asked):
    """Return the names of rows that are asked for, those that are run together in one list."""
    groups = [[work.name for name in names for work in _file(name).WORKS] for names in TOGETHER]
    wanted = [[name for name in group if name in asked] for group in groups]
    return [group for group in wanted if group]


def _file(name):
    return importlib.import_module(f"workloads.{name}")
