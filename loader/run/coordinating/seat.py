"""The stage of a writer's orders: its tasks go to the pool's last seat."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.block import Block
from tundish.loader.run.coordinating.computed import ComputedTasks
from tundish.loader.run.pool.peers import Job
from tundish.loader.run.stages.stage import Stage
from tundish.loader.run.wire.messages import NO_SLOT, WRITING, ItemsForm, MessageKind, Task
from tundish.loader.run.wire.telling import roots_of_all
from tundish.loader.watch.watch import StageMeter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.protocols.context import Context
    from tundish.loader.run.coordinating.coordinator import Coordinator
    from tundish.loader.run.coordinating.memory import Memory
    from tundish.loader.run.storing.orders import Order


class PendingOrder:
    """An order that was sent; its answer is the block's only row."""

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


class OrderTasks(ComputedTasks):
    """Tasks of one order each."""

    def cut(self, block: Block, memory: Memory, quota: int, workers: int) -> list[Job]:
        tail, held = self._encoded(block.refs, memory)
        task = Task(
            MessageKind.TASK, ItemsForm.ORDER, block.stage.number, block.number, NO_SLOT, 0, 1, 1, 0, 0, 0, 0, len(tail)
        )  # fmt: skip
        return [Job(task, tail, block, is_order=True, held=held, roots=roots_of_all(block.refs))]

    def blame(self, job: Job, error: Callable[[str], BaseException]) -> BaseException:
        return error("an order")


class WriterStage(Stage):
    """The stage of a writer's orders.

    Parameters
    ----------
    owner : Coordinator
        The coordinator, which hands them out.
    context : Context
        The iterator's context.
    """

    def __init__(self, owner: Coordinator, context: Context) -> None:
        tasks = OrderTasks(context, context.root, context.root, 0)
        number = owner.define(WRITING, tasks.definition, "writer")
        super().__init__(number, tasks, StageMeter("", (), "writer"))
        self._owner = owner

    def put(self, order: Order) -> PendingOrder:
        """Send an order."""
        block = Block(self._owner.next_block(), [order], self)
        self._owner.order(block)
        return PendingOrder(block)
