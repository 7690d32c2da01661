"""latency_stats and bytes_produced_stats: what passes an edge of the plan is noted there.

Where an element is computed along the way from a stage's input to its output, its evaluator
notes it, in whichever process that is. What comes to the edge computed is noted as it passes by:
no evaluator is asked for it. An item is one or the other, so each element is noted once.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.measuring import BytesProduced, Latency, Measuring
from tundish.loader.protocols.chains import chain_base, run_of
from tundish.loader.protocols.items import DROPPED, Failure
from tundish.loader.protocols.operator import Passing
from tundish.loader.protocols.rows import Rows

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Machine, Mark, Operator, Value
    from tundish.loader.run.values import Make, Maker

_UNCOMPUTED = (int, tuple, Failure)

Note = Callable[[Any, float], None]
"""``note(element, seconds)``."""


class Measured:
    """The items of a stream; those that are computed are noted.

    An element has taken as long as from the first call that asked for it to the one that gave it.
    """

    def __init__(self, up: Machine, note: Note) -> None:
        self._up, self._note = up, note
        self._began: float | None = None

    def next(self) -> Any:
        if self._began is None:
            self._began = perf_counter()
        item = self._up.next()  # if it is not ready, the next call asks for the same one
        began, self._began = self._began, None
        if type(item) not in _UNCOMPUTED:
            self._note(item, perf_counter() - began)
        return item

    def mark(self) -> Mark:
        return self._up.mark()

    def dump(self, mark: Mark) -> Any:
        return self._up.dump(mark)

    def load(self, state: Any) -> None:
        self._up.load(state)


def measured(node: Operator, base: Operator, up: Machine, context: Context) -> Machine:
    """The stream of `base`, with what measures it below the first map or filter up to `node`."""
    if base.positional:  # nothing is computed there
        return up
    for each in reversed(run_of(node)):
        if isinstance(each, Measuring):
            note = _note_of(each, context, item_nbytes)
            up = Measured(up, note)
        elif not isinstance(each, Passing):
            break
    return up


def _note_of(node: Measuring, context: Context, nbytes: Callable[[Any], int]) -> Note:
    """What is noted of an element, or of an item of it."""
    watch, tag = context.watch, tag_of(node, context)
    if isinstance(node, Latency):
        return lambda _, seconds: watch.edge(tag, seconds)
    return lambda element, _: watch.count(tag, nbytes(element))


def tag_of(node: Measuring, context: Context) -> str:
    """Under which name a node notes."""
    return f"record_latency_{context.label(node.up)}" if node.tag is None else node.tag


def _element(maker: Maker, node: Measuring) -> Value:
    up = maker.below(node, node.up)
    note = _note_of(node, maker.context, nbytes_of)
    base, _ = chain_base(node)
    computing = any(not isinstance(each, Passing) for each in run_of(node))
    passed_by = not computing and not base.positional

    def value(item: Any, pass_: int) -> Any:
        if passed_by and type(item) not in _UNCOMPUTED:
            return up(item, pass_)
        began = perf_counter()
        element = up(item, pass_)
        if element is not DROPPED:
            note(element, perf_counter() - began)
        return element

    return value


def item_nbytes(item: Any) -> int:
    """How large a computed item's element is."""
    if type(item) is not Rows:
        return nbytes_of(item.value)
    total = 0
    for block, first, stop, _ in item.runs:
        loose = block.layout is None or block.elements
        parts = (
            [block.element(k) for k in range(first, stop)] if loose else [block.batch(first, stop)]
        )
        total += sum(map(nbytes_of, parts))
    return total


def nbytes_of(element: Any) -> int:
    """How large an element is: its arrays and numbers as they lie in memory, text as UTF-8."""
    if isinstance(element, np.ndarray) and element.dtype.hasobject and element.dtype.kind == "O":
        return sum(map(nbytes_of, element.flat))
    if isinstance(element, (np.ndarray, np.generic)):
        return int(element.nbytes)
    if isinstance(element, str):
        return len(element.encode("utf-8", "surrogatepass"))
    if isinstance(element, bytes):
        return len(element)
    if isinstance(element, dict):
        return sum(map(nbytes_of, element.values()))
    if isinstance(element, (tuple, list)):
        return sum(map(nbytes_of, element))
    return 0  # a dataset, which is read by itself, or None


VALUES: dict[type[Operator], Make] = {Latency: _element, BytesProduced: _element}
