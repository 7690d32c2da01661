"""batch and unbatch: rows put together by their refs, and taken apart.

The machines that stack computed rows are `InlineBatches` in this process, and `Batches` of what
workers have made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.batching import Batch, Unbatch
from tundish.loader.protocols.blame import raise_from
from tundish.loader.protocols.collate import collate
from tundish.loader.protocols.items import Failure, Made
from tundish.loader.protocols.refs import not_there
from tundish.loader.protocols.stated import count, load_part
from tundish.ragged import RaggedRows, ragged_apart
from tundish.spec import copy_element, flatten, normalise, paths, spec_of, unflatten

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Unary, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, Maker


def _rows_of(value: Any) -> tuple[int, Callable[[int], Any]]:
    """How many rows a batched element has, and how to take one.

    Raises
    ------
    SpecError
        A leaf is no array, or first dimensions differ.
    """
    leaves, tree = flatten(ragged_apart(value))
    sizes = set()
    for leaf, path in zip(leaves, paths(tree), strict=True):
        if not isinstance(leaf, (np.ndarray, RaggedRows)) or leaf.ndim == 0:
            raise SpecError(
                f"unbatch needs arrays with a first dimension; {path or 'the element'} is {spec_of(leaf)}"
            )
        sizes.add(len(leaf))
    if len(sizes) != 1:
        raise SpecError(f"unbatch needs leaves with equal first dimensions, not {sorted(sizes)}")
    if tree is None:
        array = leaves[0]
        return len(array), lambda k: normalise(array[k])
    return sizes.pop(), lambda k: unflatten(tree, [normalise(leaf[k]) for leaf in leaves])


class Unbatched:
    """The rows of computed items."""

    def __init__(self, up: Machine, label: str) -> None:
        self._up, self._label = up, label
        self._row = self._rows = 0
        self._skip = 0
        self._before: Mark = up.mark()
        self._reached = self._before

    def next(self) -> Any:
        while self._row >= self._rows:
            item = self._up.next()
            # A mark is good just after an item: one that is not ready may have moved a part of it.
            self._before, self._reached = self._reached, self._up.mark()
            if type(item) is Failure:
                return Failure((item.ref, -1), item.error)
            self._row = self._rows = 0
            try:
                self._rows, self._take = _rows_of(item.value)
            except SpecError as error:
                error.add_note(f"tundish: in {self._label}, at element {item.ref}")
                return Failure((item.ref, -1), error)
            self._ref = item.ref
            self._row, self._skip = self._skip, 0
        k = self._row
        self._row += 1
        return Made((self._ref, k), self._take(k))

    def mark(self) -> Mark:
        # Between two inputs the state names the next one; within one, that one and the row.
        if self._skip:
            return (self._skip, self._before)
        if self._row >= self._rows:
            return (0, self._reached)
        return (self._row, self._before)

    def dump(self, mark: Mark) -> Any:
        return {"row": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._skip = count(state, "row")
        load_part(self._up, state)
        self._before = self._reached = self._up.mark()


def _unbatched(builder: Builder, node: Unbatch, pass_: int) -> Machine:
    return Unbatched(builder.computed(node.up, pass_), builder.context.label(node))


def batch_of(maker: Maker, node: Batch) -> Value:
    """The evaluator of a batch: its rows, stacked."""
    with maker.handing(None):  # each is written into its row before the next is made
        up = maker.at_hand(maker.value(node.up), again=not node.positional)

    def value(item: Any, pass_: int) -> Any:
        rows = item[1]
        return collate((up(x, pass_) for x in rows), len(rows))

    return value


def row_of(maker: Maker, node: Unary) -> Value:
    """The evaluator of a row of a batched element."""
    up, label, hand = maker.held(node.up), maker.context.label(node), maker.hand

    def value(item: Any, pass_: int) -> Any:
        try:
            rows, take = _rows_of(up(item[0], pass_))
            if not 0 <= item[1] < rows:
                raise not_there(f"row {item[1]} of a batch of {rows}")
            return take(item[1]) if hand is None else copy_element(take(item[1]))
        except SpecError as error:
            raise_from(error, label)

    return value


MACHINES: dict[type[Operator], MakeMachine] = {Unbatch: _unbatched}
VALUES: dict[type[Operator], Make] = {Batch: batch_of, Unbatch: row_of}
