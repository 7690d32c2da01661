"""Gathering of rows from any batches into new arrays; elements made together and handed out one by one.

A leaf of one dtype and shape has the same number of bytes in each row, and Arrow aligns its start to a multiple of 8. So
if files are mapped, and all leaves are such, a file is one array of overlapping items, and one indexing operation takes
rows from any batches. Otherwise rows are taken batch by batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.snapshot.encoding.arrow import bits, stack
from tundish.snapshot.encoding.columns import as_objects
from tundish.spec import leaf_key, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.snapshot.encoding.forms import Decoded
    from tundish.snapshot.reading.batches import Batches


ALIGNED = 8
"""Arrow's buffers begin at multiples of it."""


def taken(source: Batches, batches: np.ndarray, rows: np.ndarray) -> Any | None:
    """Return rows of several batches as one batch; None if they do not fit each other.

    Parameters
    ----------
    source : Batches
        The snapshot's batches.
    batches, rows : (n,) int64 ndarray
        The location of each row; at least one.
    """
    arrays = _by_file(source, batches, rows)
    if arrays is not None:
        return unflatten(source.forms[0].tree, arrays)
    order = np.argsort(batches, kind="stable")
    places = np.split(order, np.flatnonzero(np.diff(batches[order])) + 1)
    touched = source.some([int(batches[at[0]]) for at in places])
    groups = [(found, at, rows[at]) for found, at in zip(touched, places, strict=True)]
    tree = groups[0][0].tree
    if any(decoded.tree != tree for decoded, _, _ in groups):
        return None
    arrays = []
    for leaf in range(groups[0][0].width):
        gathered = _gathered(leaf, groups, len(rows))
        if gathered is None:
            return None
        arrays.append(gathered)
    return unflatten(tree, arrays)


# -- out of whole files ---------------------------------------------------------------------------


def _by_file(source: Batches, batches: np.ndarray, rows: np.ndarray) -> list[np.ndarray] | None:
    """Return the leaves of rows, gathered file by file; None if the layout does not allow it."""
    if not source.laid:
        return None
    shards = source.entries["shard"][batches]
    files = np.flatnonzero(np.bincount(shards)).tolist() if shards.any() else [0]
    if len(files) == 1:
        return _of_file(source, files[0], batches, rows)
    arrays = [np.empty((len(rows), *row.shape), row.base) for row in source.laid]
    for number in files:
        here = np.flatnonzero(shards == number)
        leaves = _of_file(source, number, batches[here], rows[here])
        if leaves is None:
            return None
        for array, leaf in zip(arrays, leaves, strict=True):
            bits(array)[here] = bits(leaf)
    return arrays


def _of_file(
    source: Batches, number: int, batches: np.ndarray, rows: np.ndarray
) -> list[np.ndarray] | None:
    found = source.begins(number, batches)
    if found is None:
        return None
    leaves = []
    for items, begins, row in zip(*found, source.laid, strict=True):
        each = row.itemsize // items.strides[0]
        places = begins + (rows if each == 1 else rows * each)
        # `take` would copy the whole array if its items were not contiguous.
        leaf = items.take(places) if each == 1 else items[places]
        leaves.append(leaf if leaf.dtype == row else leaf.view(row))
    return leaves


def items_of(file: Any, row: np.dtype) -> np.ndarray:
    """Return all possible rows in a mapped file: items at every multiple of their alignment."""
    step = min(row.itemsize & -row.itemsize, ALIGNED)
    # Of a structure, numpy copies only the fields.
    plain = row.itemsize == step and row.subdtype is None and row.names is None
    dtype = row if plain else np.dtype(f"V{row.itemsize}")
    return np.ndarray(((len(file) - row.itemsize) // step + 1,), dtype, file, 0, (step,))


# -- batch by batch ------------------------------------------------------------------------------


def _gathered(
    leaf: int, groups: Sequence[tuple[Decoded, np.ndarray, np.ndarray]], size: int
) -> Any:
    """Gather one leaf of chosen rows in a new array; None if they do not fit each other."""
    columns = [(decoded.leaf(leaf), at, rows) for decoded, at, rows in groups]
    arrays = [column.array for column, _, _ in columns]
    first = arrays[0]
    if first is not None and all(
        a is not None and (a.dtype, a.shape[1:]) == (first.dtype, first.shape[1:]) for a in arrays
    ):
        out = np.empty((size, *first.shape[1:]), first.dtype)
        target = bits(out)
        for array, (_, at, rows) in zip(arrays, columns, strict=True):
            assert array is not None
            target[at] = bits(array)[rows]
        return out
    values: list[Any] = [None] * size
    for column, at, rows in columns:
        for place, k in zip(at.tolist(), rows.tolist(), strict=True):
            values[place] = column.one(k)
    keys = {leaf_key(value) for value in values}
    if all(isinstance(key, type) for key in keys):
        return as_objects(values)
    return stack(values, *keys.pop()) if len(keys) == 1 else None  # type: ignore[misc]  # a pair


@dataclass(eq=False, repr=False)
class Handed(Sequence[Any]):
    """Views of mapped files, each handed out only if its file has not shrunk.

    Parameters
    ----------
    elements : list
        The elements.
    places : sequence of pair
        For each element its batch, and the open shard that it is a view of.
    fail : callable
        ``fail(batch, problem)`` raises the error of a batch.
    """

    elements: list[Any]
    places: Sequence[tuple[int, Any]]
    fail: Callable[[int, str], Any]

    def __len__(self) -> int:
        return len(self.elements)

    def __getitem__(self, k: Any) -> Any:
        return self.elements[k]

    def __iter__(self) -> _Handing:
        return _Handing(self)


class _Handing:
    """Iterator over `Handed`; after an element's error, the next element follows."""

    __slots__ = ("_at", "_handed", "_left")

    def __init__(self, handed: Handed) -> None:
        self._handed: Handed | None = handed
        self._at, self._left = 0, len(handed)

    def __iter__(self) -> _Handing:
        return self

    def __length_hint__(self) -> int:
        return self._left

    def __next__(self) -> Any:
        handed, at = self._handed, self._at
        if not self._left or handed is None:
            self._handed = None  # the elements are held no longer
            raise StopIteration
        self._at, self._left = at + 1, self._left - 1
        b, shard = handed.places[at]
        if shard.size() != shard.whole:
            handed.fail(b, f"has {shard.size():,} bytes, {shard.whole:,} were written")
        return handed.elements[at]
