"""What every node gives, noted in files as it runs: `enable_dump_debug_info`."""

from __future__ import annotations

import base64
import errno
import io
import itertools
import json
import operator
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.debugging.health import health_of, is_finite, is_floating
from tundish.debugging.ring import Ring
from tundish.loader.run import probes
from tundish.loader.run.serving import in_worker
from tundish.spec import flatten, leaf_key, paths

if TYPE_CHECKING:
    from tundish.loader.run.context import Context

__all__ = ["MODES", "DebugInfo", "disable_dump_debug_info", "enable_dump_debug_info"]

MODES = ("NO_TENSOR", "CURT_HEALTH", "CONCISE_HEALTH", "FULL_HEALTH", "SHAPE", "FULL_TENSOR")

MOST_VALUE_BYTES = 2**20
"""Of a leaf that is larger, the values are left out."""

Dtypes = Iterable[Any] | Callable[[Any], bool]

_ITERATORS = itertools.count()
_SWITCHING = threading.RLock()


@dataclass(frozen=True)
class DebugInfo:
    """What is dumped, and where to.

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
        """Whether a node is dumped.

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
        """Whether leaves of a dtype (or ``str``, ``bytes``, ``object``) are dumped."""
        wanted = self.tensor_dtypes
        if wanted is None:
            return True
        return bool(wanted(dtype)) if callable(wanted) else _dtype_name(dtype) in wanted


class Opened:
    """The ring of a dump in this process: begun with the first element, and anew after a fork."""

    def __init__(self, info: DebugInfo) -> None:
        self._info = info
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._ring: Ring | None = None

    def ring(self) -> Ring:
        """The ring."""
        ring, pid = self._ring, os.getpid()
        if ring is not None and pid == self._pid:
            return ring
        if pid != self._pid:  # whoever held it is not here
            self._lock, self._pid, self._ring = threading.Lock(), pid, None
        with self._lock:
            if self._ring is None:
                role = "worker" if in_worker() else "consumer"
                about = {"role": role, "mode": self._info.tensor_debug_mode}
                size = self._info.circular_buffer_size
                self._ring = Ring(self._info.dump_root, size, about)
            return self._ring

    def close(self) -> None:
        """Close the file; whoever still notes elements opens it again."""
        if self._ring is not None:
            self._ring.close()


@dataclass(frozen=True)
class DumpProbe:
    """Notes elements in the files of the process that it is in.

    Parameters
    ----------
    info : DebugInfo
        What is noted.
    plan : str
        The operators of the iterator whose elements it sees; known once it is bound to one.
    iterator : str
        That iterator's name, of no other in the folder.
    opened : Opened
        The files; those of all iterators of a process.
    """

    info: DebugInfo
    plan: str = field(default="", compare=False)
    iterator: str = field(default="", compare=False)
    opened: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.opened is None:
            object.__setattr__(self, "opened", Opened(self.info))

    def bound(self, context: Context) -> DumpProbe:
        """The same for one iterator; of a dataset that a function makes it is the function's."""
        plan = " -> ".join(context.label(node) for node in context.nodes)
        if context.prefix:
            return replace(self, plan=f"{plan} within {self.plan}")
        return replace(self, plan=plan, iterator=f"{os.getpid()}.{next(_ITERATORS)}")

    def see(self, label: str, element: Any, origin: tuple[int, Any] | None = None) -> None:
        """Note what a node gave."""
        info = self.info
        if not info.names(label):
            return
        now = time.time_ns()
        leaves, tree = flatten(element)
        told = [
            _told(name, leaf, key, info.tensor_debug_mode)
            for name, leaf, key in zip(paths(tree), leaves, map(leaf_key, leaves), strict=True)
            if info.takes(key if isinstance(key, type) else key[0])
        ]
        if not told and leaves:
            return
        where = {"t": now, "node": label, "origin": origin, "it": self.iterator, "plan": self.plan}
        self.opened.ring().add(f", {json.dumps({**where, 'leaves': told}, default=str)[1:]}")

    def __reduce__(self) -> tuple[Any, ...]:
        return DumpProbe, (self.info, self.plan, self.iterator)  # with a ring of that process


def _told(path: str, leaf: Any, key: Any, mode: str) -> dict[str, Any]:
    """A leaf as it is noted."""
    dtype, shape = (key, ()) if isinstance(key, type) else key
    told: dict[str, Any] = {"path": path, "dtype": _dtype_name(dtype), "shape": shape}
    if mode in ("NO_TENSOR", "SHAPE"):
        return told
    if is_floating(leaf):
        if mode == "CURT_HEALTH":
            told["finite"] = is_finite(leaf)
        else:
            health = health_of(leaf)
            told["health"] = [health.size, health.nan, health.pos_inf, health.neg_inf]
    if mode in ("FULL_HEALTH", "FULL_TENSOR"):
        told["range"] = _range(leaf)
    if mode == "FULL_TENSOR":
        told["value"] = _values(leaf)
    return told


def _range(leaf: Any) -> list[Any] | None:
    """Least, largest and mean of the finite values of a real leaf; None where there is none."""
    dtype = getattr(leaf, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
        if not is_floating(leaf) or (dtype is not None and dtype.kind == "c"):
            return None
        leaf = np.asarray(leaf).astype(np.float32)  # bfloat16 and its kin
    array = np.asarray(leaf)
    if array.dtype.kind == "f":
        array = array[np.isfinite(array)]
    if not array.size:
        return None
    with np.errstate(all="ignore"):
        mean = float(array.mean(dtype=np.float64))
        if array.dtype.kind == "f":  # longdouble's numbers are none of Python's
            found = (float(array.min()), float(array.max()), mean)
        else:
            found = (array.min().item(), array.max().item(), mean)
    return [value if np.isfinite(value) else None for value in found]


def _values(leaf: Any) -> dict[str, Any] | None:
    """The values of a leaf, as text or as the bytes of a .npy file; None where they are left out."""
    if isinstance(leaf, str):
        return {"str": leaf} if len(leaf) <= MOST_VALUE_BYTES else None
    if isinstance(leaf, bytes):
        return {"bytes": _text(leaf)} if len(leaf) <= MOST_VALUE_BYTES else None
    if not isinstance(leaf, (np.ndarray, np.generic)) or leaf.dtype.hasobject:
        return None
    if leaf.nbytes > MOST_VALUE_BYTES:
        return None
    array = np.asarray(leaf)
    if array.dtype.kind == "V" and is_floating(leaf):
        array = array.astype(np.float32)  # a .npy file does not know bfloat16; no value changes
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {"npy": _text(file.getvalue())}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _dtype_name(dtype: Any) -> str:
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)


def enable_dump_debug_info(
    dump_root: str | os.PathLike[str],
    tensor_debug_mode: str = "NO_TENSOR",
    circular_buffer_size: int = 1000,
    op_regex: str | None = None,
    tensor_dtypes: Dtypes | None = None,
) -> DebugInfo:
    """Note every element that any operator gives in files, of which the newest are kept.

    It is for iterators that are made from now on, in this process and in the workers that they
    start. `read_dump`, or ``tundish debug --dump DIR``, reads what is there, also while it is
    written, and after any process was killed.

    Parameters
    ----------
    dump_root : path
        A folder, made if it is not there. Each process writes files of its own into it.
    tensor_debug_mode : str
        What is noted of each leaf, beside its dtype and shape:

        - ``"NO_TENSOR"``, ``"SHAPE"``: nothing;
        - ``"CURT_HEALTH"``: whether all is finite, of a floating leaf;
        - ``"CONCISE_HEALTH"``: how many values it has, how many are nan, infinity and minus infinity;
        - ``"FULL_HEALTH"``: that, and the least, the largest and the mean of the finite values, of
          any leaf of real numbers;
        - ``"FULL_TENSOR"``: that, and the values, of leaves up to 1 MiB.
    circular_buffer_size : int
        How many elements are kept of each process, all operators together: the newest (fewer where
        they take more than 64 MiB). 0 or less: everything is kept, and the files grow.
    op_regex : str, optional
        Only of operators whose name it matches from the start (`re.match`): ``"^(map|batch)$"``. If it
        has a ``#``, their names in the plan: ``"map#2$"``.
    tensor_dtypes : iterable of dtypes, or callable, optional
        Only leaves of these dtypes (or their names; ``str`` and ``bytes`` too); or those for whose
        dtype it returns true. An element without any is not noted.

    Returns
    -------
    DebugInfo
        What is in force; its two methods to flush do nothing, since all is written at once.

    Raises
    ------
    ValueError
        `dump_root` is empty, the mode is another word, `op_regex` is no regular expression; or a dump
        is enabled with another mode or another `circular_buffer_size`.
    TypeError
        An argument is of another type, or a dtype is none.
    NotADirectoryError
        `dump_root` is there, and no folder.

    See Also
    --------
    disable_dump_debug_info : Switch it off.
    read_dump : What is in a folder.

    Notes
    -----
    Calling it again with another `dump_root`, `op_regex` or `tensor_dtypes` replaces them, and with
    another mode or size is an error, as in tensorflow (disable it first). Kept values of bfloat16 and its kin
    are noted as float32. tensorflow notes the operations of its graphs and their stack traces; here
    it is what passes between a pipeline's operators. Its other modes (for the tools that read its
    files) are not here.

    An element costs some 20 us for each operator that is dumped, more with its values, and operators
    compute one element at a time meanwhile. No fsync and no thread: what is written survives the
    process, not the machine.

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
        _check_root(dump_root),
        _check_mode(tensor_debug_mode),
        max(0, operator.index(circular_buffer_size)),
        _check_regex(op_regex),
        _check_dtypes(tensor_dtypes),
    )
    with _SWITCHING:
        for probe in probes.active():
            if isinstance(probe, DumpProbe):
                if probe.info == info:
                    return probe.info
                _check_same(probe.info, info)
        disable_dump_debug_info()
        probes.activate(DumpProbe(info))
    return info


def disable_dump_debug_info() -> None:
    """Note nothing of iterators that are made from now on; those that are there go on as they are.

    Calling it again, or without `enable_dump_debug_info`, does nothing.
    """
    with _SWITCHING:
        for probe in probes.active():
            if isinstance(probe, DumpProbe):
                probes.deactivate(probe)
                probe.opened.close()


def _check_root(dump_root: Any) -> str:
    root = os.fspath(dump_root)
    if isinstance(root, bytes):
        raise TypeError("dump_root must be a str or a path, not bytes")
    if not root:
        raise ValueError("dump_root must name a folder, and is empty")
    folder = Path(root).absolute()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "dump_root must be a folder", str(folder))
    return str(folder)


def _check_mode(mode: Any) -> str:
    if not isinstance(mode, str):
        raise TypeError(f"tensor_debug_mode must be a str, not {type(mode).__name__}")
    if mode not in MODES:
        raise ValueError(f"tensor_debug_mode must be one of {', '.join(MODES)}, not {mode!r}")
    return mode


def _check_regex(op_regex: Any) -> str | None:
    if op_regex is None:
        return None
    if not isinstance(op_regex, str):
        raise TypeError(f"op_regex must be a str, not {type(op_regex).__name__}")
    try:
        re.compile(op_regex)
    except re.error as problem:
        raise ValueError(f"op_regex {op_regex!r} is no regular expression: {problem}") from problem
    return op_regex


def _check_dtypes(wanted: Any) -> tuple[str, ...] | Callable[[Any], bool] | None:
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
            names.append(_dtype_name(given if python else np.dtype(given)))
        except TypeError as problem:
            raise TypeError(f"tensor_dtypes holds {each!r}, which is no dtype") from problem
    return tuple(names)


def _check_same(old: DebugInfo, new: DebugInfo) -> None:
    for name in ("tensor_debug_mode", "circular_buffer_size"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise ValueError(
                f"a dump into {old.dump_root} is enabled with {name}={before!r}, so {now!r} cannot be: "
                "call disable_dump_debug_info() first"
            )
