"""The coordinator: decides what is computed next, where, and in which order it is delivered.

It lives in the consumer's process and has no thread: everything happens within ``next``. Free
slots are the credits; every decision is private to it and travels as a message, so a worker that
dies costs nothing but time.

::

    machines -> items -> blocks -> tasks  --- channel --->  workers: rows into slots
    deliver in order <- blocks complete  <--- DONE ----
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SharedMemoryError
from tundish.loader.protocols.ownership import COPY_BELOW
from tundish.loader.protocols.raised import is_interrupt
from tundish.loader.run.coordinating.deaths import Deaths, Fate
from tundish.loader.run.coordinating.hedging import Hedging
from tundish.loader.run.coordinating.memory import EVERY_SLOT
from tundish.loader.run.pool.pool import Pool, Totals
from tundish.loader.run.starting.critical import uninterrupted

if TYPE_CHECKING:
    from tundish.loader.run.coordinating.lookahead import LookAhead
    from tundish.loader.run.coordinating.memory import Memory
    from tundish.loader.run.coordinating.planner import AheadRepeated
    from tundish.loader.run.coordinating.tasks import Tasks
    from tundish.loader.run.pool.peers import Job, WorkerSpec
    from tundish.loader.run.stages.stage import Stage
    from tundish.loader.run.starting.workerprocess import Exit
    from tundish.loader.run.watching.ledger import Ledger
    from tundish.loader.run.watching.tracing import Trace
    from tundish.loader.run.wire.messages import Done
    from tundish.loader.watch.stats import Stats
    from tundish.shm.frames import Placing
    from tundish.shm.layout import Layout

_SENT_NBYTES = 8 << 20
"""The most bytes of a task's rows if workers on other machines send some: they keep memory for the rows of one task."""

_MOST_BLOCKS = 2**32 - 1
"""The largest number of a block, after which numbers begin at 1 again: a message has 32 bits for it."""


class Coordinator:
    """Hands out blocks of stages to workers, and receives their answers.

    A stage defines what its blocks are: elements of a pipeline, or a batch of a `DataLoader`.

    Parameters
    ----------
    workers : int
        The number of workers.
    memory : Memory
        The memory for blocks.
    deaths : Deaths
        Decides how often a task is tried again.
    lookahead : LookAhead, optional
        Limits the number of blocks of stages that do not set it themselves.

    Attributes
    ----------
    workers : int
        The number of workers that compute.
    stages : list
        The active stages, the one next to the source first.
    repeats : list
        The repeats whose next pass opens early.
    moved : bool
        True if something was done that may let other stages go on.
    hedging : Hedging
        Chooses the tasks that a second worker does, too, since the first is late.
    pool : Pool or None
        The workers, while there are any.
    owner : int
        The id of the process it was made in.
    """

    def __init__(
        self,
        workers: int,
        memory: Memory,
        deaths: Deaths,
        lookahead: LookAhead | None = None,
    ) -> None:
        self.workers, self.memory = workers, memory
        self.stages: list[Stage] = []
        self.repeats: list[AheadRepeated] = []
        self.moved = False
        self.hedging = Hedging()
        self.pool: Pool | None = None
        self._totals = Totals()
        self.owner = os.getpid()
        self._trace: Trace | None = None
        self._deaths = deaths
        self._lookahead: Any = lookahead
        self._sends = False
        # Numbers of stages: the next one, and unused ones.
        self._numbers, self._free = 0, list[int]()
        self._blocks: dict[int, Any] = {}  # the blocks that are wanted and not complete
        self._next_block = 0
        self._queue: list[Job] = []  # tasks to hand out
        self._deferred: deque[tuple[Job, int]] = deque()  # tasks that wait for this much memory

    def open(
        self, crew: WorkerSpec, trace: Trace | None, *, writers: int = 0, homes: int = 1
    ) -> Pool:
        """Start the workers."""
        self.memory.open()
        self._trace = trace
        self._sends = crew.recruiting is not None
        self.pool = Pool(
            self.workers,
            self.memory.arena,
            crew,
            owner=self,
            writers=writers,
            homes=homes,
            trace=trace,
        )
        self._totals = self.pool.totals
        return self.pool

    def resize(self, workers: int) -> None:
        """Change the number of workers."""
        assert self.pool is not None
        self.pool.resize(workers)
        self.workers = self.pool.size
        if self._trace is not None:
            self._trace("--", 0, "RESIZE", workers=self.workers)
        for stage in self.stages:
            stage.window = 0
        self.feed()

    def tick(self, now: float) -> None:
        """Do periodic work: measure, tune, refill."""
        if self._trace is not None:
            blocks = [b for stage in self.stages for b in stage.queued()]
            self._trace.level(
                ready=sum(not block.left for block in blocks),
                leased=self.memory.leased,
                used=self.memory.used_bytes,
            )
        if self._lookahead is not None and self._lookahead.is_due(now):
            assert self.pool is not None
            self._lookahead.measure(self.stages, self.workers, fresh=self.pool.is_fresh)

    def standing(self, stats: Stats, *, whole: bool = True) -> Stats:
        """Add the state of workers and memory to statistics; with `whole`, also what each worker did."""
        pool, memory = self.pool, self.memory
        return replace(
            stats,
            workers=self.workers,
            cores=stats.cores + (pool.elsewhere if pool else 0),
            pool=pool.measured() if pool and whole else (),
            hedged=self.hedging.count,
            **vars(self._totals),
            copies=memory.copies,
            leased=memory.leased,
            used_bytes=memory.used_bytes,
            budget_bytes=memory.budget,
        )

    def worker_pids(self) -> list[int]:
        """Return the ids of the processes that are known to run."""
        return [] if self.pool is None else self.pool.pids()

    def close(self, *, linger: bool = False) -> None:
        """End the workers at once, and release the memory of blocks. Safe to call twice.

        Parameters
        ----------
        linger : bool, default False
            True to let writers finish their orders.
        """
        pool = self.pool
        if pool is None or os.getpid() != self.owner:
            return
        with uninterrupted():
            self.pool = None
            jobs = pool.jobs()
            there = pool.close(linger=linger)
            waiting = [*jobs, *self._queue, *(job for job, _ in self._deferred)]
            blocks = {id(block): block for block in self._blocks.values()}
            blocks |= {id(job.block): job.block for job in waiting}
            slots = [slot for job in waiting for slot in job.held]
            slots += [b.slot for b in blocks.values() if b.slot is not None and not b.leased]
            self.memory.end(slots, there, jobs if linger else [])
            self._blocks.clear()
            self._queue.clear()
            self._deferred.clear()
            for stage in self.stages:
                stage.meter.gave(*stage.begun())
            self.stages.clear()
            self.repeats.clear()

    # -- stages --------------------------------------------------------------------------------

    def define(self, flag: int, what: Any, name: str) -> int:
        """Return a number for a new stage, whose definition for workers is `what`; `name` is for display."""
        number = self._free.pop() if self._free else self._numbers
        self._numbers = max(self._numbers, number + 1)
        assert self.pool is not None
        self.pool.define(number, flag, what)
        if self._trace is not None:
            self._trace.stage(number, name)
        return number

    def keep(self, stage: Stage) -> None:
        """Register a stage."""
        if self._sends:
            stage.most_nbytes = _SENT_NBYTES
        self.stages.append(stage)

    def retire(self, stage: Stage) -> None:
        """Unregister a stage that has delivered everything."""
        if stage in self.stages:
            self.stages.remove(stage)
            self._free.append(stage.number)

    def forget(self, stage: Stage) -> None:
        """Release what a stage holds, since it will not be read again; later answers are discarded."""
        self.retire(stage)
        with uninterrupted():
            stage.forget()
            for block in [each for each in self._blocks.values() if each.stage is stage]:
                del self._blocks[block.number]
                self.memory.abandon(block)

    # -- going on ------------------------------------------------------------------------------

    def goes_on(self) -> bool:
        """Do the work that needs no worker's answer; return True if there was any."""
        pool = self.pool
        assert pool is not None
        if self.moved:
            self.moved = False
            if self.feed() or self.moved:
                pool.pump(0.0)  # feeding may have taken long: a generator runs in it
                return True
        if pool.expects:
            return False
        if self.feed() or pool.expects:  # memory may have come back from a consumer
            return True
        if not self._deferred:
            raise AssertionError("nothing is being computed and nothing is ready")
        # No memory will be released by itself: it is held by consumers, or by blocks that are ready.
        self.memory.evict()
        job, nbytes = self._deferred.popleft()
        self._grant(job, nbytes, force=True)
        self.moved = True
        return True

    def wait(self, ledger: Ledger, timeout_s: float | None = None) -> None:
        """Wait for workers, at most `timeout_s`, until there is something to do; an incomplete block does not count."""
        pool = self.pool
        assert pool is not None
        pool.idle = False
        ledger.waits_since, waited_s = perf_counter(), 0.0
        try:
            while True:
                pool.pump(timeout_s)
                waited_s += pool.waited_s
                over = timeout_s is not None or self.moved or self._deferred
                if over or not pool.expects:
                    return
        finally:
            ledger.waited(waited_s)

    def runs_short(self, block: Any) -> bool:
        """Return True if a view of a block would leave too little memory to continue."""
        memory = self.memory
        if memory.ring is None or block.slot is None or block.nbytes <= COPY_BELOW:
            return False
        need = 0
        for stage in self.stages:
            if stage.block_nbytes:  # else no block has needed memory yet, and perhaps none will
                window = stage.window or self._lookahead.window(stage, self.workers)
                need += (window + 1) * memory.quota(stage, len(self.stages))
        return memory.runs_short(max(need, 3 * block.nbytes), self.workers)

    # -- handing out ---------------------------------------------------------------------------

    def feed(self) -> bool:
        """Let every stage take items and issue tasks, downstream ones first, which makes room."""
        moved = False
        for stage in reversed(self.stages):
            moved = stage.feed() or moved
        for repeated in self.repeats:
            moved = repeated.look_ahead() or moved
        while self._deferred and self._grant(*self._deferred[0]):
            self._deferred.popleft()
        self.submit()
        return moved

    def submit(self) -> None:
        """Send the issued tasks."""
        if self._queue:
            jobs, self._queue = self._queue, []
            wanted = []
            for job in jobs:
                if job.block.number in self._blocks and not job.superseded:
                    wanted.append(job)
                else:
                    self._drop(job)
            assert self.pool is not None
            self.pool.submit(wanted)

    def may_issue(self, stage: Stage) -> bool:
        """Return True if a stage may have one more block in flight."""
        if stage.blocks >= (stage.window or self._lookahead.window(stage, self.workers)):
            return False
        memory = self.memory
        if stage.blocks == 0 or memory.ring is None:
            return True
        return memory.has_room(stage, len(self.stages), self.workers) and not self._deferred

    def busy(self) -> bool:
        """Return True if any worker has a task."""
        return self.pool is not None and (self.pool.in_flight > 0 or bool(self._queue))

    def idle(self) -> bool:
        """Return True if any worker has no task."""
        assert self.pool is not None
        return self.pool.in_flight + len(self._queue) < self.workers

    def next_block(self) -> int:
        """Return a number for a new block."""
        self._next_block = self._next_block % _MOST_BLOCKS + 1
        return self._next_block

    def issue(self, block: Any) -> list[Job]:
        """Cut a block into tasks, which the next `feed` sends."""
        self._blocks[block.number] = block
        tasks = block.stage.tasks
        quota = self.memory.quota(block.stage, len(self.stages))
        room = self.memory.give(block, quota)
        jobs: list[Job] = tasks.cut(block, self.memory, quota, self.workers)
        block.flying += len(jobs)
        if room:
            self._queue += jobs
        else:
            self._deferred += [(job, quota) for job in jobs]
        if block.left == 0:  # none of its items could be sent
            self._complete(block)
        return jobs

    def order(self, block: Any) -> None:
        """Send an order to the writer."""
        self._queue += block.stage.tasks.cut(block, self.memory, 0, self.workers)
        self._blocks[block.number] = block
        block.flying += 1
        self.moved = True

    # -- what workers answer -------------------------------------------------------------------

    def done(self, job: Job, done: Done, layout: Layout | None, tail: memoryview) -> None:
        """Process a worker's answer to a task."""
        block, stage = job.block, job.block.stage
        if job.superseded or block.number not in self._blocks:  # `_is_wanted`, without its call
            self._drop(job)
            return
        if (twin := job.twin) is not None:  # the first answer counts
            job.part()
            self.pool.supersede(twin)  # type: ignore[union-attr]  # it is open
        if job.held:
            self.memory.let_go(job)
        pace, each_s = stage.pace, done.micros * 1e-6 / max(1, done.rows)
        pace.row_s = each_s if pace.row_s is None else 0.8 * pace.row_s + 0.2 * each_s
        stage.meter.did(done.rows, done.micros * 1e-6, done.busy * 1e-6)
        try:
            stage.tasks.take_in(job, done, layout, tail, self.memory)
        except Exception as error:
            if is_interrupt(error):
                raise
            # Of the user's class, which is unpickled here. Rows are asked for one by one; a single one becomes an error.
            self.moved = True
            if job.task.rows > 1:
                self._split(job, 1)
            else:
                self._fail(job, stage.tasks.unreadable(job, error))
            return
        block.flying -= 1
        if block.left == 0:
            self._complete(block)

    def place(self, job: Job, done: Done, layout: Layout | None) -> Placing | None:
        """Return where to receive the rows that follow an answer; None for memory of their own."""
        if not self._is_wanted(job):
            return None
        tasks: Tasks = job.block.stage.tasks
        try:
            return tasks.place(job, done, layout, self.memory)
        except SharedMemoryError:  # it is raised when they are taken in
            return None

    def _complete(self, block: Any) -> None:
        """Lease the slot of a complete block, or compute it again if its rows have no common layout."""
        self.moved = True
        del self._blocks[block.number]
        self.memory.reserve.give_back(block)
        if block.mixed:
            block.stage.ragged = True
            block.reset()
            self.issue(block)
            return
        self.memory.keep(block)
        block.stage.tasks.completed(block)

    def need(self, job: Job, nbytes: int, *, alone: bool, after: int) -> None:
        """Note that a block needs a larger slot, or has to be one task."""
        block, stage = job.block, job.block.stage
        if not self._is_wanted(job) or job.part() is not None:
            self._drop(job)
            return
        if after:  # there the file is read on, if the record cannot be had
            block.notes[0] = np.array([block.refs.first, after])
        self.memory.reserve.give_back(block)
        each = -(-nbytes // block.total)
        stage.pace.row_nbytes = max(stage.pace.row_nbytes, each)
        self.moved = True
        stage.ragged = stage.ragged or alone
        budget, tasks = self.memory.budget, stage.tasks
        large = nbytes > budget // (4 * len(self.stages)) and block.total > stage.group
        if alone or large:
            self._split(job, stage.group)
            return
        stage.block_nbytes = max(stage.block_nbytes, nbytes)
        if nbytes <= budget:
            self._deferred.append((job, nbytes))
        else:
            self._fail(job, SharedMemoryError(tasks.block, nbytes, budget, tasks.advice))

    def _grant(self, job: Job, nbytes: int, *, force: bool = False) -> bool:
        """Send a task that needs a larger slot again, if there is memory for it."""
        if not self._is_wanted(job):
            self._drop(job)
            return True
        memory, block = self.memory, job.block
        late = not memory.has_slot(block) and block.left < block.total  # the others lie elsewhere
        room = not late and memory.give(block, nbytes) and memory.has_slot(block)
        if not (room or late or force):
            return False
        if not memory.has_slot(block):
            # There is no memory for one: rows are requested one by one; a single one, or a batch, becomes an error.
            stage = block.stage
            if block.total > stage.group:
                self._split(job, stage.group)
            else:
                self._fail(job, SharedMemoryError(stage.tasks.block, nbytes, 0, EVERY_SLOT))
            return True
        have = memory.had_by(block)
        job.task = job.task._replace(slot=memory.slot_of(block), have=have, may=max(have, nbytes))
        self._queue.append(job)
        return True

    def _is_wanted(self, job: Job) -> bool:
        """Return True if a task's answer is needed: its block is wanted, and no twin has been answered."""
        return job.block.number in self._blocks and not job.superseded

    def _drop(self, job: Job) -> None:
        """Drop a task that is not needed any more."""
        job.block.flying -= 1
        self.memory.let_go(job)
        if job.block.left:  # else it is complete, and its slot is the reader's
            self.memory.abandon(job.block)

    def _split(self, job: Job, rows: int) -> None:
        """Replace the block of a task that was answered or lost by blocks of fewer rows."""
        block = job.block
        block.flying -= 1
        del self._blocks[block.number]
        self.memory.let_go(job)
        self.memory.abandon(block)
        block.stage.split(block, rows)

    def _fail(self, job: Job, error: BaseException) -> None:
        """Make the rows of a task that cannot be done errors."""
        block = job.block
        block.flying -= 1
        self.memory.let_go(job)
        block.stage.tasks.fail(block, job.task.first, job.task.rows, error)
        if block.left == 0:
            if not block.nbytes:
                self.memory.abandon(block)  # its slot may have grown without being counted
            self._complete(block)

    # -- tasks that are overdue ----------------------------------------------------------------

    def look(self) -> None:
        """Give the overdue tasks of workers on other machines to a second worker there."""
        if self.pool is not None:
            for twin in self.hedging.due(self.pool, self._blocks.values(), perf_counter()):
                twin.block.flying += 1
                self.pool.submit([twin])

    # -- deaths --------------------------------------------------------------------------------

    def lost(self, jobs: list[Job], begun: Job | None, how: Exit) -> None:
        """Give a dead worker's tasks to others; the one it had begun is cut into single elements."""
        self.moved = True
        for job in jobs:
            if not self._is_wanted(job) or job.part() is not None:
                self._drop(job)
                continue
            fate: Fate | BaseException = Fate.AGAIN
            if job is begun or not job.block.stage.tasks.makes_again:
                fate = self._deaths.of(job, how)
            if fate is Fate.AGAIN:
                self._queue.append(job)
            elif fate is Fate.SPLIT:
                self._split(job, 1)
            else:
                self._fail(job, fate)
        self.submit()

    def by_value(self, job: Job) -> bytes:
        """Return the tail of a task for a worker that has no part in this process's memory."""
        tasks: Tasks = job.block.stage.tasks
        return job.tail if self.memory.ring is None else tasks.by_value(job, self.memory)

    def hand_out(self, jobs: list[Job]) -> None:
        """Send the tasks for which there was no worker."""
        self._queue += jobs
        self.submit()
