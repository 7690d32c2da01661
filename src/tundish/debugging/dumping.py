"""`enable_dump_debug_info`, which records what every node gives in files as it runs; its settings."""

from __future__ import annotations

import errno
import operator
import os
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tundish.debugging.leaves import dtype_name
from tundish.debugging.probe import DumpProbe
from tundish.loader.protocols import probes

MODES = ("NO_TENSOR", "CURT_HEALTH", "CONCISE_HEALTH", "FULL_HEALTH", "SHAPE", "FULL_TENSOR")

Dtypes = Iterable[Any] | Callable[[Any], bool]


@dataclass(frozen=True)
class DebugInfo:
    """The settings of a dump: the folder, and which elements are dumped.

    Attributes
    ----------
    dump_root : str
        The folder, as an absolute path.
    tensor_debug_mode : str
        What is recorded of each leaf.
    circular_buffer_size : int
        The number of elements that a process keeps; 0: all.
    op_regex : str or None
        A pattern for the names of the nodes to dump.
    tensor_dtypes : tuple of str, callable or None
        The dtypes of the leaves to dump.
    """

    dump_root: str
    tensor_debug_mode: str
    circular_buffer_size: int
    op_regex: str | None
    tensor_dtypes: tuple[str, ...] | Callable[[Any], bool] | None

    def FlushNonExecutionFiles(self) -> None:  # noqa: N802 - tensorflow's name
        """Do nothing: records are in the files at once."""

    def FlushExecutionFiles(self) -> None:  # noqa: N802 - tensorflow's name
        """Do nothing: records are in the files at once."""

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
        raise ValueError(
            f"op_regex {op_regex!r} is not a regular expression: {problem}"
        ) from problem
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
            raise TypeError("tensor_dtypes holds None, which is not a dtype")
        try:
            python = isinstance(given, type) and given in (str, bytes, object)
            names.append(dtype_name(given if python else np.dtype(given)))
        except TypeError as problem:
            raise TypeError(f"tensor_dtypes holds {each!r}, which is not a dtype") from problem
    return tuple(names)


_SWITCHING = threading.RLock()


def enable_dump_debug_info(
    dump_root: str | os.PathLike[str],
    tensor_debug_mode: str = "NO_TENSOR",
    circular_buffer_size: int = 1000,
    op_regex: str | None = None,
    tensor_dtypes: Dtypes | None = None,
) -> DebugInfo:
    """Record every element of every operator in files that keep the newest elements.

    It applies to iterators that are made after this call, in this process and in the workers that they
    start. `read_dump`, or ``tundish debug --dump DIR``, reads what is there, also while it is
    written, and after a process was killed.

    Parameters
    ----------
    dump_root : path
        A folder, created if it does not exist. Each process writes files of its own into it.
    tensor_debug_mode : str
        What is recorded of each leaf besides its dtype and shape:

        - ``"NO_TENSOR"``, ``"SHAPE"``: nothing;
        - ``"CURT_HEALTH"``: for floating leaves, if all values are finite;
        - ``"CONCISE_HEALTH"``: the number of values, and of those that are nan, infinity and minus infinity;
        - ``"FULL_HEALTH"``: the same, and the least, the largest and the mean of the finite values, for
          all leaves of real numbers;
        - ``"FULL_TENSOR"``: the same, and the values of leaves up to 1 MiB.
    circular_buffer_size : int
        The number of newest elements to keep for each process, of all operators together (fewer if
        they take more than 64 MiB). 0 or less keeps everything, and the files grow.
    op_regex : str, optional
        Record only operators whose name matches from the start (`re.match`), such as ``"^(map|batch)$"``. A pattern
        with a ``#`` is compared with their names in the plan, such as ``"map#2$"``.
    tensor_dtypes : iterable of dtypes, or callable, optional
        Record only leaves of these dtypes (or names of dtypes, ``str`` and ``bytes`` included), or those for whose
        dtype the function returns true. Elements without such a leaf are not recorded.

    Returns
    -------
    DebugInfo
        The settings in force. Its two methods to flush do nothing, since everything is written at once.

    Raises
    ------
    ValueError
        `dump_root` is empty, the mode is another word, `op_regex` is not a regular expression; or a dump
        is already enabled with another mode or another `circular_buffer_size`.
    TypeError
        An argument has another type, or a dtype is invalid.
    NotADirectoryError
        `dump_root` exists, and is not a folder.

    See Also
    --------
    disable_dump_debug_info : Switch it off.
    read_dump : Read the records in a folder.

    Notes
    -----
    Calling it again with another `dump_root`, `op_regex` or `tensor_dtypes` replaces them, and with
    another mode or size is an error, as in TensorFlow (disable it first). Values of bfloat16 and similar dtypes
    are recorded as float32. TensorFlow records the operations of its graphs and their stack traces; here
    the elements that pass between operators are recorded. TensorFlow's other modes, for the tools that read its
    files, do not exist here.

    An element costs some 20 us for each operator that is recorded, more with its values, and operators
    compute one element at a time meanwhile. There is no fsync and no thread: records survive the death of the
    process, but not that of the machine.

    Examples
    --------
    >>> import tempfile
    >>> import tundish as td
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = td.debugging.enable_dump_debug_info(folder, "FULL_HEALTH")
    ...     elements = list(td.Dataset.range(3).map(lambda x: x / 2))
    ...     td.debugging.disable_dump_debug_info()
    ...     dump = td.debugging.read_dump(folder)
    >>> [(each.node, each.origin) for each in dump.records if each.node == "map#1"][:2]
    [('map#1', 'element 0'), ('map#1', None)]
    >>> dump.records[-1].leaves[0].dtype, dump.records[-1].leaves[0].largest
    ('float64', 1.0)
    """
    info = DebugInfo(
        check_root(dump_root),
        check_mode(tensor_debug_mode),
        max(0, operator.index(circular_buffer_size)),
        check_regex(op_regex),
        check_dtypes(tensor_dtypes),
    )
    with _SWITCHING:
        for probe in probes.active():
            if isinstance(probe, DumpProbe):
                if probe.info == info:
                    return probe.info
                _check_same(probe.info, info)
        disable_dump_debug_info()
        probes.activate(DumpProbe(info), first=True)  # what a check refuses is noted, too
    return info


def disable_dump_debug_info() -> None:
    """Stop recording iterators that are made after this call; existing ones continue.

    Calling it again, or without `enable_dump_debug_info`, does nothing.
    """
    with _SWITCHING:
        for probe in probes.active():
            if isinstance(probe, DumpProbe):
                probes.deactivate(probe)
                probe.opened.close()


def _check_same(old: DebugInfo, new: DebugInfo) -> None:
    for name in ("tensor_debug_mode", "circular_buffer_size"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise ValueError(
                f"a dump into {old.dump_root} is enabled with {name}={before!r}, so {now!r} cannot be: "
                "call disable_dump_debug_info() first"
            )
