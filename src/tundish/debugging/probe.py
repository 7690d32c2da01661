"""`DumpProbe`: records elements in files of its process."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.debugging.deciding import is_inexact
from tundish.debugging.leaves import dtype_name
from tundish.debugging.numerics import health_of, is_finite, is_floating
from tundish.debugging.ring import LineRing
from tundish.loader.run.starting.inside import in_worker
from tundish.spec import dtype_of, flatten, leaf_key, paths

if TYPE_CHECKING:
    from tundish.debugging.dumping import DebugInfo
    from tundish.loader.protocols.context import Context

MOST_VALUE_BYTES = 2**20
"""The size of the largest leaf whose values are dumped."""

_ITERATORS = itertools.count()


class Opened:
    """The files of a dump in this process, opened with the first element, and again after a fork."""

    def __init__(self, info: DebugInfo) -> None:
        self._info = info
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._ring: LineRing | None = None

    def ring(self) -> LineRing:
        """The open files."""
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
                self._ring = LineRing(self._info.dump_root, size, about)
            return self._ring

    def close(self) -> None:
        """Close the file; it is opened again for further elements."""
        if self._ring is not None:
            self._ring.close()


@dataclass(frozen=True)
class DumpProbe:
    """Records elements in files of its process.

    Parameters
    ----------
    info : DebugInfo
        What is noted.
    plan : str
        The operators of the iterator whose elements it sees; known once it is bound to one.
    iterator : str
        That iterator's name, unique within the folder.
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
        """Return the probe for one iterator; for a function's dataset it names the function."""
        plan = " -> ".join(context.label(node) for node in context.nodes)
        if context.prefix:
            return replace(self, plan=f"{plan} within {self.plan}")
        return replace(self, plan=plan, iterator=f"{os.getpid()}.{next(_ITERATORS)}")

    def see(self, label: str, element: Any, origin: tuple[int, Any] | None = None) -> None:
        """Record what a node gave."""
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
    """Return the record of a leaf."""
    dtype, shape = (key, ()) if isinstance(key, type) else key
    told: dict[str, Any] = {"path": path, "dtype": dtype_name(dtype), "shape": shape}
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
    """Return least, largest and mean of a real leaf's finite values; None if there are none."""
    dtype = dtype_of(leaf)
    if dtype is None or dtype.kind not in "biuf":
        if dtype is None or dtype.kind == "c" or not is_inexact(dtype):
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
    """Return the values of a leaf, as text or as the bytes of a .npy file; None if they are left out."""
    if isinstance(leaf, str):
        return {"str": leaf} if len(leaf) <= MOST_VALUE_BYTES else None
    if isinstance(leaf, bytes):
        return {"bytes": _text(leaf)} if len(leaf) <= MOST_VALUE_BYTES else None
    if not isinstance(leaf, (np.ndarray, np.generic)) or leaf.dtype.hasobject:
        return None
    if leaf.nbytes > MOST_VALUE_BYTES:
        return None
    array = np.asarray(leaf)
    if array.dtype.kind == "V" and is_inexact(array.dtype):
        array = array.astype(np.float32)  # a .npy file does not know bfloat16; no value changes
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {"npy": _text(file.getvalue())}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
