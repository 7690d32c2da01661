"""Small elements that cannot fail, several at once: numbers and paths in the order of positions.

Asking a network of machines for one element at a time costs more than such an element is worth.
Nothing a user wrote is called ahead of time, since nothing a user wrote is in such a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.plan.node import walk
from tundish.loader.protocols.items import End
from tundish.loader.protocols.positional import Positions
from tundish.loader.protocols.raised import element_error
from tundish.loader.run.inline import InlineStage

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Mark, StoredElements
    from tundish.loader.protocols.operator import Operator


def is_plain(root: Operator) -> bool:
    """Return True for a plan that has nothing in it but light elements, and the order they come in."""
    return all(
        node.light or node.choosing or node.relays or (node.transparent and not node.measures)
        for node in walk(root)
    )


class PlainStage(InlineStage):
    """As `InlineStage`; over positions, or a window over them, it gives several elements at once."""

    owning = False  # nothing a user wrote is in it

    numbers: tuple[int, int, Any] | None = None
    """Start, step and dtype, where an element is a number of one range and its ref the place."""

    def several(self, most: int) -> list[Any] | None:
        """Return the next elements; None where they have to be asked for one by one."""
        run = getattr(self._up, "run", None)
        refs = None if run is None else run(most)
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
        """Return the mark so many elements before the last one of `several`."""
        up: Any = self._up
        return (self._counts.by_event, up.mark_back(left))


class StoredStage(PlainStage):
    """As `InlineStage`, over positions of a snapshot whose elements are views of files."""

    found: StoredElements
    """The snapshot."""

    def several(self, most: int) -> Any:
        up = self._up
        if not isinstance(up, Positions):
            return None
        before = up.mark()
        try:
            reader = self.found.reader
            most = min(most, reader.at_once)
            return None if most == 1 else reader.handed(up.run(most))
        except End:
            raise
        except BaseException as error:  # noqa: BLE001 - told at its element, when they are asked for one by one
            element_error(error)
            up.load(up.dump(before))
            return None
