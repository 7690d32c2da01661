"""`DebugInfo`: the settings of a dump, and checks of them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tundish.debugging.leaves import dtype_name

MODES = ("NO_TENSOR", "CURT_HEALTH", "CONCISE_HEALTH", "FULL_HEALTH", "SHAPE", "FULL_TENSOR")

Dtypes = Iterable[Any] | Callable[[Any], bool]


@dataclass(frozen=True)
class DebugInfo:
    """The settings of a dump: what is dumped, and where to.

    Attributes
    ----------
    dump_root : str
        The folder, as an absolute path.
    tensor_debug_mode : str
        What is noted of each leaf.
    circular_buffer_size : int
        How many elements a process keeps; 0: all.
    op_regex : str or None
        Of which nodes.
    tensor_dtypes : tuple of str, callable or None
        Of which leaves.
    """

    dump_root: str
    tensor_debug_mode: str
    circular_buffer_size: int
    op_regex: str | None
    tensor_dtypes: tuple[str, ...] | Callable[[Any], bool] | None

    def FlushNonExecutionFiles(self) -> None:  # noqa: N802 - tensorflow's name
        """Do nothing: what is dumped stands in the files at once."""

    def FlushExecutionFiles(self) -> None:  # noqa: N802 - tensorflow's name
        """Do nothing: what is dumped stands in the files at once."""

    def names(self, label: str) -> bool:
        """Return True if a node is dumped.

        Examples
        --------
        >>> info = DebugInfo("/tmp/d", "SHAPE", 0, "^(map|batch)$", None)
        >>> info.names("map#2"), info.names("map_batches#3")
        (True, False)
        """
        if self.op_regex is None:
            return True
        name = label if "#" in self.op_regex else label.partition("#")[0]
        return re.match(self.op_regex, name) is not None

    def takes(self, dtype: Any) -> bool:
        """Return True if leaves of a dtype (or ``str``, ``bytes``, ``object``) are dumped."""
        wanted = self.tensor_dtypes
        if wanted is None:
            return True
        return bool(wanted(dtype)) if callable(wanted) else dtype_name(dtype) in wanted


def check_root(dump_root: Any) -> str:
    """Return the absolute path of a folder, which may not exist yet."""
    root = os.fspath(dump_root)
    if isinstance(root, bytes):
        raise TypeError("dump_root must be a str or a path, not bytes")
    if not root:
        raise ValueError("dump_root must name a folder, and is empty")
    folder = Path(root).absolute()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "dump_root must be a folder", str(folder))
    return str(folder)


def check_mode(mode: Any) -> str:
    """Check a mode: one of `MODES`."""
    if not isinstance(mode, str):
        raise TypeError(f"tensor_debug_mode must be a str, not {type(mode).__name__}")
    if mode not in MODES:
        raise ValueError(f"tensor_debug_mode must be one of {', '.join(MODES)}, not {mode!r}")
    return mode


def check_regex(op_regex: Any) -> str | None:
    """Check a regular expression."""
    if op_regex is None:
        return None
    if not isinstance(op_regex, str):
        raise TypeError(f"op_regex must be a str, not {type(op_regex).__name__}")
    try:
        re.compile(op_regex)
    except re.error as problem:
        raise ValueError(f"op_regex {op_regex!r} is no regular expression: {problem}") from problem
    return op_regex


def check_dtypes(wanted: Any) -> tuple[str, ...] | Callable[[Any], bool] | None:
    """Check names of dtypes, or a function."""
    if wanted is None or (callable(wanted) and not isinstance(wanted, type)):
        return wanted
    if isinstance(wanted, (str, type)) or not isinstance(wanted, Iterable):
        raise TypeError(f"tensor_dtypes must be a list of dtypes or a function, not {wanted!r}")
    names = []
    for each in wanted:
        given = getattr(each, "as_numpy_dtype", each)  # tensorflow's dtypes
        if given in ("str", "string"):
            given = str
        if given is None:  # which numpy takes for float64
            raise TypeError("tensor_dtypes holds None, which is no dtype")
        try:
            python = isinstance(given, type) and given in (str, bytes, object)
            names.append(dtype_name(given if python else np.dtype(given)))
        except TypeError as problem:
            raise TypeError(f"tensor_dtypes holds {each!r}, which is no dtype") from problem
    return tuple(names)
