"""Evaluation of a task's items, each written into its row while it is in the cache.

Items are evaluated one by one, or many at once: a cheap function over a range, or rows of tables.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.items import DROPPED
from tundish.loader.protocols.raised import raise_from
from tundish.loader.protocols.refs import refs_of_rows
from tundish.loader.protocols.results import checked
from tundish.loader.run.starting.watchdog import limit
from tundish.loader.run.working.writing import SlotTooSmall, TaskOutput, scatter
from tundish.normalising import normalise
from tundish.spec import NUMBERS, flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Gather
    from tundish.loader.run.wire.messages import Task
    from tundish.loader.run.working.blocks import Blocks
    from tundish.loader.run.working.stage import StageEvaluator


class Evaluation:
    """Computes the rows of tasks.

    Parameters
    ----------
    context : Context
        The iterator's context.
    blocks : Blocks
        Lays out the rows.
    deadline : float or None
        Seconds that an element may take, after which the process ends.
    """

    def __init__(self, context: Context, blocks: Blocks, *, deadline: float | None) -> None:
        self._context, self._blocks, self._deadline = context, blocks, deadline

    def rows(
        self, stage: StageEvaluator, task: Task, items: Sequence[Any], *, timed: bool
    ) -> TaskOutput:
        """Evaluate the items; with `timed`, with a clock around each node, or around all."""
        if not timed:
            return self._evaluated(stage, task, items, stage.value)
        if not stage.whole:
            return self._evaluated(stage, task, items, stage.timed)
        began = perf_counter()
        rows = self._evaluated(stage, task, items, stage.value)
        each_s = (perf_counter() - began) / task.rows
        self._context.watch.sample(stage.label).node(stage.label).add(each_s, task.rows)
        return rows

    def _evaluated(
        self, stage: StageEvaluator, task: Task, items: Sequence[Any], value: Any
    ) -> TaskOutput:
        rows = TaskOutput()
        rows.items = items
        pass_, events = stage.pass_, self._context.events
        notes, where = self._context.notes, self._context.where
        deadline = self._deadline
        write: Any = None
        done = 0
        if stage.gather is not None and self._gathered(stage.gather, pass_, task, items, rows):
            return rows
        read_s = 0.0
        if stage.read is not None:
            began = perf_counter()
            stage.read(items, pass_)
            read_s = perf_counter() - began
        if stage.sweep is not None and type(items) is range:
            done, write = self._sweep(stage, task, items, rows)
        for k, item in zip(
            range(task.first + done, task.first + task.rows), items[done:], strict=True
        ):
            if deadline is not None:
                limit(deadline)
            try:
                element = value(item, pass_)
                if events:
                    rows.events[k] = events.copy()
                    events.clear()
                if element is DROPPED:
                    rows.drops.append(k)
                    continue
                if notes:
                    rows.notes[k] = notes.pop()
            except Exception as error:  # noqa: BLE001 - the element's error
                if events:
                    rows.events[k] = events.copy()
                    events.clear()
                rows.errors[k] = stage.error(error, item, where)
                continue
            if write is None:
                write = self._blocks.begin(rows, task, element)
            if not write(k, element):
                write = scatter(rows, task.first, k)
                write(k, element)
        if read_s and value is stage.timed and stage.note_read is not None:
            stage.note_read(read_s)
        return rows

    def _sweep(
        self, stage: StageEvaluator, task: Task, items: range, rows: TaskOutput
    ) -> tuple[int, Any]:
        """Evaluate items with one cheap function, up to the first that fails."""
        raw: list[bool] = []
        elements, k = stage.sweep(items, stage.pass_, raw), task.first
        write: Any = None
        scalars: list[Any] = []
        try:
            for found in elements:
                element = found
                if write is None:
                    write = self._blocks.begin(rows, task, element)
                    if _is_number(element) and rows.columns[0] is not None:
                        scalars.append(element)
                        scalars.extend(elements)  # on an error it keeps the elements before it
                        break
                    if rows.plain:  # what fits as it is needs no other form
                        raw.append(True)
                if not write(k, element):
                    if raw:
                        raw.clear()
                        element = checked(element)
                    if not write(k, element):
                        write = scatter(rows, task.first, k)
                        write(k, element)
                k += 1
        except SlotTooSmall:
            raise
        except Exception as error:  # noqa: BLE001 - the element's error
            try:
                raise_from(error, stage.label)
            except Exception as marked:  # noqa: BLE001 - the element's error
                failed = marked
            k += len(scalars)
            rows.errors[k] = stage.error(failed, items[k - task.first], self._context.where)
        else:
            k += len(scalars)
        if scalars:
            write = _put_scalars(rows, task, scalars, write)
        return k - task.first + (k in rows.errors), write

    def _gathered(
        self, gather: Gather, pass_: int, task: Task, items: Sequence[Any], rows: TaskOutput
    ) -> bool:
        """Write all items' elements as columns; return False if each has to be made separately."""
        refs = items if type(items) is range else refs_of_rows(items)
        columns = None if refs is None else gather(refs, pass_)
        if columns is None:
            return False
        leaves, tree = flatten(columns)
        first = unflatten(tree, [normalise(leaf[0]) for leaf in leaves])
        self._blocks.begin(rows, task, first)
        row = 0 if rows.private else task.first
        for at, (column, leaf) in enumerate(zip(rows.columns, leaves, strict=True)):
            if column is None:
                rows.extras[at].update(enumerate(leaf, task.first))
            else:
                column[row : row + task.rows] = leaf
        return True


def _is_number(element: Any) -> bool:
    """Return True for a scalar that owns its value; a struct is a view of memory that may be filled again."""
    return isinstance(element, np.generic) and not isinstance(element, np.void)


def _put_scalars(rows: TaskOutput, task: Task, scalars: list[Any], write: Any) -> Any:
    column = rows.columns[0]
    assert column is not None
    # Only for these dtypes: a type may have several others.
    if len(set(map(type, scalars))) == 1 and column.dtype in NUMBERS:
        first = 0 if rows.private else task.first
        column[first : first + len(scalars)] = scalars
        return write
    for k, element in enumerate(scalars, task.first):
        if not write(k, element):
            write = scatter(rows, task.first, k)
            write(k, element)
    return write
