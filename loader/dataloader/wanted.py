"""Requested batches: each is a block of its own with a single task, which is never cut.

A worker that dies costs nothing but time: its batches are made again elsewhere. For the batch that it was making,
the worker then reports each sample that it begins, so that a sample that kills is named.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tundish.loader.dataloader.wire import pack_keys
from tundish.loader.protocols.failure import loads_exception
from tundish.loader.protocols.raised import carried
from tundish.loader.run.coordinating.placing import placing
from tundish.loader.run.coordinating.tasks import Tasks
from tundish.loader.run.pool.peers import Job
from tundish.loader.run.stages.stage import Stage
from tundish.loader.run.wire.messages import (
    EXTRA,
    EXTRA_IN_SLOT,
    ROWS_INLINE,
    STREAM_END,
    ItemsForm,
    MessageKind,
    Task,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from tundish.loader.dataloader.epoch import Mark
    from tundish.loader.dataloader.flavour import Finish
    from tundish.loader.dataloader.recipe import Recipe
    from tundish.loader.run.coordinating.coordinator import Coordinator
    from tundish.loader.run.coordinating.memory import Memory
    from tundish.loader.run.starting.workerprocess import Exit
    from tundish.loader.run.wire.messages import Done
    from tundish.loader.watch.watch import StageMeter
    from tundish.shm.frames import Placing
    from tundish.shm.layout import Layout

NO_BATCH = -1
"""The number of an error that a sampler has raised: it stands for no batch."""

_QUICK_S = 0.0005
_INTEGERS = {int}


@dataclass(eq=False)
class Wanted:
    """A batch that was requested from workers, and its result.

    Parameters
    ----------
    batch : int
        The number of the batch in the epoch.
    keys : object
        The keys of its samples; None for an iterable dataset.
    position : int
        The position of its first sample in the epoch; for an iterable, the batch's number in its replica.
    seat : int or None
        The only worker that may make it.
    samples : int
        The number of keys.
    mark : Mark or None
        The sampler's mark after it.
    valid : numpy.ndarray or None
        Which of its samples are not padding, if the sampler tells.

    Attributes
    ----------
    message : bytes
        The result of `write_batch`.
    root : numpy.ndarray or None
        The leased slot.
    error : BaseException or None
        The error in place of a batch.
    ended : bool
        True if the worker's replica has ended, so that the message only has its state.
    left : int
        1 until it has been made.
    """

    batch: int
    keys: Any
    position: int
    seat: int | None
    samples: int
    mark: Mark | None = None
    valid: np.ndarray | None = None

    message: bytes = field(init=False, default=b"")
    root: np.ndarray | None = field(init=False, default=None)
    error: BaseException | None = field(init=False, default=None)
    ended: bool = field(init=False, default=False)
    left: int = field(init=False, default=1)

    # What the coordinator keeps of a block.
    total: ClassVar = 1
    mixed: ClassVar = False
    stage: Any = field(init=False, default=None)
    number: int = field(init=False, default=0)
    slot: int | None = field(init=False, default=None)
    leased: bool = field(init=False, default=False)
    nbytes: int = field(init=False, default=0)
    flying: int = field(init=False, default=0)
    reserved: int = field(init=False, default=0)

    def evict(self) -> bool:
        """Move the batch to private memory, to free its slot."""
        if self.root is None or self.slot is None:
            return False
        self.root = self.root.copy()
        return True


class BatchStage(Stage):
    """The stage of an epoch's batches, kept for all epochs of the same workers.

    Parameters
    ----------
    owner : Coordinator
        The coordinator, which hands them out.
    tasks : BatchTasks
        The tasks that compute its blocks.
    meter : StageMeter
        Counts the batches as they are made.
    window : int
        The number of batches that may be in flight or ready.
    """

    def __init__(
        self, owner: Coordinator, tasks: BatchTasks, meter: StageMeter, window: int
    ) -> None:
        super().__init__(-1, tasks, meter)
        self._owner, self.window = owner, window

    def begin(self, epoch: dict[str, Any], meter: StageMeter) -> None:
        """Begin an epoch, dropping the last one's requests."""
        self._owner.forget(self)
        self.number, self.meter = self._owner.define(0, epoch, meter.name), meter
        self._owner.keep(self)

    @property
    def quick(self) -> bool:
        """True if a batch takes less time than a message is worth."""
        return self.pace.row_s is not None and self.pace.row_s < _QUICK_S

    def ask(self, batches: list[Wanted], *, by_two: bool = False) -> None:
        """Request batches; with `by_two`, two in one message to one worker."""
        owner, jobs = self._owner, []
        for wanted in batches:
            wanted.stage, wanted.number = self, owner.next_block()
            jobs += owner.issue(wanted)
        if by_two and owner.pool is not None:
            peers = owner.pool.by_load()
            for at, job in enumerate(jobs):
                job.prefer = peers[at // 2 % len(peers)] if peers else None
        owner.moved = False
        owner.feed()


class BatchTasks(Tasks):
    """The tasks of a loader: one a batch.

    Parameters
    ----------
    recipe : Recipe
        The recipe for reading the dataset.
    finish : Finish or None
        Registers slots before they are leased.
    """

    block = "a batch"
    advice = "set TUNDISH_BUDGET, or use smaller batches"

    def __init__(self, recipe: Recipe, finish: Finish | None) -> None:
        self.makes_again, self._finish = recipe.makes_again, finish

    def cut(self, block: Wanted, memory: Memory, quota: int, workers: int) -> list[Job]:
        try:
            kind, keys = _encoded(block.keys)
            tail, held = memory.told(keys)
        except Exception as error:  # noqa: BLE001 - of keys that cannot be sent
            self.fail(block, 0, 1, error)
            return []
        have = memory.had_by(block)
        task = Task(
            MessageKind.TASK,
            kind,
            block.stage.number,
            block.number,
            memory.slot_of(block),
            0,
            1,
            0,
            have,
            max(have, quota),
            block.batch,
            block.position,
            len(tail),
        )
        return [Job(task, tail, block, cost=1.0, seat=block.seat, held=held)]

    def place(self, job: Job, done: Done, layout: Layout | None, memory: Memory) -> Placing | None:
        root = self._root(job, done, memory)
        return None if root is None else placing(done, root, [(0, done.nbytes)])

    def _root(self, job: Job, done: Done, memory: Memory) -> np.ndarray | None:
        """Return the slot for a batch that was made by a worker without access to this memory."""
        have = job.task.have
        return memory.rows_of(job, [(have, done.nbytes - have)], done.nbytes)

    def take_in(
        self, job: Job, done: Done, layout: Layout | None, tail: memoryview, memory: Memory
    ) -> None:
        block, ring, meter = job.block, memory.ring, job.block.stage.meter
        if done.flags & ROWS_INLINE:
            root = self._root(job, done, memory)
            assert root is not None
            root[:] = tail[: done.nbytes]
            tail = tail[done.nbytes :]
        meter.nbytes += done.nbytes + len(tail)
        if ring is not None and block.slot is not None:
            ring.grew(block.slot, done.nbytes)
            if done.flags & EXTRA_IN_SLOT:
                block.nbytes = done.nbytes
                if self._finish is not None:
                    self._finish.lend(block.slot, ring.allocated(block.slot))
        if done.flags & EXTRA:
            self.fail(block, 0, 1, carried(loads_exception(tail)))
        else:
            block.message, block.ended = bytes(tail), bool(done.flags & STREAM_END)
            block.left = 0

    def fail(self, block: Wanted, first: int, rows: int, error: BaseException) -> None:
        block.error, block.left = error, 0

    def again(self, job: Job) -> None:
        job.task = job.task._replace(total=1)  # with each sample told before it is made

    def blame(self, job: Job, error: Callable[[str], BaseException]) -> BaseException:
        return error(_named(job.block, job.progress))

    def ended(self, how: Exit) -> str:
        """Describe how a worker ended, in the words of torch's logs."""
        if how.code < 0:
            return f"DataLoader worker (pid {how.pid}) is killed by signal: {how.how}"
        return f"DataLoader worker (pid(s) {how.pid}) exited unexpectedly: {how.how}"


def _encoded(keys: Any) -> tuple[ItemsForm, bytes]:
    if isinstance(keys, list) and set(map(type, keys)) <= _INTEGERS:
        try:
            return ItemsForm.INDICES, array("q", keys).tobytes()
        except OverflowError:
            pass
    return ItemsForm.ENCODED, pack_keys(keys)


def _named(wanted: Wanted, at: int | None) -> str:
    if wanted.keys is None and wanted.seat is not None:
        return f"batch {wanted.position} of worker {wanted.seat}"
    if at is None or not isinstance(wanted.keys, list):
        shown = repr(wanted.keys)
        return f"the batch of indices {shown if len(shown) < 200 else shown[:200] + '...'}"
    return f"the sample of index {wanted.keys[at]!r}"
