"""A worker: computes the rows of its tasks, writes them to their slots, answers.

::

    recv TASK(rows, slot) -> evaluate each element -> its row of the slot -> DONE

It keeps nothing but the plan and caches: any task may run in any worker, once or again. It writes
only to shared memory of a task it has been given, and decides nothing. The steps of a
task are in `tundish.loader.run.working`.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from tundish.errors import SharedMemoryError
from tundish.loader.protocols.context import Context
from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.run.inline.reference import InlinePlanner
from tundish.loader.run.starting.watchdog import lift
from tundish.loader.run.wire.messages import STREAM_END, ItemsForm, Task
from tundish.loader.run.wire.serving import Serving, serve
from tundish.loader.run.wire.unreadable import UnreadableInputError
from tundish.loader.run.working.answers import Answers
from tundish.loader.run.working.blocks import Blocks, Inputs
from tundish.loader.run.working.evaluation import Evaluation
from tundish.loader.run.working.stage import StageEvaluator, Stages
from tundish.loader.run.working.streams import OpenStreams
from tundish.loader.run.working.writing import SlotTooSmall, TaskOutput
from tundish.loader.watch.watch import Watch

if TYPE_CHECKING:
    from tundish.loader.plan.options import Options
    from tundish.loader.run.starting.moment import Luggage
    from tundish.loader.run.wire.mail import Inbox
    from tundish.shm.channel import Channel
    from tundish.shm.memory import Arena


class Worker(Serving):
    """Runs the tasks that come over a channel until it closes.

    Parameters
    ----------
    channel : Channel
        The worker's end.
    arena : Arena or None
        None without shared memory: everything is sent over the channel.
    context : Context
        The iterator's context, with its plan.
    options : Options
        The iterator's options.
    forks : bool
        True for a process of its own: a child that the user's function forks and that
        returns is ended, and a deadline ends the process.
    clocked : bool
        True if the time that cores were busy is measured.
    """

    def __init__(
        self,
        channel: Channel,
        arena: Arena | None,
        context: Context,
        options: Options,
        *,
        forks: bool = True,
        clocked: bool = True,
    ) -> None:
        super().__init__(channel, forks=forks)
        outbox = self._outbox
        open_inner = InlinePlanner(context, options).open_inner
        self._context = context
        self._deadline = deadline = options.deadline if forks else None
        clock = time.process_time if forks else time.thread_time
        self._cpu = cpu = clock if clocked else float  # 0.0
        self._stages = Stages(context, open_inner, one_by_one=deadline is not None)
        self._inputs = Inputs(arena, context)
        self._blocks = blocks = Blocks(arena, outbox)
        self._evaluation = Evaluation(context, blocks, deadline=deadline)
        self._streams = OpenStreams(
            context, open_inner, self._inputs, blocks, outbox, deadline=deadline
        )
        self._answers = Answers(arena, outbox, context, cpu=cpu)

    def _await(self, inbox: Inbox) -> None:
        desk = self._stages.desk
        while desk is not None and not inbox.waits(desk.until_renewal()):
            desk.renew()  # the consumer may pause for long

    def _open_stage(self, number: int, flag: int, what: tuple[int, int, int]) -> None:
        self._streams.forget(number)
        self._streams.make_room(self._stages.open(number, flag, what).in_turn)

    def _task(self, task: Task, tail: bytes | memoryview) -> None:
        began, cpu = time.perf_counter(), self._cpu()
        stage = self._stages[task.stage]
        turns, ended = stage.turns, False
        timed = turns is not None and turns.due()
        try:
            if task.items == ItemsForm.ORDER:
                rows = self._order(stage, task, tail)
            elif task.items == ItemsForm.STREAM:
                rows, ended = self._streams.read(stage, task, tail)
            else:
                items = self._inputs.of(task, tail)
                rows = self._evaluation.rows(stage, task, items, timed=timed)
            busy_s = self._answers.done(
                task, rows, began, cpu, STREAM_END if ended else 0, stage=stage
            )
            if turns is not None:
                turns.did(task.rows, busy_s, timed=timed)
        except SlotTooSmall as need:
            self._context.watch.take(timed=False)  # the rows will be computed again
            one = stage.placed and task.rows == 1
            self._answers.need(task, need, after=self._streams.after if one else 0)
        except UnreadableInputError as error:
            rows = TaskOutput()
            rows.notes = {task.first: error}
            self._answers.done(task, rows, began, cpu, 0)
        except SharedMemoryError as error:
            # The system has less memory than the budget allows: each row of the task is that error.
            rows = TaskOutput()
            rows.errors = dict.fromkeys(
                range(task.first, task.first + task.rows), dumps_exception(error)
            )
            self._answers.done(task, rows, began, cpu, STREAM_END if stage.is_stream else 0)
        finally:
            if self._deadline is not None:
                lift()

    def _order(self, stage: StageEvaluator, task: Task, tail: bytes | memoryview) -> TaskOutput:
        """Carry out an order; its answer is the only row."""
        self._outbox.tolerant = True  # its sender may have gone: it is carried out anyway
        (order,) = self._inputs.decoded(tail)
        rows = TaskOutput()
        try:
            answer = stage.value(order, 0)
        except Exception as error:  # noqa: BLE001 - the disk's
            rows.errors[0] = dumps_exception(error)
            return rows
        self._blocks.begin(rows, task, answer)(0, answer)
        return rows


def main(fds: list[int], config: bytes) -> int:
    """Run a worker process: the entry that the launcher calls."""
    return serve(fds, config, _make)


def _make(
    channel: Channel, arena: Arena | None, luggage: Luggage, settings: dict[str, Any]
) -> Worker:
    root, options, probes = luggage.unpack()
    context = Context(root, *settings["context"])
    context.probes, context.watch = probes, Watch(enabled=settings["watched"])
    context.room = settings["room"]
    context.where = f"in worker {os.getpid()}"
    if options.worker_init is not None and not settings["writes"]:
        options.worker_init()
    return Worker(channel, arena, context, options, clocked=settings["clocked"])
