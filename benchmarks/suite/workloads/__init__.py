"""The workloads, one a file: each has `WORKS`, its rows."""

import importlib

FILES = ("photos", "text", "table", "records", "bare", "skewed")


def works():
    """Return all rows by name."""
    modules = [importlib.import_module(f"workloads.{name}") for name in FILES]
    return {work.name: work for module in modules for work in module.WORKS}
