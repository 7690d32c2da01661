"""Wire format of a task's inputs that are computed items: encoded by the coordinator, decoded by a worker.

Rows in shared memory are sent by location (`Shared`, `Gather`), others by value.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.gaps import copied
from tundish.loader.protocols.collate import collate
from tundish.loader.protocols.items import Made, Ref
from tundish.normalising import normalise
from tundish.shm.layout import Layout
from tundish.spec import LEAF, map_leaves, unflatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.shm.memory import Arena


class Shared:
    """A computed item whose row or rows lie in shared memory, as encoded in a task.

    Parameters
    ----------
    ref : Ref
        The item's ref.
    slot : int
        The slot's number.
    layout : (Tree, keys, rows)
        The block's layout.
    row : int or (int, int)
        The element's row; or a range of rows that are a batch.
    extras : dict
        Leaves without a fixed size, by number.
    """

    __slots__ = ("extras", "layout", "ref", "row", "slot")

    def __init__(self, ref: Ref, slot: int, layout: tuple[Any, ...], row: Any, extras: Any) -> None:
        self.ref, self.slot, self.layout, self.row, self.extras = ref, slot, layout, row, extras

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (self.ref, self.slot, self.layout, self.row, self.extras)

    def made(self, arena: Arena) -> Made:
        """Return the item with its value, in read-only views of the slot."""
        layout = Layout(*self.layout)
        root = arena.root(self.slot, layout.nbytes)
        root.flags.writeable = False
        row = self.row
        leaves = []
        for at, column in enumerate(layout.columns(root)):
            if column is None:
                leaves.append(self.extras[at])
            elif type(row) is int:
                leaves.append(normalise(column[row]))
            else:
                leaves.append(column[row[0] : row[1]])
        return Made(self.ref, unflatten(layout.tree, leaves))


class SharedRun:
    """Consecutive rows of one block, each a computed item, as encoded in a task.

    Parameters
    ----------
    refs : sequence of Ref
        The items' refs.
    tree : Tree
        The structure of the elements.
    columns : list
        For each leaf its values, an array or a list; None for a leaf in shared memory.
    where : (int, keys, rows, first) or None
        The slot, the rest of the block's layout, and the first row; None if nothing is in shared memory.
    """

    __slots__ = ("columns", "refs", "tree", "where")

    def __init__(self, refs: Any, tree: Any, columns: list[Any], where: Any) -> None:
        self.refs, self.tree, self.columns, self.where = refs, tree, columns, where

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedRun, (self.refs, self.tree, self.columns, self.where)

    def opened(self, arena: Arena | None) -> list[Any]:
        """Return the values of each leaf; those in shared memory as read-only views."""
        if self.where is None:
            return self.columns
        assert arena is not None
        slot, keys, rows, first = self.where
        layout = Layout(self.tree, keys, rows)
        root = arena.root(slot, layout.nbytes)
        root.flags.writeable = False
        stop = first + len(self.refs)
        return [
            loose if column is None else column[first:stop]
            for column, loose in zip(layout.columns(root), self.columns, strict=True)
        ]

    def made(self, arena: Arena | None) -> list[Made]:
        """Return the items with their values."""
        leaves = [_each(column) for column in self.opened(arena)]
        if self.tree is LEAF:
            return list(map(Made, self.refs, leaves[0]))
        rows = zip(*leaves, strict=True) if leaves else repeat((), len(self.refs))
        elements = [unflatten(self.tree, each) for each in rows]
        return list(map(Made, self.refs, elements))


class SharedBraid:
    """Rows of several blocks, interleaved in turns of equal size, as encoded in a task.

    Parameters
    ----------
    runs : list of SharedRun
        The rows of each block, in the order of turns.
    each : int
        The number of rows of a turn.
    first, stop : int
        The range of items among the interleaved rows.
    """

    __slots__ = ("each", "first", "runs", "stop")

    def __init__(self, runs: list[SharedRun], each: int, first: int, stop: int) -> None:
        self.runs, self.each, self.first, self.stop = runs, each, first, stop

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedBraid, (self.runs, self.each, self.first, self.stop)

    def made(self, arena: Arena | None) -> list[Made]:
        """Return the items with their values."""
        strands = [run.made(arena) for run in self.runs]
        turns = range(0, len(strands[0]), self.each)
        items = [x for at in turns for made in strands for x in made[at : at + self.each]]
        return items[self.first : self.stop]


def _each(column: Any) -> list[Any]:
    """Return the rows of a column as they are in elements."""
    if type(column) is list:
        return column
    if column.ndim == 1 and column.dtype.kind != "V":
        return list(column)
    return [normalise(row) for row in column]


class Gather:
    """A batch whose rows lie in several places; the worker stacks them.

    Parameters
    ----------
    ref : Ref
        The batch's ref.
    rows : list
        For each part a `Shared`, a `Made`, or a `SharedRun`.
    """

    __slots__ = ("ref", "rows")

    def __init__(self, ref: Ref, rows: list[Any]) -> None:
        self.ref, self.rows = ref, rows

    def __reduce__(self) -> tuple[Any, ...]:
        return Gather, (self.ref, self.rows)

    def made(self, arena: Arena | None) -> Made:
        """Return the batch; columns of equal layout are concatenated as a whole."""
        runs = [row for row in self.rows if type(row) is SharedRun]
        if len(runs) == len(self.rows) and all(run.tree == runs[0].tree for run in runs):
            columns = list(zip(*[run.opened(arena) for run in runs], strict=True))
            if columns and all(map(_alike, columns)):
                return Made(self.ref, unflatten(runs[0].tree, [_joined(c) for c in columns]))
        rows = [each.value for each in open_all(self.rows, arena)]
        return Made(self.ref, collate(rows, len(rows)))


def _alike(parts: Sequence[Any]) -> bool:
    """Return True if parts of a column can be concatenated: arrays of one dtype, without padding in it."""
    first = parts[0]
    return all(
        type(part) is np.ndarray
        and part.dtype == first.dtype
        and part.dtype.kind not in "VO"
        and part.shape[1:] == first.shape[1:]
        for part in parts
    )


def _joined(parts: Sequence[Any]) -> np.ndarray:
    first = parts[0]
    column = np.empty((sum(map(len, parts)), *first.shape[1:]), first.dtype)
    return np.concatenate(parts, out=column)


class InlineValues:
    """Items whose elements are single objects (bytes, str, ...), sent by value in one message.

    Parameters
    ----------
    refs : list of Ref
        The items' refs.
    values : list
        The items' elements.
    """

    __slots__ = ("refs", "values")

    def __init__(self, refs: list[Ref], values: list[Any]) -> None:
        self.refs, self.values = refs, values

    def __reduce__(self) -> tuple[Any, ...]:
        return InlineValues, (self.refs, self.values)


class EncodedInput:
    """The encoded form of an `Ordered`."""

    __slots__ = ()

    def opened(self, arena: Arena | None) -> Any:
        """Return the decoded object, with its rows opened."""
        raise NotImplementedError


def open_all(told: list[Any], arena: Arena | None) -> list[Any]:
    """Decode the inputs of a task for a worker's evaluators."""
    items: list[Any] = []
    for each in told:
        if isinstance(each, (SharedRun, SharedBraid)):
            items += each.made(arena)
        elif type(each) is InlineValues:
            items += map(Made, each.refs, each.values)
        else:
            items.append(open_item(each, arena))
    return items


def open_item(item: Any, arena: Arena | None) -> Any:
    """Decode one item for a worker's evaluators."""
    if type(item) is tuple:
        return tuple([open_item(x, arena) for x in item])
    if type(item) is Shared:
        assert arena is not None
        return item.made(arena)
    if isinstance(item, EncodedInput):
        return item.opened(arena)
    if type(item) is Gather:
        return item.made(arena)
    return item


def kept(item: Any) -> Any:
    """Return a decoded item with copies of its arrays that lie in shared memory."""
    if type(item) is tuple:
        return tuple([kept(x) for x in item])
    if type(item) is Made:
        return Made(item.ref, map_leaves(_own, item.value), item.note)
    return item


def _own(leaf: Any) -> Any:
    return copied(leaf) if isinstance(leaf, (np.ndarray, np.void)) else leaf
