"""How orders reach who carries them out; here without workers, in `seat` through the pool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.run.storing.orders import Desk

if TYPE_CHECKING:
    from tundish.loader.run.storing.orders import Order


class Answer(Protocol):
    """What became of an order."""

    def result(self) -> dict[str, Any] | None:
        """What the writer answered; None as long as it has not. Raises its error."""
        ...


class Carrier(Protocol):
    """How orders reach a writer: one after another, in this order."""

    def put(self, order: Order) -> Answer:
        """Hand an order on."""
        ...


class Doing:
    """An order that is carried out when its answer is asked for; again, if that was interrupted."""

    __slots__ = ("_answer", "_desk", "_order")

    def __init__(self, desk: Desk, order: Order) -> None:
        self._desk, self._order = desk, order
        self._answer: dict[str, Any] | Exception | None = None

    def result(self) -> dict[str, Any]:
        if self._answer is None:
            try:
                self._answer = json.loads(self._desk.do(self._order))
            except Exception as error:  # noqa: BLE001 - told as a writer's would be
                self._answer = error
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class InProcess:
    """Orders are carried out in this process."""

    def __init__(self) -> None:
        self._desk = Desk()

    def put(self, order: Order) -> Doing:
        return Doing(self._desk, order)
