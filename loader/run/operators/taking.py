"""take_while: the elements before the first one that a function says no to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.operators.taking import TakeWhile
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.stated import flag, load_part

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import MakeNoted, Maker


class TakenWhile:
    """Computed items, until one whose note is false; what comes behind it is never asked for."""

    def __init__(self, up: Machine) -> None:
        self._up = up
        self._ended = False

    def next(self) -> Any:
        if self._ended:
            raise End
        item = self._up.next()
        if type(item) is not Failure and not item.note:
            self._ended = True
            raise End
        return item

    def mark(self) -> Mark:
        return (self._ended, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"ended": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._ended = flag(state, "ended")
        load_part(self._up, state)


def _taken_while(builder: Builder, node: TakeWhile, pass_: int) -> Machine:
    return TakenWhile(builder.noted(node, pass_))


def _verdict(maker: Maker, node: TakeWhile, up: Value) -> Value:
    predicate = node.predicate

    def verdict(*element: Any) -> bool:
        return bool(predicate(*element))

    return maker.asking(node, verdict, up)


MACHINES: dict[type[Operator], MakeMachine] = {TakeWhile: _taken_while}
NOTES: dict[type[Operator], MakeNoted] = {TakeWhile: _verdict}
