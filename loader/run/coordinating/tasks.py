"""The tasks that a block is cut into, and what a worker is told of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tundish.loader.protocols.lineage import replayed_elements
from tundish.loader.protocols.pieces import Pieces
from tundish.loader.protocols.rows import as_ref
from tundish.loader.run.pool.peers import Job
from tundish.loader.run.stages.pace import TASK_S
from tundish.loader.run.stages.streams import StreamStage
from tundish.loader.run.wire.messages import NO_SLOT, POINTER, Items, Kind, Task
from tundish.loader.run.wire.telling import roots_of_all, tell_all
from tundish.shm.layout import Encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.protocols.block import Block
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.coordinating.memory import Memory
    from tundish.loader.run.coordinating.planner import AnyStage

_TAIL_BYTES = 32768
_new = tuple.__new__
"""Makes a named tuple without the call of a Python function that its class makes."""


class Tasks:
    """Makes the tasks of an iterator's blocks.

    Parameters
    ----------
    context : Context
        Of the iterator.
    definitions : Definitions
        Of its stages.
    memory : Memory
        What large inputs are written to.
    """

    def __init__(self, context: Context, definitions: Definitions, memory: Memory) -> None:
        self._context, self._definitions, self._memory = context, definitions, memory
        self._replays = any(n.replays for n in context.nodes)

    def are_plain(self, block: Block) -> bool:
        """Return True if a block's items are told as numbers: then nothing can fail."""
        refs = block.refs
        return isinstance(refs, range) or (isinstance(refs, np.ndarray) and not self._replays)

    def tasks(self, block: Block, firsts: range, have: int, quota: int) -> list[Job]:
        """The tasks of some rows of a block.

        Parameters
        ----------
        block : Block
            It has its slot, if there is shared memory.
        firsts : range
            The first row of each; its step is how many rows a task has.
        have, quota : int
            How many bytes the slot has, and may have.
        """
        stage, refs = block.stage, block.refs
        kind, start, step, tail = Items.ENCODED, 0, 0, b""
        packed = None
        if isinstance(refs, range):
            kind, step = Items.RANGE, refs.step
        elif self.are_plain(block):
            kind, packed = Items.INDICES, refs.astype(np.int64).tobytes()
        elif isinstance(stage, StreamStage):
            kind, start, step = Items.STREAM, block.inputs.number, refs.first
        slot = NO_SLOT if block.slot is None else block.slot
        may, row_s = max(have, quota), stage.pace.row_s or TASK_S
        jobs = []
        for at in firsts:
            rows = min(firsts.step, firsts.stop - at)
            items: Sequence[Any] = ()
            held: list[int] = []
            if kind is Items.RANGE:
                start = refs[at]
            elif packed is not None:
                tail = packed[8 * at : 8 * (at + rows)]
            else:
                if kind is Items.STREAM:
                    items = [block.inputs.item]
                elif isinstance(refs, Pieces):
                    items = refs[at : at + rows]
                else:
                    items = [as_ref(x) for x in refs[at : at + rows]]
                tail, held = self._encoded(stage, items)
            fields = (
                Kind.TASK, kind, stage.number, block.number, slot, at, rows, block.total, have, may,
                start, step, len(tail),
            )  # fmt: skip
            job = Job(_new(Task, fields), tail, block, held=held, cost=rows * row_s)
            if items:
                job.roots = roots_of_all(items)
            if kind is Items.STREAM:
                job.prefer = block.inputs.peer
            jobs.append(job)
        block.flying += len(jobs)
        return jobs

    def order(self, block: Block) -> Job:
        """A writer's order."""
        stage, items = block.stage, block.refs
        tail, held = self._encoded(stage, items)
        task = Task(
            Kind.TASK, Items.ORDER, stage.number, block.number, NO_SLOT, 0, 1, 1, 0, 0, 0, 0, len(tail)
        )  # fmt: skip
        block.flying += 1
        roots = roots_of_all(items)
        return Job(task, tail, block, is_order=True, held=held, roots=roots)

    def _encoded(self, stage: AnyStage, items: Sequence[Any]) -> tuple[bytes, list[Any]]:
        """Items as a tail, or a tail that names the slot they were written to."""
        captured: dict[Any, Any] = {}
        if self._replays:
            _, base, pass_ = self._definitions[stage.number]
            for item in items:
                for node, p, n in replayed_elements(base, item, pass_):
                    value = self._context.captured_value(node, p, n)
                    captured[self._context.index(node), p, n] = value
        piece = Encoded((tell_all(items), captured))
        memory = self._memory
        if memory.ring is None or piece.nbytes <= _TAIL_BYTES:
            return b"\0" + piece.to_bytes(), []
        slot = memory.write(piece)
        return b"\1" + POINTER.pack(slot, piece.nbytes), [slot]


def rows_per_task(stage: AnyStage, total: int, workers: int) -> int:
    """Return how many of a block's rows are one task, for so many workers."""
    if isinstance(stage, StreamStage) or stage.ragged:
        return total
    if stage.pace.row_s is None:
        return max(1, total // (4 * workers))
    # What a row takes is wall time: on a busy machine it says too much.
    rows = max(stage.pace.rows_in(TASK_S), stage.group // (4 * workers))
    count = max(1, round(total / rows))
    return -(-total // count)


def tasks_per_block(stage: AnyStage, workers: int) -> int:
    """Return into how many tasks a block of a stage is cut, for so many workers."""
    if isinstance(stage, StreamStage) or stage.group == 1:
        return 1
    return max(1, -(-stage.group // rows_per_task(stage, stage.group, workers)))


class Definition(NamedTuple):
    """The definition of a stage: what it computes.

    Parameters
    ----------
    node : Operator
        Its last one.
    base : Operator
        Whose items it takes.
    pass_ : int
        Of `base`.
    """

    node: Operator
    base: Operator
    pass_: int


class Definitions:
    """The stages that there are; the number of one that is done with is given again."""

    def __init__(self) -> None:
        self._defined: dict[int, Definition] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._defined)

    def __getitem__(self, number: int) -> Definition:
        return self._defined[number]

    def add(self, definition: Definition) -> int:
        """A number for a new stage."""
        number = self._free.pop() if self._free else len(self._defined)
        self._defined[number] = definition
        return number

    def remove(self, number: int) -> None:
        """Remove a stage that is done with."""
        del self._defined[number]
        self._free.append(number)
