"""Decoding of a task's inputs, and the layout of its rows, which follows from the first element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.gaps import clear
from tundish.loader.protocols.task_inputs import kept, open_all
from tundish.loader.protocols.writer import writer
from tundish.loader.run.wire.mail import input_of
from tundish.loader.run.wire.messages import (
    INLINE_BLOCK,
    NO_SLOT,
    ItemsForm,
    MessageKind,
    Task,
)
from tundish.loader.run.wire.unreadable import UnreadableInputError
from tundish.loader.run.working.writing import SlotTooSmall, TaskOutput
from tundish.shm.layout import Encoded, Layout, decode
from tundish.spec import flatten, leaf_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.protocols.context import Context
    from tundish.loader.run.wire.mail import Outbox
    from tundish.shm.memory import Arena


_MOST_LAYOUTS = 256
"""The largest number of layouts that a worker keeps: elements may all differ in shape."""


class Blocks:
    """Lays out the blocks whose rows a worker computes, and sends a layout when it is not among the last ones.

    Parameters
    ----------
    arena : Arena or None
        None without shared memory: everything is sent over the channel.
    outbox : Outbox
        Sends layouts.
    """

    def __init__(self, arena: Arena | None, outbox: Outbox) -> None:
        self._arena, self._outbox = arena, outbox
        self._layouts: dict[tuple[Any, ...], tuple[int, Layout]] = {}
        self._warm = np.empty(0, np.uint8)

    def begin(self, rows: TaskOutput, task: Task, element: Any) -> Any:
        """Lay out a block by its first element; return a function that writes an element."""
        leaves, tree = flatten(element)
        keys = tuple([leaf_key(leaf) for leaf in leaves])
        known = self._layouts.get((tree, keys, task.total))
        if known is None:
            layout = Layout(tree, keys, task.total)
            if len(self._layouts) == _MOST_LAYOUTS:
                self._layouts.clear()  # numbers begin at 0 again, and replace the old ones at the coordinator
            number = len(self._layouts)
            self._layouts[tree, keys, task.total] = known = (number, layout)
            # A namedtuple's class may be one that travels by value.
            tail = Encoded((tree, keys, task.total)).to_bytes()
            self._outbox.tell(MessageKind.LAYOUT, number, tail)
        rows.number, layout = known
        rows.layout = layout
        rows.sent = layout.nbytes <= INLINE_BLOCK
        if task.slot == NO_SLOT and not rows.sent and self._arena is not None:
            raise SlotTooSmall(layout.nbytes)  # there was no slot left
        rows.sent = rows.sent or task.slot == NO_SLOT
        rows.private = self._arena is None or rows.sent
        if rows.private:
            if not rows.sent and layout.nbytes > task.may:  # the coordinator puts them into a slot
                raise SlotTooSmall(layout.nbytes)
            # Only this task's rows, as a block of their own.
            own = layout if task.rows == task.total else Layout(tree, keys, task.rows)
            memory = self._memory(own.nbytes)
            rows.columns = own.columns(memory)
            rows.parts = [memory[at : at + nbytes] for at, nbytes in own.spans(0, task.rows)]
            shift = task.first
            mine = slice(None)
        else:
            assert self._arena is not None
            self._make_room(self._arena, task, layout)
            rows.columns = layout.columns(self._arena.root(task.slot, layout.nbytes))
            shift = 0
            mine = slice(task.first, task.first + task.rows)
        for at, column in enumerate(rows.columns):
            if column is None:
                rows.extras[at] = {}
            elif column.dtype.kind == "V":  # only these: slicing every column costs time
                clear(column[mine])
        return writer(
            tree, keys, [rows.extras.get(at, c) for at, c in enumerate(rows.columns)], shift
        )

    def _memory(self, nbytes: int) -> np.ndarray:
        """Return memory for rows that are sent before the next task: fresh pages cost more than a copy."""
        if nbytes <= INLINE_BLOCK:
            return np.empty(nbytes, np.uint8)
        if len(self._warm) < nbytes:
            self._warm = np.empty(nbytes, np.uint8)
        return self._warm[:nbytes]

    def _make_room(self, arena: Arena, task: Task, layout: Layout) -> None:
        if layout.nbytes > task.may:
            raise SlotTooSmall(layout.nbytes)
        if layout.nbytes > task.have:
            for offset, nbytes in layout.spans(task.first, task.rows):
                arena.allocate(task.slot, offset, nbytes)


class Inputs:
    """Decodes the items of tasks.

    Parameters
    ----------
    arena : Arena or None
        The memory that contains some of them.
    context : Context
        Receives elements that come with them because they need a replay.
    """

    def __init__(self, arena: Arena | None, context: Context) -> None:
        self._arena, self._context = arena, context

    def of(self, task: Task, tail: bytes | memoryview) -> Sequence[Any]:
        """Return the items of a task."""
        if task.items == ItemsForm.RANGE:
            return range(task.start, task.start + task.rows * task.step, task.step)
        if task.items == ItemsForm.INDICES:
            return np.frombuffer(input_of(tail, self._arena), np.int64).tolist()  # type: ignore[no-any-return]
        return self.decoded(tail)

    def decoded(self, tail: bytes | memoryview, *, private: bool = False) -> list[Any]:
        """Return the items of a tail, or of the slot that it names; with `private`, as copies.

        Raises
        ------
        UnreadableInputError
            An item cannot be unpickled.
        """
        # A copy: functions may change their arguments, and the task may have to run again.
        piece = bytearray(input_of(tail, self._arena))
        try:
            items, captured = decode(piece)
        except Exception as error:
            raise UnreadableInputError(error) from error
        self._context.captured.update(captured)
        opened = open_all(items, self._arena)
        return [kept(item) for item in opened] if private else opened
