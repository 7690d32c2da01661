"""A snapshot that is complete, read in an order of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.operators.opening import reader_of
from tundish.loader.protocols.blame import raise_from
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.raised import element_error
from tundish.loader.protocols.stated import count, load_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.operators.storing import Reread
    from tundish.loader.protocols.operator import Machine, Mark, Value
    from tundish.loader.run.values import Maker


class Rereading:
    """The elements as `reader_func` orders them; as they were written, where a state says so.

    Those of a state that was taken while the snapshot was written are named by their index, as they
    were then; in the other order an element's name is its number behind the last index.

    Parameters
    ----------
    build : callable
        Makes the stream of the other order, of computed items.
    node : Reread
        The snapshot.
    """

    def __init__(self, build: Callable[[], Machine], node: Reread) -> None:
        self._build, self._rows = build, node.found.rows
        self._given = 0
        self._up: Machine | None = None
        self._written = False
        self._node = node

    def next(self) -> Any:
        if self._written:
            return self._as_written()
        if self._up is None:
            self._up = self._build()
        item = self._up.next()
        item.ref = self._rows + self._given
        self._given += 1
        return item

    def _as_written(self) -> Any:
        at = self._given
        if at >= self._rows:
            raise End
        self._given = at + 1
        try:
            return Made(at, reader_of(self._node.found)[at])
        except BaseException as error:  # noqa: BLE001 - the element's error
            return Failure(at, element_error(error))

    def mark(self) -> Mark:
        return self._given, None if self._up is None else self._up.mark()

    def dump(self, mark: Mark) -> Any:
        given, below = mark
        if not given or self._written:
            return {"n": given}
        assert self._up is not None
        return {"n": given, "up": self._up.dump(below)}

    def load(self, state: Any) -> None:
        self._given = count(state, "n")
        if "up" in state:
            self._up = self._build()
            load_part(self._up, state)
        elif self._given:
            self._written = True


def reread_value(maker: Maker, node: Reread) -> Value:
    """An element that a restored buffer names."""
    label, rows = maker.context.label(node), node.found.rows
    again = maker.replayed(node)

    def value(item: Any, pass_: int) -> Any:
        if item >= rows:
            return again(item, pass_)
        try:
            return reader_of(node.found)[item]
        except BaseException as error:  # noqa: BLE001 - the element's, or its file's
            raise_from(error, label)

    return value
