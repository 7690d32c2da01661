"""Collating: stacking elements into a batch, row by row.

Nothing is cast or broadcast: ``rows[k] = x`` would turn 1.9 into 1 in an int64 batch and a (1,)
row into a (3,) one, so every leaf's dtype and shape are compared with the first element's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tundish.errors import SpecError
from tundish.gaps import copied, room
from tundish.loader.protocols.ownership import private
from tundish.loader.protocols.writer import Write, writer
from tundish.shm.layout import MOST_DIMENSIONS
from tundish.spec import (
    Tree,
    classes_apart,
    flatten,
    leaf_key,
    leaves_like,
    of_an_empty_list,
    paths,
    reordered,
    same_structure,
    show_key,
    show_tree,
    unflatten,
)

_AT_FIRST = 256 << 20
"""The most bytes of rows that are allocated at first: a larger batch may never be filled."""

Key = tuple[Any, tuple[int, ...]] | type


def fits(key: Key, first: Key) -> bool:
    """Return True if a leaf can be stacked with the batch's first one."""
    return key == first or (isinstance(key, type) and isinstance(first, type))


def misfit(
    k: int,
    keys: list[Key],
    tree: Tree,
    first_keys: list[Key],
    first_tree: Tree,
    *,
    fits: Callable[[Key, Key], bool] = fits,
) -> str | None:
    """Describe how element k of a batch differs from the first one; None if it fits."""
    if not same_structure(tree, first_tree):
        return (
            f"element {k} of the batch has the structure {show_tree(tree)}, "
            f"its first element {show_tree(first_tree)}{classes_apart(tree, first_tree)}"
        )
    here = reordered(keys, tree, first_tree)
    for path, key, want in zip(paths(first_tree), here, first_keys, strict=True):
        if not fits(key, want):
            field = f" at {path}" if path else ""
            return (
                f"element {k} of the batch{field} is {show_key(key)}, "
                f"its first element is {show_key(want)}{_advice(key, want)}"
            )
    return None


def _advice(key: Key, first: Key) -> str:
    if isinstance(key, type) or isinstance(first, type) or key[0] != first[0]:
        return of_an_empty_list(key, first)
    if len(key[1]) != len(first[1]):
        return ""
    return "; padded_batch pads arrays to one shape, ragged_batch keeps their lengths"


def unstackable(keys: Sequence[Key], tree: Tree) -> str | None:
    """Describe why elements cannot be rows of a batch at all; None if they can."""
    for path, key in zip(paths(tree), keys, strict=True):
        if not isinstance(key, type) and len(key[1]) >= MOST_DIMENSIONS:
            field = f" at {path}" if path else ""
            return (
                f"the element{field} has {len(key[1])} dimensions, which is as many as an array of numpy can have, "
                "and a batch of it would have one more; reshape it before"
            )
    return None


class Collator:
    """A batch that is being filled.

    Parameters
    ----------
    size : int
        The maximum number of rows.
    """

    __slots__ = ("_columns", "_keys", "_room", "_tree", "_write", "count", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = self._room = 0
        self._columns: list[Any] = []
        self._write: Write | None = None

    def add(self, value: Any) -> None:
        """Write an element to the next row.

        Raises
        ------
        SpecError
            It does not fit the first element; the batch is unchanged.
        """
        k = self.count
        if k == 0:
            self._start(value)
        elif k == self._room:
            self._grow(k + 1)
        if self._write is None:
            self._write = writer(self._tree, tuple(self._keys), self._columns)
        if not self._write(k, value):
            self._add_nest(k, value)
        self.count = k + 1

    def add_columns(self, columns: Any, rows: int) -> None:
        """Write stacked elements to the next rows.

        Raises
        ------
        SpecError
            They do not fit the first element; the batch is unchanged.
        """
        k, (leaves, tree) = self.count, flatten(columns)
        keys = [_row_key(leaf) for leaf in leaves]
        if k == 0:
            self._make(keys, tree)
        self._check(k, keys, tree)
        if k + rows > self._room:
            self._grow(k + rows)
        if tree != self._tree:
            leaves = leaves_like(columns, self._tree)
        for leaf, column in zip(leaves, self._columns, strict=True):
            if isinstance(column, list):
                column.extend(leaf)
            else:
                column[k : k + rows] = leaf
        self.count = k + rows

    def _start(self, value: Any) -> None:
        leaves, tree = flatten(value)
        self._make([leaf_key(x) for x in leaves], tree)

    def _make(self, keys: list[Key], tree: Tree) -> None:
        self._keys, self._tree = keys, tree
        problem = unstackable(self._keys, self._tree)
        if problem is not None:
            raise SpecError(problem)
        arrays = [key for key in keys if not isinstance(key, type)]
        row = sum(key[0].itemsize * math.prod(key[1]) for key in arrays)
        self._room = min(self.size, max(1, _AT_FIRST // max(1, row)))
        self._columns = [
            room((self._room, *key[1]), key[0]) if not isinstance(key, type) else []
            for key in self._keys
        ]

    def _grow(self, least: int) -> None:
        """Make room for a number of rows, and for at least twice as many as there are."""
        self._room, self._write = min(self.size, max(least, 2 * self._room)), None
        for at, column in enumerate(self._columns):
            if not isinstance(column, list):
                wider = room((self._room, *column.shape[1:]), column.dtype)
                wider[: self.count] = column[: self.count]
                self._columns[at] = wider

    def _check(self, k: int, keys: list[Key], tree: Tree) -> None:
        if tree == self._tree and all(map(fits, keys, self._keys)):
            return
        problem = misfit(k, keys, tree, self._keys, self._tree)
        if problem is not None:
            raise SpecError(problem)

    def _add_nest(self, k: int, value: Any) -> None:
        leaves, tree = flatten(value)
        self._check(k, [leaf_key(leaf) for leaf in leaves], tree)
        if tree != self._tree:
            leaves = leaves_like(value, self._tree)
        for leaf, column in zip(leaves, self._columns, strict=True):
            if isinstance(column, list):
                column.append(private(leaf))
            else:
                column[k] = private(leaf) if column.dtype.hasobject else leaf

    def finish(self) -> Any:
        """Return the batch, in new arrays."""
        n = self.count
        arrays = []
        for column in self._columns:
            if isinstance(column, list):
                arrays.append(objects(column))
            else:
                arrays.append(column if n == len(column) else copied(column[:n]))
        return unflatten(self._tree, arrays)


def _row_key(column: np.ndarray) -> Key:
    """Return the key of a column's rows; rows of an object column are text."""
    if column.dtype.hasobject and column.ndim == 1:
        return type(column[0])
    return column.dtype, column.shape[1:]


def stack_loose(key: Key, values: list[Any]) -> np.ndarray:
    """Stack rows of a leaf that has no fixed size: arrays of objects are stacked, other values become objects."""
    if isinstance(key, type):
        return objects(values)
    array = np.empty((len(values), *key[1]), key[0])
    for k, value in enumerate(values):
        array[k] = value
    return array


def objects(values: list[Any]) -> np.ndarray:
    """Return a one-dimensional object array of any values."""
    array = np.empty(len(values), object)
    for k, value in enumerate(values):
        array[k] = value
    return array


def collate(values: Iterable[Any], size: int) -> Any:
    """Stack a list of elements."""
    batch = Collator(size)
    for value in values:
        batch.add(value)
    return batch.finish()
