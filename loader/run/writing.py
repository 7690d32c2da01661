"""Writing elements into the rows of a block, one at a time, or by themselves where they are unlike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.gaps import copied
from tundish.loader.protocols.ownership import owned, private
from tundish.spec import NUMBERS, flatten, leaf_key, unflatten

if TYPE_CHECKING:
    from tundish.loader.watch.watch import Noted
    from tundish.shm.layout import Layout


class NeedsMore(Exception):  # noqa: N818 - a message, not a mistake
    """A block needs more bytes than its slot may have.

    Parameters
    ----------
    nbytes : int
        How many.
    alone : bool
        Whether the slot has them, but not this task's share of it: the block has to be one task.
    """

    def __init__(self, nbytes: int, *, alone: bool = False) -> None:
        super().__init__(nbytes)
        self.nbytes, self.alone = nbytes, alone


class Rows:
    """What one task has made: which rows are there, and where.

    ``elements[k]`` holds row k when the rows have no common layout.
    """

    __slots__ = (
        "columns",
        "drops",
        "elements",
        "errors",
        "events",
        "extras",
        "layout",
        "not_opened",
        "notes",
        "private",
        "told",
    )

    def __init__(self) -> None:
        self.layout: Layout | None = None
        self.columns: list[np.ndarray | None] = []
        self.extras: dict[int, dict[int, Any]] = {}
        self.elements: dict[int, Any] | None = None
        self.drops: list[int] = []
        self.errors: dict[int, bytes] = {}
        self.events: dict[int, list[str]] = {}
        self.notes: dict[int, Any] = {}
        self.private = self.not_opened = False
        self.told: Noted | None = None

    @property
    def plain(self) -> bool:
        """Whether what fits the layout is in its numpy form: arrays of numbers, whose types are looked at."""
        layout = self.layout
        if layout is None or not (layout.tree is None or _is_flat(layout.tree)):
            return False
        return all(not isinstance(key, type) and key[0] in NUMBERS for key in layout.keys)

    @property
    def has_more(self) -> bool:
        """Whether there is anything to tell beside the rows of a common layout."""
        told = self.drops or self.errors or self.events or self.extras or self.notes or self.told
        return bool(told) or self.elements is not None


def writer(rows: Rows, tree: Any, keys: tuple[Any, ...], shift: int) -> Any:
    """A function that writes an element into its row, or says that it does not fit."""
    columns = rows.columns
    if tree is None and columns[0] is not None:
        column, (dtype, shape) = columns[0], keys[0]
        kind = _type_of(dtype, shape)

        def write_one(k: int, element: Any) -> bool:
            if type(element) is not kind or element.shape != shape:
                return False
            if element.dtype is not dtype and element.dtype != dtype:  # to compare takes longer
                return False
            column[k - shift] = element
            return True

        return write_one
    if _is_flat(tree):
        return _flat_writer(rows, tree, keys, shift)

    def write(k: int, element: Any) -> bool:
        leaves, found = flatten(element)
        if found != tree or any(leaf_key(x) != key for x, key in zip(leaves, keys, strict=True)):
            return False
        for at, (leaf, column) in enumerate(zip(leaves, columns, strict=True)):
            if column is None:
                rows.extras[at][k] = private(leaf)  # it is told when the task is done
            else:
                column[k - shift] = leaf
        return True

    return write


def _is_flat(tree: Any) -> bool:
    """Return True if elements are dicts or tuples of leaves."""
    return tree is not None and tree[0] in "dt" and all(sub is None for sub in tree[2])


def _type_of(dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """The type of a leaf, as `tundish.spec.normalise` gives it: who only has a dtype and a shape is no array."""
    return np.ndarray if shape else dtype.type


def _flat_writer(rows: Rows, tree: Any, keys: tuple[Any, ...], shift: int) -> Any:
    """As `_writer`, for a dict or tuple of leaves: the common case, without `flatten`."""
    kind = dict if tree[0] == "d" else tuple
    names = tree[1] if kind is dict else tuple(range(len(tree[2])))
    fixed = [
        (name, column, _type_of(*key), key[0], key[1])
        for name, column, key in zip(names, rows.columns, keys, strict=True)
        if column is not None
    ]
    loose = [
        (name, rows.extras[at], keys[at])
        for at, (name, column) in enumerate(zip(names, rows.columns, strict=True))
        if column is None
    ]
    size = len(names)

    def write(k: int, element: Any) -> bool:
        if type(element) is not kind or len(element) != size:
            return False
        if kind is dict and tuple(element) != names:
            return False
        for name, _, key in loose:
            if leaf_key(element[name]) != key or isinstance(element[name], (dict, tuple)):
                return False
        row = k - shift
        for name, column, cls, dtype, shape in fixed:
            leaf = element[name]
            if type(leaf) is not cls or leaf.shape != shape:
                return False
            if leaf.dtype is not dtype and leaf.dtype != dtype:
                return False
            column[row] = leaf  # where one after it does not fit, nobody reads this row
        for name, extra, _ in loose:
            extra[k] = private(element[name])
        return True

    return write


def scatter(rows: Rows, first: int, upto: int) -> Any:
    """Keep each element by itself: they have no common layout.

    Parameters
    ----------
    rows : Rows
        What the task has made.
    first, upto : int
        Its first row, and the one that did not fit.

    Returns
    -------
    callable
        Writes an element, whatever it is.
    """
    layout = rows.layout
    assert layout is not None
    shift = first if rows.private else 0
    gone = {*rows.drops, *rows.errors}
    elements: dict[int, Any] = {}
    for k in range(first, upto):
        if k not in gone:
            leaves = [
                rows.extras[at][k] if column is None else _own(column[k - shift])
                for at, column in enumerate(rows.columns)
            ]
            elements[k] = unflatten(layout.tree, leaves)
    rows.elements = elements
    rows.layout = None

    def write(k: int, element: Any) -> bool:
        elements[k] = owned(element)
        return True

    return write


def _own(value: Any) -> Any:
    """A value that shares no memory with its block."""
    return copied(value) if isinstance(value, (np.ndarray, np.void)) else value
