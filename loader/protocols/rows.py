"""Items computed by workers: one row of a block, or a batch of runs of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.gaps import copied
from tundish.loader.protocols.block import Block
from tundish.loader.protocols.collate import Key
from tundish.loader.protocols.items import Made, Ref, ref_of
from tundish.loader.protocols.task_inputs import Gather, Shared, SharedRun
from tundish.spec import Tree, flatten, leaf_key


class Row:
    """An element that a worker has computed, in a row of a block."""

    __slots__ = ("block", "ref", "row")

    def __init__(self, ref: Ref, block: Block, row: int) -> None:
        self.ref, self.block, self.row = ref, block, row

    @property
    def value(self) -> Any:
        """The element."""
        return self.block.element(self.row)

    @property
    def note(self) -> Any:
        """The measurement that a noting operator took of the element."""
        return self.block.notes[self.row]

    def again(self) -> Made:
        """Return a private copy, to be kept for long."""
        value = self.block.element(self.row, copy=True)
        return Made(self.ref, value, self.block.notes.get(self.row))

    def told(self, *, by_value: bool = False) -> Any:
        """Encode the item for a task; with `by_value`, for a worker without this shared memory."""
        block, row = self.block, self.row
        if (
            by_value
            or block.layout is None
            or row in block.elements
            or block.slot is None
            or block.private is not None
        ):
            return Made(self.ref, self.value)
        layout = block.layout
        extras = {at: extra[row] for at, extra in block.extras.items()}
        return Shared(self.ref, block.slot, (layout.tree, layout.keys, layout.rows), row, extras)


def run_told(
    block: Block, first: int, stop: int, refs: Any = None, *, by_value: bool = False
) -> SharedRun:
    """Encode consecutive rows of a block for a task, with the block's refs or the given ones."""
    layout, slot = block.layout, block.slot
    assert layout is not None
    if refs is None:
        refs = block.refs[first:stop]
        if isinstance(refs, np.ndarray):
            refs = refs.tolist()
    where = None
    loose: list[Any] = []
    if slot is not None and block.private is None and not by_value:
        where = (slot, layout.keys, layout.rows, first)
    for at, column in enumerate(block.columns):
        if column is None:
            extra = block.extras[at]
            loose.append([extra[row] for row in range(first, stop)])
        else:
            loose.append(None if where is not None else copied(column[first:stop]))
    return SharedRun(refs, layout.tree, loose, where)


Run = tuple[Block, int, int, "list[Ref] | None"]
"""A block and a range of its rows, with their refs if they are not the block's."""


def refs_of(run: Run) -> list[Ref]:
    """Return the refs of a run's rows."""
    block, first, stop, refs = run
    return [ref_of(as_ref(x)) for x in block.refs[first:stop]] if refs is None else refs


class Rows:
    """A batch of rows computed by workers, in runs of consecutive rows of blocks.

    Parameters
    ----------
    number : int
        The batch's ordinal in its pass.
    runs : list of Run
        The runs, in order.
    """

    __slots__ = ("_ref", "number", "runs")

    def __init__(self, number: int, runs: list[Run]) -> None:
        self.number, self.runs = number, runs
        self._ref: Ref = None

    @property
    def ref(self) -> Ref:
        """The batch's ordinal and its rows' refs, unless a later operator has converted the ref."""
        if self._ref is None:
            self._ref = (self.number, tuple([ref for run in self.runs for ref in refs_of(run)]))
        return self._ref

    @ref.setter
    def ref(self, ref: Ref) -> None:
        self._ref = ref

    @property
    def is_one(self) -> bool:
        """True if it is one run of one layout, which is delivered without a copy."""
        if len(self.runs) != 1:
            return False
        block, first, _, _ = self.runs[0]
        return block.key_of(first) is not None

    @property
    def value(self) -> Any:
        """The batch, made on first use."""
        ((block, first, stop, _),) = self.runs
        return block.batch(first, stop)

    def again(self) -> Made:
        """Return a private copy, to be kept for long."""
        ((block, first, stop, _),) = self.runs
        return Made(self.ref, block.batch(first, stop, copy=True))

    def told(self, *, by_value: bool = False) -> Any:
        """Encode the batch for a task; with `by_value`, for a worker without this shared memory."""
        if self.is_one:
            block, first, stop, _ = self.runs[0]
            if by_value or block.slot is None or block.private is not None:
                return Made(self._ref_or_number(), self.value)
            layout = block.layout
            assert layout is not None
            extras = {at: block.loose(at, first, stop) for at in block.extras}
            where = (layout.tree, layout.keys, layout.rows)
            return Shared(self._ref_or_number(), block.slot, where, (first, stop), extras)
        rows: list[Any] = []
        for block, first, stop, _ in self.runs:
            if block.layout is None or block.elements:
                rows += [Row(0, block, k).told(by_value=by_value) for k in range(first, stop)]
            else:
                rows.append(run_told(block, first, stop, range(stop - first), by_value=by_value))
        return Gather(self._ref_or_number(), rows)

    def _ref_or_number(self) -> Ref:
        # A batch's identity is its ordinal: a worker needs no refs of its rows.
        return (self.number, ()) if self._ref is None else self._ref


def as_ref(ref: Any) -> Ref:
    """Return a ref that comes from a range, array or list as a Python value."""
    return int(ref) if isinstance(ref, np.integer) else ref


Form = tuple[Tree, tuple[Key, ...]]
"""A nest's structure, and the keys of its leaves."""

_OBJECT = np.dtype(object)


def form_of(item: Any) -> Form:
    """Return the structure and leaf keys of a computed item's element."""
    kind = type(item)
    if kind is Rows:
        block, first, stop, _ = item.runs[0]
        tree, keys = block.key_of(first)
        return tree, tuple([_stacked(key, stop - first) for key in keys])
    if kind is Row:
        known: Form | None = item.block.key_of(item.row)
        if known is not None:
            return known
        return form_of_value(item.block.elements[item.row])
    return form_of_value(item.value)


def form_of_value(value: Any) -> Form:
    """Return the structure and leaf keys of an element."""
    leaves, tree = flatten(value)
    return tree, tuple([leaf_key(leaf) for leaf in leaves])


def _stacked(key: Key, rows: int) -> Key:
    return (_OBJECT, (rows,)) if isinstance(key, type) else (key[0], (rows, *key[1]))
