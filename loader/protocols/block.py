"""Blocks: consecutive items of a stage, and their computed rows in one slot.

A block belongs to the coordinator. The items `Row` and `Rows` refer to its rows and keep it alive. Its slot is released
when the last of them, and the last view that the consumer holds, is gone: the slot is leased, and reference
counting is the interpreter's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.gaps import copied
from tundish.loader.protocols.collate import stack_loose
from tundish.loader.protocols.ownership import COPY_BELOW, private
from tundish.spec import LEAF, Tree, map_leaves, unflatten

if TYPE_CHECKING:
    from tundish.loader.watch.watch import Noted
    from tundish.shm.layout import Layout

_SMALL_ROW = 16384


class Block:
    """Consecutive items of a stage, and what workers computed from them.

    Attributes
    ----------
    number : int
        Its number in messages.
    refs : sequence
        The refs of its rows.
    slot : int or None
        The slot, granted to workers until every row has been computed.
    left : int
        The number of rows that are not computed yet.
    layout : Layout or None
        The layout of the columns; None if the rows have no common one and are kept in `elements`.
    root : numpy.ndarray or None
        The memory of the columns, which holds the lease.
    drops, errors, events, extras, elements : set or dict
        By row: dropped rows, errors, counted events, leaves outside the columns, and whole elements.
    told : list
        Counts and times reported by workers.
    """

    __slots__ = (
        "__weakref__",
        "_columns",
        "clean",
        "drops",
        "elements",
        "errors",
        "events",
        "extras",
        "flying",
        "gone",
        "inputs",
        "kept",
        "layout",
        "leased",
        "left",
        "marks",
        "mixed",
        "nbytes",
        "notes",
        "number",
        "origin",
        "private",
        "refs",
        "reserved",
        "root",
        "slot",
        "stage",
        "told",
        "total",
    )

    def __init__(self, number: int, refs: Any, stage: Any) -> None:
        self.number, self.refs, self.stage = number, refs, stage
        self.total = self.left = len(refs)
        self.slot: int | None = None
        self.layout: Layout | None = None
        self.root: np.ndarray | None = None
        self.private: np.ndarray | None = None
        self.drops: set[int] = set()
        self.errors: dict[int, BaseException | None] = {}
        self.events: dict[int, list[str]] = {}
        self.notes: dict[int, Any] = {}
        self.extras: dict[int, dict[int, Any]] = {}
        self.elements: dict[int, Any] = {}
        self.told: list[Noted] = []
        self.inputs: Any = None
        self.marks: Any = None
        self.origin: Any = None
        self.mixed = self.gone = self.clean = self.leased = self.kept = False
        self.nbytes = 0
        self.flying = self.reserved = 0
        self._columns: list[np.ndarray | None] | None = None

    def error_of(self, row: int) -> BaseException:
        """Return a row's error, once: keeping it would keep alive its catcher's frames, and with them the iterator.

        Raising an error ties it to the frames it passes, so an iterator that was dropped would never be closed.
        """
        error = self.errors[row]
        assert error is not None
        self.errors[row] = None
        return error

    def outcomes(self, rows: int) -> tuple[int, int, int]:
        """Return how many of the first `rows` rows are elements, are dropped, and are errors."""
        if self.clean:
            return rows, 0, 0
        if rows == self.total:
            dropped, failed = len(self.drops), len(self.errors)
        else:
            # Copies, each made at once: another thread may ask meanwhile.
            dropped = sum(row < rows for row in tuple(self.drops))
            failed = sum(row < rows for row in tuple(self.errors))
        return rows - dropped - failed, dropped, failed

    @property
    def small(self) -> bool:
        """True if all rows are elements, and so small that they are delivered as copies, many at once."""
        layout = self.layout
        return self.clean and layout is not None and layout.row_nbytes <= _SMALL_ROW

    def reset(self) -> None:
        """Discard all results, so that one task computes the block again."""
        self.left = self.total
        self.layout = self.root = self._columns = None
        self.drops, self.errors, self.events = set(), {}, {}
        self.extras, self.elements, self.notes = {}, {}, {}
        self.told = []
        self.mixed = False

    @property
    def columns(self) -> list[np.ndarray | None]:
        """The columns over the block's memory."""
        if self._columns is None:
            assert self.layout is not None
            assert self.root is not None
            self._columns = self.layout.columns(self.root)
            if self.kept:
                for column in self._columns:
                    if column is not None:
                        column.flags.writeable = False
        return self._columns

    def keep(self) -> None:
        """Keep the rows unchanged for a writer that reads them later: views are read-only from now on."""
        if not self.kept:
            self.kept, self._columns = True, None

    def key_of(self, row: int) -> tuple[Tree, tuple[Any, ...]] | None:
        """Return what must be equal for rows to fit one batch; None for a row that is outside the columns."""
        if row in self.elements or self.layout is None:
            return None
        return (self.layout.tree, self.layout.keys)

    def element(self, row: int, *, copy: bool = False) -> Any:
        """Return an element; large arrays are views of the block's memory, unless `copy` is true."""
        if row in self.elements:
            return map_leaves(lambda leaf: _private(leaf, copy=copy), self.elements[row])
        layout = self.layout
        assert layout is not None
        if layout.tree is LEAF:
            column = self.columns[0]
            return self._loose_one(0, row, copy=copy) if column is None else _one(column, row, copy)
        leaves = [
            self._loose_one(at, row, copy=copy) if column is None else _one(column, row, copy)
            for at, column in enumerate(self.columns)
        ]
        return unflatten(layout.tree, leaves)

    def batch(self, first: int, stop: int, *, copy: bool = False) -> Any:
        """Return rows with one layout as a batch; large arrays are views, unless `copy` is true."""
        layout = self.layout
        assert layout is not None
        arrays = []
        for at, column in enumerate(self.columns):
            if column is None:
                arrays.append(self.loose(at, first, stop, copy=copy))
                continue
            rows = column[first:stop]
            arrays.append(copied(rows) if copy or rows.nbytes <= COPY_BELOW else rows)
        return unflatten(layout.tree, arrays)

    def loose(self, at: int, first: int, stop: int, *, copy: bool = False) -> np.ndarray:
        """Return rows of a leaf that has no fixed size; with `copy`, nothing of them lies in the block's memory."""
        assert self.layout is not None
        extra = self.extras[at]
        values = [private(extra[k]) if copy else extra[k] for k in range(first, stop)]
        return stack_loose(self.layout.keys[at], values)

    def _loose_one(self, at: int, row: int, *, copy: bool = False) -> Any:
        """Return one row of a leaf that has no fixed size; with `copy`, nothing of it lies in the block's memory."""
        value = self.extras[at][row]
        if copy:
            return private(value)
        if self.kept and isinstance(value, np.ndarray):
            value = value.view()
            value.flags.writeable = False
        return value

    def elements_of(self, first: int, stop: int) -> list[Any]:
        """Return rows of a `small` block as a list of private values."""
        layout = self.layout
        assert layout is not None
        tree, parts = layout.tree, list[list[Any]]()
        if self.elements or not layout.keys:  # rows of several layouts, or of nothing
            return [self.element(row, copy=True) for row in range(first, stop)]
        for at, column in enumerate(self.columns):
            if column is None:
                parts.append([self._loose_one(at, k) for k in range(first, stop)])
            else:
                parts.append(_separate(column[first:stop]))
        if tree is LEAF:
            return parts[0]
        return [unflatten(tree, leaves) for leaves in zip(*parts, strict=True)]

    def evict(self) -> bool:
        """Move the rows to private memory to free the slot; return False if the consumer holds some."""
        if self.root is None or not self.leased or self.private is not None:
            return False
        self.private = self.root.copy()
        self.root, self._columns = self.private, None
        return True


def _separate(rows: np.ndarray) -> list[Any]:
    """Return rows as private values."""
    if rows.dtype.kind == "V":
        return [copied(row) for row in rows]
    return list(rows) if rows.ndim == 1 else [row.copy() for row in rows]


def _one(column: np.ndarray, row: int, copy: bool) -> Any:
    return _private(column[row], copy=copy)


def _private(value: Any, *, copy: bool) -> Any:
    if copy:
        return private(value)
    if isinstance(value, (np.ndarray, np.void)) and value.nbytes <= COPY_BELOW:
        return copied(value)
    return value
