"""Provenance of code: the user's, described by its bytecode, or a package's, described by its version."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from tundish.snapshot.fingerprint.homes import first_name

_STANDARD = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")}
)
_PACKAGES = {"site-packages", "dist-packages"}

Installed = dict[str, Any]
"""``{"installed": "module.name", "version": "1.2"}``; without a version: of Python's own library."""


@functools.cache
def is_installed_file(filename: str) -> bool:
    """Return True if a code file belongs to Python or to an installed package.

    Code without a file, such as a notebook cell or ``python -c``, is the user's.
    """
    if filename.startswith("<"):
        return filename.startswith("<frozen ")
    if not _PACKAGES.isdisjoint(Path(filename).parts):
        return True
    return os.path.realpath(filename).startswith(_STANDARD)


def is_users_module(name: str | None) -> bool:
    """Return True if a module is the user's, or is not loaded because it was made in another process."""
    if name == "__main__" or not name:
        return True
    if is_ours(name) or name in sys.builtin_module_names:
        return False
    module = sys.modules.get(name)
    if module is None:
        return True
    file = getattr(module, "__file__", None)
    if file is not None:
        return not is_installed_file(file)
    folders = getattr(module, "__path__", None)  # a package without __init__.py
    if folders is not None:
        return not all(is_installed_file(os.path.join(folder, "")) for folder in folders)  # noqa: PTH118 - text is compared
    spec = getattr(module, "__spec__", None)
    return spec is None or spec.origin not in ("built-in", "frozen")


def is_ours(name: str) -> bool:
    """Return True if a module is this library's; its operators have versions of their own."""
    return name == "tundish" or name.startswith("tundish.")


def installed_name(module: str, name: str) -> Installed:
    """Describe an object of an installed package by name and version."""
    version = version_of(module)
    where = {"installed": first_name(module, name) if name else module}
    return where if version is None else {**where, "version": version}


def version_of(module: str) -> str | None:
    """Return the version of a module's distribution; None for Python's own modules and this library's."""
    top = module.split(".", maxsplit=1)[0]
    if top in sys.stdlib_module_names or is_ours(module):
        return None
    return _distribution_version(top)


@functools.cache
def _distribution_version(top: str) -> str | None:
    try:
        return str(_metadata().version(top))
    except ImportError:  # no distribution has this name
        pass
    for distribution in _distributions().get(top, ()):
        return str(_metadata().version(distribution))
    found = getattr(sys.modules.get(top), "__version__", None)
    return found if isinstance(found, str) else None


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return {name: sorted(set(of)) for name, of in _metadata().packages_distributions().items()}


def _metadata() -> Any:
    """Return the standard library's reader of versions, whose import is slow."""
    return importlib.import_module("importlib.metadata")
