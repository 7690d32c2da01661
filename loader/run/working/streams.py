"""A worker's open inner datasets, each read in chunks.

A chunk is a task. Elements that were read are not kept: if another worker, or a new reader of
this one, continues, the dataset is made again and its first elements are skipped.
"""

from __future__ import annotations

from collections import OrderedDict
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.protocols.items import End, Failure, ref_of
from tundish.loader.run.starting.watchdog import limit
from tundish.loader.run.working.writing import TaskOutput, scatter

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.run.evaluating.values import OpenInner
    from tundish.loader.run.wire.mail import Outbox
    from tundish.loader.run.wire.messages import Task
    from tundish.loader.run.working.blocks import Blocks, Inputs
    from tundish.loader.run.working.stage import StageEvaluator

_OPEN = 64


class OpenStreams:
    """Reads chunks of inner datasets.

    Parameters
    ----------
    context : Context
        The iterator's context.
    open_inner : callable
        Opens an inner dataset.
    inputs : Inputs
        Decodes the item that a dataset is made from.
    blocks : Blocks
        Lays out the rows.
    outbox : Outbox
        Reports that a dataset is open.
    deadline : float or None
        Seconds that an element may take, after which the process ends.
    """

    def __init__(
        self,
        context: Context,
        open_inner: OpenInner,
        inputs: Inputs,
        blocks: Blocks,
        outbox: Outbox,
        *,
        deadline: float | None,
    ) -> None:
        self._context, self._open_inner = context, open_inner
        self._inputs, self._blocks, self._outbox = inputs, blocks, outbox
        self._deadline = deadline
        self._open: OrderedDict[tuple[int, int], tuple[Any, int]] = OrderedDict()
        self._most = _OPEN
        self.after = 0
        """The offset after the record of a file, where it was the only one asked for."""

    def forget(self, number: int) -> None:
        """Close the datasets of a stage, whose number is reused."""
        for key in [key for key in self._open if key[0] == number]:
            del self._open[key]

    def make_room(self, in_turn: int) -> None:
        """Allow twice `in_turn` open datasets: those that are read in turn, and as many after them."""
        self._most = max(self._most, 2 * in_turn)

    def read(
        self, stage: StageEvaluator, task: Task, tail: bytes | memoryview
    ) -> tuple[TaskOutput, bool]:
        """Read the next elements of an inner dataset, opened here or where a dead worker left it.

        Returns
        -------
        (TaskOutput, bool)
            The rows, and True if the dataset ended there.
        """
        clock = stage.clock
        if clock is None:
            return self._read(stage, task, tail)
        clock.begin()
        began = perf_counter()
        rows, ended = self._read(stage, task, tail)
        clock.read(perf_counter() - began, task.rows - len(rows.drops))
        return rows, ended

    def _read(
        self, stage: StageEvaluator, task: Task, tail: bytes | memoryview
    ) -> tuple[TaskOutput, bool]:
        key = (task.stage, task.start)
        self.after = 0
        network, at = self._open.pop(key, (None, -1))
        rows, skip = TaskOutput(), task.step
        deadline, where = self._deadline, self._context.where
        if network is None or at != skip:
            # A slot that the tail names is released after this task, but later tasks read the dataset, too.
            (item,) = self._inputs.decoded(tail, private=True)
            if deadline is not None:  # skipped elements take their time, too
                left_out = 0 if stage.placed else skip
                limit(deadline * (1 + left_out))
            began = perf_counter()
            try:
                origin = stage.identity(ref_of(item), stage.pass_)
                plan = stage.value(item, stage.pass_)
                network = self._open_inner(plan, origin, skip)
                self._note_events(rows, task.first, seen=skip > 0)
            except Exception as error:  # noqa: BLE001 - the element's error
                self._note_events(rows, task.first, seen=False)
                rows.errors[task.first] = stage.error(error, item, where)
                rows.drops = list(range(task.first + 1, task.first + task.rows))
                rows.not_opened = True
                return rows, True
            finally:
                if stage.clock is not None:
                    stage.clock.opened(perf_counter() - began)
        if task.rows == 1:
            self._outbox.begins(0)  # a death from now on is the element's, not the opening's
        write: Any = None
        places: list[int] = []
        if stage.placed and network.text and deadline is None and task.rows > 1:
            write = self._records(rows, task, network, places)
        for k in range(task.first + len(places), task.first + task.rows):
            if deadline is not None:
                limit(deadline)
            try:
                found = network.next()
            except End:
                rows.drops = [*rows.drops, *range(k, task.first + task.rows)]
                _tell_places(rows, places, network)
                return rows, True
            if stage.placed:
                places.append(found.ref)
                if task.rows == 1:
                    self.after = network.mark()
            if type(found) is Failure:
                rows.errors[k] = dumps_exception(found.error)
                continue
            if write is None:
                write = self._blocks.begin(rows, task, found.value)
            if not write(k, found.value):
                write = scatter(rows, task.first, k)
                write(k, found.value)
        _tell_places(rows, places, network)
        self._open[key] = (network, network.mark() if stage.placed else skip + task.rows)
        while len(self._open) > self._most:
            self._open.popitem(last=False)
        return rows, False

    def _note_events(self, rows: TaskOutput, k: int, *, seen: bool) -> None:
        """Report, with its first row, what happened when an inner dataset was opened; once."""
        events = self._context.events
        if events and not seen:
            rows.events[k] = events.copy()
        events.clear()

    def _records(self, rows: TaskOutput, task: Task, network: Any, places: list[int]) -> Any:
        """Read several records of a file at once; return a function that writes those that follow."""
        write: Any = None
        while len(places) < task.rows:
            found = network.some(task.rows - len(places))
            if found is None:
                break
            at, values = found
            if write is None:
                write = self._blocks.begin(rows, task, values[0])
            first = task.first + len(places)
            rows.extras[0].update(zip(range(first, first + len(values)), values, strict=True))
            places += at
        return write


def _tell_places(rows: TaskOutput, places: list[int], network: Any) -> None:
    """Report the offsets of a chunk's rows, and the one after them."""
    if places:
        rows.notes[0] = np.array([*places, network.mark()], np.int64)
