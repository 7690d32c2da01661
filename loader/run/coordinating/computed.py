"""The tasks of a pipeline's stages: ranges of a block's rows, and chunks of inner datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.chains import run_of
from tundish.loader.protocols.items import ref_of
from tundish.loader.protocols.lineage import add_origin, describe_origin, replayed_elements
from tundish.loader.protocols.pieces import Pieces, refs_only
from tundish.loader.protocols.raised import node_of
from tundish.loader.protocols.rows import as_ref
from tundish.loader.run.coordinating.answers import add, copy_rows, in_slot
from tundish.loader.run.coordinating.memory import TAIL_BYTES
from tundish.loader.run.coordinating.placing import placing
from tundish.loader.run.coordinating.tasks import Tasks
from tundish.loader.run.evaluating.evaluators import compile_values
from tundish.loader.run.pool.peers import Job
from tundish.loader.run.stages.stage import TASK_S
from tundish.loader.run.wire.messages import (
    EXTRA,
    EXTRA_IN_SLOT,
    NOT_OPENED,
    ROWS_INLINE,
    STREAM_END,
    ItemsForm,
    MessageKind,
    Task,
)
from tundish.loader.run.wire.telling import roots_of_all, tell_all
from tundish.loader.run.wire.unreadable import UnreadableInputError, unsendable
from tundish.shm.layout import Encoded, Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tundish.loader.protocols.block import Block
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.coordinating.memory import Memory
    from tundish.loader.run.stages.stage import Stage
    from tundish.loader.run.wire.messages import Done
    from tundish.shm.frames import Placing

_new = tuple.__new__
"""Makes a named tuple without the call of a Python function that its class makes."""


class ComputedTasks(Tasks):
    """The tasks of a stage that computes elements.

    Parameters
    ----------
    context : Context
        The iterator's context.
    node : Operator
        The last node that the stage computes.
    base : Operator
        The node whose items are the stage's input.
    pass_ : int
        The number of `base`'s pass.
    gathers : bool
        True if the stage computes nothing: it gathers rows that lie in shared memory to a batch, at home.
    home : bool
        True if only workers of this machine may do them.
    """

    _sizes = True
    """True if the size of a row is learnt from layouts."""

    def __init__(
        self,
        context: Context,
        node: Operator,
        base: Operator,
        pass_: int,
        *,
        gathers: bool = False,
        home: bool = False,
    ) -> None:
        self._context, self._node, self._base, self._pass = context, node, base, pass_
        self._gathers, self._home = gathers, home

    @property
    def definition(self) -> tuple[int, int, int]:
        """Return the stage's definition as it is sent to workers."""
        index = self._context.index
        return index(self._node), index(self._base), self._pass

    # -- asking --------------------------------------------------------------------------------

    def cut(self, block: Block, memory: Memory, quota: int, workers: int) -> list[Job]:
        firsts = range(0, block.total, rows_per_task(block.stage, block.total, workers))
        told = 0 if isinstance(block.refs, range) else 8 * min(firsts.step, block.total)
        if self._are_plain(block) and told <= TAIL_BYTES:
            return self._tasks(block, memory, firsts, quota)
        return self._cut(block, memory, firsts, quota)

    def _cut(self, block: Block, memory: Memory, firsts: range, quota: int) -> list[Job]:
        """Cut rows into tasks; if an item cannot be encoded, cut its task into rows, so that only its row is an error."""
        jobs: list[Job] = []
        for at in firsts:
            stop = min(at + firsts.step, firsts.stop)
            try:
                jobs += self._tasks(block, memory, range(at, stop, firsts.step), quota)
            except Exception as error:  # noqa: BLE001 - of a file, or of functions that are run again
                if stop - at == 1:
                    self.fail(block, at, 1, error)
                else:
                    jobs += self._cut(block, memory, range(at, stop), quota)
        return jobs

    def _are_plain(self, block: Block) -> bool:
        """Return True if a block's items are sent as numbers, whose encoding cannot fail in a message."""
        refs = block.refs
        return isinstance(refs, range) or (
            isinstance(refs, np.ndarray) and not self._context.replays
        )

    def _tasks(self, block: Block, memory: Memory, firsts: range, quota: int) -> list[Job]:
        """Make the tasks that begin with these rows; the step between them is a task's number of rows."""
        stage, refs = block.stage, block.refs
        kind, start, step, tail = ItemsForm.ENCODED, 0, 0, b""
        packed = None
        if isinstance(refs, range):
            kind, step = ItemsForm.RANGE, refs.step
        elif self._are_plain(block):
            kind = ItemsForm.INDICES
            packed = refs[firsts.start : firsts.stop].astype(np.int64).tobytes()
        slot = memory.slot_of(block)
        have, row_s = memory.had_by(block), stage.pace.row_s or TASK_S
        may = max(have, quota)
        jobs = []
        for at in firsts:
            rows = min(firsts.step, firsts.stop - at)
            items: Sequence[Any] = ()
            held: list[int] = []
            if kind is ItemsForm.RANGE:
                start = refs[at]
            elif packed is not None:
                begin = 8 * (at - firsts.start)
                tail, held = memory.told(packed[begin : begin + 8 * rows])
            else:
                items = refs[at : at + rows]
                if not isinstance(refs, Pieces):
                    items = [as_ref(x) for x in items]
                tail, held = self._encoded(items, memory)
            fields = (
                MessageKind.TASK, kind, stage.number, block.number, slot, at, rows, block.total, have, may,
                start, step, len(tail),
            )  # fmt: skip
            job = Job(
                _new(Task, fields), tail, block, held=held, cost=rows * row_s, home=self._home
            )
            if items:
                job.roots = roots_of_all(items)
                job.home = self._home or (self._gathers and bool(job.roots))
            jobs.append(job)
        return jobs

    def by_value(self, job: Job, memory: Memory) -> bytes:
        if not job.roots:
            return memory.by_value(job.tail)
        return b"\0" + self._piece(self._items(job), by_value=True).to_bytes()

    def _items(self, job: Job) -> Sequence[Any]:
        """Return the items that a task was sent with."""
        refs, first = job.block.refs, job.task.first
        items: Sequence[Any] = refs[first : first + job.task.rows]
        return items if isinstance(refs, Pieces) else [as_ref(x) for x in items]

    def _encoded(self, items: Sequence[Any], memory: Memory) -> tuple[bytes, list[int]]:
        """Encode items as a tail, or as a tail that names the slot they were written to."""
        return memory.told(self._piece(items))

    def _piece(self, items: Sequence[Any], *, by_value: bool = False) -> Encoded:
        captured: dict[Any, Any] = {}
        if self._context.replays:
            context = self._context
            for item in items:
                for node, p, n in replayed_elements(self._base, item, self._pass):
                    captured[context.index(node), p, n] = context.captured_value(node, p, n)
        told = tell_all(items, by_value=by_value)
        try:
            return Encoded((told, captured))
        except Exception as problem:
            if len(items) > 1:  # they are tried one by one
                raise
            origin = self._origin_of(items[0])
            what = f"{origin}, an argument of {self._labels()},"
            error = unsendable(what, (told, captured), problem, "to a worker")
            raise add_origin(error, origin, "before it was sent to a worker") from None

    # -- what workers answer -------------------------------------------------------------------

    def place(self, job: Job, done: Done, layout: Layout | None, memory: Memory) -> Placing | None:
        block = job.block
        if layout is None or block.layout not in (None, layout):
            return None
        spans = layout.spans(done.first, done.rows)
        root = memory.rows_of(job, spans, layout.nbytes) if done.nbytes else None
        if root is None:
            block.layout = layout
            if block.root is None:
                block.root = np.empty(layout.nbytes, np.uint8)
            root = block.root
        return placing(done, root, spans)

    def take_in(
        self, job: Job, done: Done, layout: Layout | None, tail: memoryview, memory: Memory
    ) -> None:
        block, single = job.block, done.rows == job.block.total
        block.stage.window = 0  # to be computed again
        if block.layout is None:
            block.layout = layout
        elif layout is not None and layout is not block.layout and layout != block.layout:
            block.mixed = True
        rows_size = 0
        # Rows from a worker without this memory; others write them to the slot.
        sent = bool(done.nbytes) and not done.flags & EXTRA_IN_SLOT
        if layout is not None and done.flags & ROWS_INLINE:
            spans = layout.spans(done.first, done.rows)
            rows_size = sum(n for _, n in spans)
            if not block.mixed:
                root = memory.rows_of(job, spans, layout.nbytes) if sent else None
                copy_rows(block, root, spans, tail[:rows_size])
        if done.nbytes and (sent or not done.flags & ROWS_INLINE):
            block.nbytes = max(block.nbytes, done.nbytes)
        if done.flags & EXTRA:
            if done.flags & EXTRA_IN_SLOT:
                add(block, in_slot(block, done, layout, memory))
            else:
                add(block, bytearray(tail[rows_size:]))
        if block.elements and not single:
            block.mixed = True
        block.left -= done.rows

    def unreadable(self, job: Job, error: Exception) -> BaseException:
        if not isinstance(error, UnreadableInputError):
            add_origin(error, self._origin(job), "as it was unpickled in the consumer")
            return error
        where = f"as it was unpickled in a worker, for {self._labels()}"
        return add_origin(error.cause, self._origin(job), where)

    def completed(self, block: Block) -> None:
        meter = block.stage.meter
        meter.made += block.total
        meter.nbytes += block.nbytes
        for error in block.errors.values():
            label = node_of(error, meter.name)
            meter.failed[label] = meter.failed.get(label, 0) + 1
        for told in block.told:
            self._context.watch.absorb(told)
        block.told = []
        if block.layout is not None and self._sizes:
            block.stage.pace.row_nbytes = block.layout.row_nbytes
        block.clean = block.layout is not None and not (
            block.drops or block.errors or block.events or block.elements or block.notes
        )
        if isinstance(block.refs, Pieces):
            block.refs = refs_only(block.refs)
        elif isinstance(block.refs, list):
            # What the items were made of is not needed any more, and may hold slots.
            block.refs = [ref_of(as_ref(item)) for item in block.refs]

    # -- deaths --------------------------------------------------------------------------------

    def died(self, job: Job) -> int | None:
        return super().died(job) if job.task.rows == 1 else None

    def blame(self, job: Job, error: Callable[[str], BaseException]) -> BaseException:
        origin = self._origin(job)
        return add_origin(error(f"{origin} in {self._labels()}"), origin, "in a worker")

    def _labels(self) -> str:
        """Return the names of the operators whose functions are called."""
        called = [n for n in reversed(run_of(self._node)) if n.calls] or [self._node]
        return ", ".join(map(self._context.label, called))

    def _origin(self, job: Job) -> str:
        return self._origin_of(job.block.refs[job.task.first])

    def _origin_of(self, item: Any) -> str:
        _, identity = compile_values(self._node, self._context, no_inner)
        return describe_origin(*identity(ref_of(as_ref(item)), self._pass))


class StreamTasks(ComputedTasks):
    """The tasks of a stage of inner datasets: each reads the next elements of one of them."""

    _sizes = False  # `chunk_done` is given the size of a chunk

    def _cut(self, block: Block, memory: Memory, firsts: range, quota: int) -> list[Job]:
        stream, stage = block.inputs, block.stage
        try:
            tail, held = self._encoded([stream.item], memory)
        except Exception as error:  # noqa: BLE001 - it cannot be opened: it gives one error and ends
            block.gone = True
            block.drops.update(range(1, block.total))
            block.left = 1
            self.fail(block, 0, 1, error)
            return []
        slot = memory.slot_of(block)
        have, rows = memory.had_by(block), block.total
        fields = (
            MessageKind.TASK, ItemsForm.STREAM, stage.number, block.number, slot, 0, rows, rows, have,
            max(have, quota), stream.number, block.refs.first, len(tail),
        )  # fmt: skip
        cost = rows * (stage.pace.row_s or TASK_S)
        job = Job(
            _new(Task, fields),
            tail,
            block,
            held=held,
            cost=cost,
            prefer=stream.peer,
            home=self._home,
        )
        job.roots = roots_of_all([stream.item])
        return [job]

    def take_in(
        self, job: Job, done: Done, layout: Layout | None, tail: memoryview, memory: Memory
    ) -> None:
        super().take_in(job, done, layout, tail, memory)
        block = job.block
        rows = done.rows - len(block.drops)
        block.stage.meter.rows -= len(block.drops)  # rows after the end were not computed
        block.drops.clear()
        block.gone = bool(done.flags & NOT_OPENED)
        block.inputs.peer = job.prefer
        ended = bool(done.flags & STREAM_END)
        block.stage.chunk_done(block, max(rows, 0), len(tail) + done.nbytes, ended=ended)

    def unreadable(self, job: Job, error: Exception) -> BaseException:
        if isinstance(error, UnreadableInputError):
            job.block.gone = True  # it cannot be opened: it gives no elements
        return super().unreadable(job, error)

    def fail(self, block: Block, first: int, rows: int, error: BaseException) -> None:
        super().fail(block, first, rows, error)
        block.stage.chunk_done(block, rows, 0, ended=block.gone)

    def died(self, job: Job) -> int | None:
        stream = job.block.inputs
        stream.deaths += job.task.rows == 1
        return stream.deaths if job.task.rows == 1 else None

    def blame(self, job: Job, error: Callable[[str], BaseException]) -> BaseException:
        # A dataset that cannot be opened, for the first time or again, gives no more elements.
        job.block.gone = job.progress is None
        return super().blame(job, error)

    def _items(self, job: Job) -> Sequence[Any]:
        return [job.block.inputs.item]

    def _origin_of(self, item: Any) -> str:
        return f"the dataset made of {ref_of(as_ref(item))}"

    def _origin(self, job: Job) -> str:
        block = job.block
        what = "the opening" if block.gone else f"element {block.refs.first}"
        return f"{what} of the dataset made of {block.refs.outer}"


def rows_per_task(stage: Stage, total: int, workers: int) -> int:
    """Return the number of rows of a block in one task, given the number of workers."""
    if stage.ragged:
        return total
    if stage.pace.row_s is None:
        return max(1, total // (4 * workers))
    # The time of a row is wall time, which is too long on a busy machine.
    rows = max(stage.rows_in_task(workers), stage.group // (4 * workers))
    if stage.most_nbytes and stage.pace.row_nbytes:
        rows = max(1, min(rows, stage.most_nbytes // stage.pace.row_nbytes))
    count = max(1, round(total / rows))
    return -(-total // count)


def no_inner(*_: Any) -> Machine:
    """Stand in for the function that opens inner datasets, where none is opened."""
    raise AssertionError("identities open nothing")
