"""ignore_errors and assert_cardinality."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tundish.errors import CardinalityError
from tundish.loader.operators.asserting import AssertCardinality, IgnoreErrors, said_by_node
from tundish.loader.protocols.blame import raise_from
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.machines import Counts
from tundish.loader.protocols.raised import Carried
from tundish.loader.protocols.stated import count, counted_in, flag, load_part

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, Maker

_LOG = logging.getLogger("tundish")


class Ignoring:
    """The computed items that are no failures; the others are counted."""

    def __init__(self, up: Machine, label: str, *, log: bool) -> None:
        self._up, self._label, self._log = up, label, log
        self._counts = Counts()

    def next(self) -> Any:
        while True:
            item = self._up.next()
            if type(item) is not Failure or type(item.error) is Carried:
                return item
            self._counts.add([f"{self._label} ignored"])
            if self._log:
                _LOG.warning("%s left out element %s: %r", self._label, item.ref, item.error)

    def mark(self) -> Mark:
        return (self._counts.by_event, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        counts, up = mark
        below = {"up": self._up.dump(up)}
        # Not at the top: a stage above tells its own counts from a state without any there.
        return {**below, "ignored": {"counts": counts}} if counts else below

    def load(self, state: Any) -> None:
        self._counts.by_event = counted_in(state, "ignored")
        load_part(self._up, state)


class Asserted:
    """Items as they come, and a failure where there are not as many as was said."""

    def __init__(self, up: Machine, expected: int, label: str) -> None:
        self._up, self._expected, self._label = up, expected, label
        self._count = 0
        self._ended = False

    def next(self) -> Any:
        if self._ended:
            raise End
        try:
            item = self._up.next()
        except End:
            self._ended = True
            if self._count == self._expected:
                raise
            return self._failure(self._count)
        self._count += 1
        if 0 <= self._expected < self._count:
            self._ended = True
            return self._failure(self._count)
        return item

    def _failure(self, came: int) -> Failure:
        error = CardinalityError(self._expected, came)
        error.add_note(f"tundish: in {self._label}")
        return Failure(((), came), error)

    def mark(self) -> Mark:
        return (self._count, self._ended, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "ended": mark[1], "up": self._up.dump(mark[2])}

    def load(self, state: Any) -> None:
        self._count, self._ended = count(state, "n"), flag(state, "ended")
        load_part(self._up, state)


def _ignoring(builder: Builder, node: IgnoreErrors, pass_: int) -> Machine:
    label = builder.context.label(node)
    return Ignoring(builder.computed(node.up, pass_), label, log=node.log_warning)


def _asserted(builder: Builder, node: AssertCardinality, pass_: int) -> Machine:
    label = builder.context.label(node)
    return Asserted(builder.build(node.up, pass_), node.expected, label)


def _element(maker: Maker, node: AssertCardinality) -> Value:
    up, label = maker.below(node, node.up), maker.context.label(node)

    def value(item: Any, pass_: int) -> Any:
        if said_by_node(item):
            raise_from(CardinalityError(node.expected, item[1]), label)
        return up(item, pass_)

    return value


MACHINES: dict[type[Operator], MakeMachine] = {
    IgnoreErrors: _ignoring,
    AssertCardinality: _asserted,
}
VALUES: dict[type[Operator], Make] = {AssertCardinality: _element}
