"""A worker's answers: computed rows, or a request for a larger slot."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.protocols.lineage import add_origin
from tundish.loader.run.wire.messages import (
    EXTRA,
    EXTRA_IN_SLOT,
    INLINE_BLOCK,
    INLINE_EXTRA,
    NO_LAYOUT,
    NO_SLOT,
    NOT_OPENED,
    ROWS_INLINE,
    MessageKind,
    Task,
    align,
    share_offset,
)
from tundish.loader.run.wire.unreadable import unsendable
from tundish.loader.run.working.writing import SlotTooSmall, TaskOutput
from tundish.shm.layout import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from tundish.loader.protocols.context import Context
    from tundish.loader.run.wire.mail import Outbox
    from tundish.loader.run.working.stage import StageEvaluator
    from tundish.shm.layout import Layout
    from tundish.shm.memory import Arena

_TELL_FIRST_S, _TELL_EVERY_S = 0.01, 0.2
"""When a worker first reports its measured times, and the longest pause between reports; early, for short runs."""
_LATER = 1.25


class Answers:
    """Answers tasks.

    Parameters
    ----------
    arena : Arena or None
        Receives what does not fit into a message.
    outbox : Outbox
        Sends the answers.
    context : Context
        The iterator's context, whose counts and times are sent with the rows.
    cpu : callable
        Returns how long this worker has used a core.
    """

    def __init__(
        self,
        arena: Arena | None,
        outbox: Outbox,
        context: Context,
        *,
        cpu: Callable[[], float],
    ) -> None:
        self._arena, self._outbox = arena, outbox
        self._context, self._cpu = context, cpu
        self._told_at: float | None = None
        self._tell_every_s = _TELL_FIRST_S

    def need(self, task: Task, need: SlotTooSmall, *, after: int = 0) -> None:
        """Report that a task needs a larger slot, or one to itself; and the offset after the only record it has read."""
        flags = EXTRA if need.alone else 0
        self._outbox.answer(MessageKind.NEED, task, flags, nbytes=need.nbytes, encoded=after)

    def done(
        self,
        task: Task,
        rows: TaskOutput,
        began: float,
        cpu: float,
        flags: int,
        *,
        stage: StageEvaluator | None = None,
    ) -> float:
        """Send a task's rows; return how long a core was busy with it.

        Parameters
        ----------
        task : Task
            The task.
        rows : TaskOutput
            Its rows.
        began, cpu : float
            When it began, and the core time used by then.
        flags : int
            Flags of the answer.
        stage : StageEvaluator, optional
            The stage, whose name errors have.

        Raises
        ------
        SlotTooSmall
            Leaves outside the columns do not fit into the slot, or without one into a message; nothing has been sent.
        """
        layout, tail = rows.layout, b""
        parts: Sequence[np.ndarray] = ()
        watch = self._context.watch
        if self._told_at is None:
            self._told_at = began
        due = watch.enabled and began - self._told_at > self._tell_every_s
        if due or watch.has_told:
            rows.told = watch.take(timed=due)
            if due:
                self._told_at = began
                self._tell_every_s = min(_TELL_EVERY_S, _LATER * self._tell_every_s)
        if rows.not_opened:
            flags |= NOT_OPENED
        nbytes, number = 0, NO_LAYOUT
        if layout is not None:
            number = rows.number
            if rows.private:
                flags |= ROWS_INLINE
                parts = rows.parts
            if not rows.sent:
                nbytes = layout.nbytes
        encoded = 0
        if rows.has_more:
            flags |= EXTRA
            piece = self._encode(rows, task, stage)
            encoded = piece.nbytes
            if self._arena is None or encoded <= INLINE_EXTRA:
                tail = piece.to_bytes()
            elif task.slot == NO_SLOT:
                if not self._outbox.holds(INLINE_BLOCK + encoded):
                    columns = layout.nbytes if layout is not None else 0
                    raise SlotTooSmall(align(columns) + encoded)  # there was no slot left
                tail = piece.to_bytes()
            else:
                flags |= EXTRA_IN_SLOT
                nbytes = max(nbytes, _write_share(self._arena, task, layout, piece))
        took_s, busy_s = perf_counter() - began, self._cpu() - cpu
        self._outbox.answer(
            MessageKind.DONE,
            task,
            flags,
            tail,
            layout=number,
            took_s=took_s,
            busy_s=busy_s,
            nbytes=nbytes,
            encoded=encoded,
            parts=parts,
        )
        return busy_s

    def _encode(self, rows: TaskOutput, task: Task, stage: StageEvaluator | None) -> Encoded:
        """Encode the elements outside the columns; replace one that cannot be encoded by its error."""
        while True:
            body = (
                rows.drops, rows.errors, rows.events, rows.extras, rows.elements, rows.notes, rows.told
            )  # fmt: skip
            try:
                return Encoded(body)
            except Exception:  # noqa: BLE001 - found and blamed below
                self._blame(rows, task, stage)

    def _blame(self, rows: TaskOutput, task: Task, stage: StageEvaluator | None) -> None:
        parts: list[dict[int, Any]] = list(rows.extras.values())
        if rows.elements is not None:
            parts.append(rows.elements)
        for part in parts:
            for k, value in list(part.items()):
                try:
                    Encoded(value)
                except Exception as problem:  # noqa: BLE001 - it becomes the element's error
                    origin, label = f"row {k}", ""
                    if stage is not None and len(rows.items):
                        origin = stage.origin(rows.items[k - task.first])
                        label = f" of {stage.label}" * bool(stage.label)
                    error = unsendable(f"{origin}{label}", value, problem, "from a worker")
                    rows.errors[k] = dumps_exception(add_origin(error, origin, self._context.where))
                    for other in parts:
                        other.pop(k, None)


def _write_share(arena: Arena, task: Task, layout: Layout | None, piece: Encoded) -> int:
    """Write the encoded part to the slot; return the bytes of it in use, if known."""
    alone = task.rows == task.total
    if alone:
        offset = align(layout.nbytes if layout is not None else 0)
    else:
        offset = share_offset(arena.stride, task.first, task.total)
        end = share_offset(arena.stride, task.first + task.rows, task.total)
        columns = layout.nbytes if layout is not None else 0
        if columns > arena.stride // 2 or piece.nbytes > end - offset:
            raise SlotTooSmall(align(columns) + piece.nbytes, alone=True)
    if (offset + piece.nbytes if alone else piece.nbytes) > task.may:
        raise SlotTooSmall(offset + piece.nbytes if alone else piece.nbytes)
    arena.allocate(task.slot, offset, piece.nbytes)
    start = task.slot * arena.stride + offset
    piece.write(memoryview(arena.map)[start : start + piece.nbytes])
    return offset + piece.nbytes if alone else 0
