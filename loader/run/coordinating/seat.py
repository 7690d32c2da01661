"""Orders for a writer process: tasks of a stage of their own, for the pool's last seat."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.protocols.block import Block
from tundish.loader.run.stages.pace import Pace
from tundish.loader.watch.watch import StageMeter

if TYPE_CHECKING:
    from tundish.loader.run.storing.orders import Order


class SeatOwner(Protocol):
    """The owner of a seat, which hands out orders: the coordinator."""

    def next_block(self) -> int:
        """Return a number for a new block."""
        ...

    def order(self, block: Block) -> None:
        """Hand an order to the writer."""
        ...


class Ordered:
    """An order on its way; its answer is the block's only row."""

    __slots__ = ("_block",)

    def __init__(self, block: Block) -> None:
        self._block = block

    def result(self) -> dict[str, Any] | None:
        block = self._block
        if block.left:
            return None
        if 0 in block.errors:
            raise block.error_of(0)
        answer: dict[str, Any] = json.loads(block.element(0))
        return answer


class Seat:
    """The stage of a writer's orders, as the coordinator sees it.

    Parameters
    ----------
    owner : SeatOwner
        Who hands them out.
    number : int
        The stage's name towards the writer.
    """

    ragged = False
    group = 1

    def __init__(self, owner: SeatOwner, number: int) -> None:
        self._owner, self.number = owner, number
        self.pace = Pace()
        self.window = self.block_nbytes = self.nbytes = 0
        self.meter = StageMeter("", (), "writer")

    def put(self, order: Order) -> Ordered:
        """Hand an order on."""
        block = Block(self._owner.next_block(), [order], self)
        self._owner.order(block)
        return Ordered(block)
