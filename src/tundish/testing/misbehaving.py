"""Functions that reuse buffers, change their arguments and return what they keep.

A struct scalar is a view of memory, as an array is; and an array of objects holds what can be changed, too.

What each returns depends on its argument alone, as of those in `tundish.testing.functions`; what it does
with its memory meanwhile is what people's functions do. In each thread of a process equal ones share
what they keep.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.testing.functions import Become, Tag
from tundish.testing.nests import taken_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Boxed",
    "BoxedList",
    "Changed",
    "Filled",
    "Global",
    "Kept",
    "Pooled",
    "Poured",
    "Reused",
    "Spoiled",
]

_TABLE = np.arange(300, dtype=np.int16)


class _Memory(threading.local):
    """The objects kept by the functions of one thread."""

    def __init__(self) -> None:
        self.buffers: dict[Any, np.ndarray] = {}
        self.pools: dict[Any, list[weakref.ref[np.ndarray]]] = {}
        self.boxes: dict[Any, BoxedList] = {}
        self.dicts: dict[Any, dict[str, Any]] = {}


_MEMORY = _Memory()


class BoxedList:
    """A list that no array can hold, and that can be changed."""

    def __init__(self, parts: list[int]) -> None:
        self.parts = parts

    def __repr__(self) -> str:
        return f"Box({self.parts})"


@dataclass(frozen=True)
class Filled:
    """A `Tag` with every array and struct in one buffer of its own; as a view of that where `view` says so.

    With a `kind` it is of an element of that kind, made of the argument.
    """

    k: int = 1
    view: bool = False
    kind: str | None = None

    def __call__(self, *element: Any) -> Any:
        value = element if self.kind is None else (Become(self.kind)(*element),)
        return _each_array(Tag(self.k)(*value), self._fill)

    def _fill(self, array: Any, at: int) -> Any:
        key = (self, at, array.dtype, array.shape)
        buffer = _MEMORY.buffers.get(key)
        if buffer is None:
            buffer = _MEMORY.buffers[key] = np.zeros(array.shape, array.dtype)
        buffer[...] = array
        if isinstance(array, np.void):
            return buffer.reshape(1)[0]
        return buffer[...] if self.view else buffer


@dataclass(frozen=True)
class Pooled:
    """A `Tag` with arrays out of a pool that refers to them weakly, and uses those again that it finds."""

    k: int = 1
    view: bool = False

    def __call__(self, *element: Any) -> Any:
        return _each_array(Tag(self.k)(*element), self._take)

    def _take(self, array: Any, at: int) -> np.ndarray:
        pool = _MEMORY.pools.setdefault((self, at, array.dtype.str, array.shape), [])
        found = next((buffer for ref in pool if (buffer := ref()) is not None), None)
        if found is None:
            found = np.empty_like(array)
            pool[:] = [weakref.ref(found)]
        found[...] = array
        return found[...] if self.view else found


@dataclass(frozen=True)
class Changed:
    """A `Tag` that works in place where an array can be written to, and gives its argument back."""

    k: int = 1

    def __call__(self, *element: Any) -> Any:
        value = element[0] if len(element) == 1 else element
        wanted = iter(taken_apart(Tag(self.k)(value))[0])
        leaves, build = taken_apart(value)
        return build([_written(leaf, next(wanted)) for leaf in leaves])


@dataclass(frozen=True)
class Spoiled:
    """Make an element of a kind from any other, and overwrite that."""

    kind: str = "int"

    def __call__(self, *element: Any) -> Any:
        made = Become(self.kind)(*element)
        for leaf in taken_apart(element)[0]:
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iuf":
                _written(leaf, np.zeros_like(leaf))
            elif isinstance(leaf, BoxedList):
                leaf.parts.append(-1)
        if len(element) == 1 and type(element[0]) is dict:
            element[0]["spoiled"] = 0
        return made


@dataclass(frozen=True)
class Global:
    """Three numbers of a table that stays: a view of it."""

    k: int = 1

    def __call__(self, *element: Any) -> np.ndarray:
        at = 3 * (int(Become("int")(*element)) % 100)
        return _TABLE[at : at + 3]


@dataclass(frozen=True)
class Reused:
    """A dict that it fills again each time."""

    k: int = 1

    def __call__(self, *element: Any) -> dict[str, Any]:
        kept = _MEMORY.dicts.setdefault(self, {})
        kept.clear()
        kept["x"] = np.asarray(Become("array")(*element)) + np.float32(self.k)
        kept["n"] = int(Become("int")(*element))
        return kept


@dataclass(frozen=True)
class Boxed:
    """An object with a list that is refilled at each call."""

    k: int = 1

    def __call__(self, *element: Any) -> BoxedList:
        box = _MEMORY.boxes.setdefault(self, BoxedList([]))
        box.parts[:] = [int(Become("int")(*element)), self.k]
        return box


class Kept:
    """A source of `n` records that keeps them: reading an index again gives the same object.

    Parameters
    ----------
    n : int
        The number of records.
    kind : str
        The kind of a record, as of `Become`.
    """

    def __init__(self, n: int, kind: str) -> None:
        self.records: Any = [BoxedList([k]) if kind == "box" else Become(kind)(k) for k in range(n)]
        if kind == "struct" and n:
            self.records = np.array(self.records)  # one is a view of this

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        return self.records[index]


@dataclass(frozen=True)
class Poured:
    """A generator function of `n` elements that are one buffer, or one dict that holds it."""

    n: int
    nested: bool = False

    def __call__(self) -> Iterator[Any]:
        buffer = np.zeros(3, np.int16)
        element = {"x": buffer} if self.nested else buffer
        for k in range(self.n):
            buffer[:] = k
            yield element


def _each_array(value: Any, change: Callable[[Any, int], Any]) -> Any:
    leaves, build = taken_apart(value)
    return build(
        [change(x, at) if isinstance(x, np.ndarray | np.void) else x for at, x in enumerate(leaves)]
    )


def _written(leaf: Any, wanted: Any) -> Any:
    """Return a leaf with other values, changed in place if possible."""
    if isinstance(leaf, np.ndarray) and leaf.flags.writeable and leaf.dtype == wanted.dtype:
        if leaf.dtype == object:
            for at in np.ndindex(leaf.shape):
                leaf[at] = _written(leaf[at], wanted[at])
        else:
            leaf[...] = wanted
        return leaf
    if isinstance(leaf, np.void) and leaf.dtype.names and leaf.dtype == wanted.dtype:
        for name in leaf.dtype.names:
            leaf[name] = wanted[name]
        return leaf
    if isinstance(leaf, BoxedList):
        leaf.parts.append(len(leaf.parts))
        return leaf
    return wanted
