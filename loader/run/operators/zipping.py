"""zip and enumerate: items side by side, under a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.elementwise import Enumerate
from tundish.loader.operators.sources import Zip
from tundish.loader.protocols.items import End, Failure, ref_of
from tundish.loader.protocols.machines import Enumerated
from tundish.loader.protocols.ownership import owned
from tundish.loader.protocols.stated import count, load_parts
from tundish.spec import unflatten

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, Maker


class Zipped:
    """One item of each input, side by side; the first input to end ends it."""

    def __init__(self, ups: list[Machine]) -> None:
        self._ups = ups
        self._count = 0
        self._held: list[Any] = []
        self._ended = False
        self._reached: Mark = None

    def next(self) -> Any:
        if self._ended:
            raise End
        held = self._held
        if not held:
            self.mark()  # items whose partners never come are in no state
        try:
            while len(held) < len(self._ups):
                held.append(self._ups[len(held)].next())
        except End:
            self._ended = True
            raise
        self._held = []
        self._reached = None
        n = self._count
        self._count += 1
        first = held[0]
        if type(first) is Failure:
            return Failure((n, *map(ref_of, held)), first.error)
        return (n, *held)  # a later input's error waits: the first may be one when it is computed

    def mark(self) -> Mark:
        if self._reached is None:
            self._reached = (self._count, [up.mark() for up in self._ups])
        return self._reached

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "ups": [u.dump(m) for u, m in zip(self._ups, mark[1], strict=True)]}

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        self._reached = None
        load_parts(self._ups, state)


def _zipped(builder: Builder, node: Zip, pass_: int) -> Machine:
    return Zipped([builder.build(up, pass_) for up in node.ups])


def _enumerated(builder: Builder, node: Enumerate, pass_: int) -> Machine:
    return Enumerated(builder.build(node.up, pass_))


def _pair(maker: Maker, node: Enumerate) -> Value:
    up, start, int64 = maker.below(node, node.up), node.start, np.int64

    def value(item: Any, pass_: int) -> Any:
        return (int64(start + item[0]), up(item[1], pass_))

    return value


def _nest(maker: Maker, node: Zip) -> Value:
    with maker.handing(owned):  # each is kept while the next is made, the last excepted
        parts = [maker.below(node, up) for up in node.ups[:-1]]
    parts.append(maker.below(node, node.ups[-1]))
    tree = node.tree

    def value(item: Any, pass_: int) -> Any:
        if Failure in map(type, item):
            for part, x in zip(parts, item[1:], strict=True):
                if type(x) is Failure:
                    raise x.error
                part(x, pass_)  # its own error, if it has one, comes first
        return unflatten(tree, [part(x, pass_) for part, x in zip(parts, item[1:], strict=True)])

    return value


MACHINES: dict[type[Operator], MakeMachine] = {Zip: _zipped, Enumerate: _enumerated}
VALUES: dict[type[Operator], Make] = {Enumerate: _pair, Zip: _nest}
