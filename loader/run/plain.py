"""Small elements that cannot fail, several at once: numbers and paths in the order of positions.

Asking a network of machines for one element at a time costs more than such an element is worth.
Nothing a user wrote is called ahead of time, since nothing a user wrote is in such a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.choosing import Shard, Skip, Take
from tundish.loader.operators.concatenate import Concatenate
from tundish.loader.operators.counting import Counter, Random, Range
from tundish.loader.operators.listing import Files
from tundish.loader.operators.options import Prefetch, WithOptions
from tundish.loader.operators.repeat import Repeat
from tundish.loader.operators.shuffle import Shuffle, WindowShuffle
from tundish.loader.plan.node import walk
from tundish.loader.protocols.positional import Positions
from tundish.loader.run.inline import InlineStage

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Mark, Operator

_PLAIN = (
    *(Counter, Files, Random, Range),
    *(Concatenate, Prefetch, Repeat, Shard, Shuffle, Skip, Take, WithOptions),
)

_CHOOSING = (Prefetch, Shard, Shuffle, Skip, Take, WithOptions)


def is_plain(node: Operator) -> bool:
    """Whether a plan has nothing in it but small elements, and the order they come in."""
    return all(isinstance(below, _PLAIN) for below in walk(node))


def numbers_of(node: Operator) -> tuple[int, int, Any] | None:
    """What `PlainStage.numbers` is for a plan."""
    while isinstance(node, _CHOOSING):
        node = node.up
    return (node.start, node.step, node.dtype or np.int64) if isinstance(node, Range) else None


class PlainStage(InlineStage):
    """As `InlineStage`; over positions, or a window over them, it gives several elements at once."""

    owning = False  # nothing a user wrote is in it

    numbers: tuple[int, int, Any] | None = None
    """Start, step and dtype, where an element is a number of one range and its ref the place."""

    def several(self, most: int) -> list[Any] | None:
        """The next elements; None where they have to be asked for one by one."""
        up = self._up
        refs = up.run(most) if isinstance(up, (Positions, WindowShuffle)) else None
        if refs is None:
            return None
        if self._taken is None:
            self._meter.elements += len(refs)
        if self.numbers is not None:
            start, step, dtype = self.numbers
            return list((np.array(refs) * step + start).astype(dtype, copy=False))
        value, pass_ = self._value, self._pass
        return [value(ref, pass_) for ref in refs]

    def mark_back(self, left: int) -> Mark:
        """The mark so many elements before the last one of `several`."""
        assert isinstance(self._up, (Positions, WindowShuffle))
        return (self._counts.by_event, self._up.mark_back(left))
