"""The coordinator: what is to be computed next, where it goes, what order it comes out in.

It lives in the consumer's process and has no thread: everything happens within ``next``. Free
slots are the credits; every decision is private to it and travels as a message, so a worker that
dies takes nothing along but time.

::

    machines -> items -> blocks -> tasks  --- channel --->  workers: rows into slots
    deliver in order <- blocks complete  <--- DONE ----
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from tundish.errors import SharedMemoryError
from tundish.loader.protocols.block import COPY_BELOW
from tundish.loader.protocols.items import ref_of
from tundish.loader.protocols.lineage import add_origin
from tundish.loader.protocols.pieces import Pieces, refs_only
from tundish.loader.protocols.rows import as_ref
from tundish.loader.run.coordinating.answers import count, take_in
from tundish.loader.run.coordinating.deaths import Deaths, Fate
from tundish.loader.run.coordinating.planner import AheadRepeated
from tundish.loader.run.coordinating.seat import Seat
from tundish.loader.run.coordinating.tasks import Definition, Definitions, Tasks, rows_per_task
from tundish.loader.run.stages.streams import StreamStage
from tundish.loader.run.starting.critical import uninterrupted
from tundish.loader.run.wire.messages import NOT_OPENED, STREAM_END, WRITING

if TYPE_CHECKING:
    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.block import Block
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.coordinating.lookahead import LookAhead
    from tundish.loader.run.coordinating.memory import Memory
    from tundish.loader.run.coordinating.planner import AnyStage
    from tundish.loader.run.pool.peers import Job, Peer
    from tundish.loader.run.pool.pool import Pool
    from tundish.loader.run.starting.launcher import Exit
    from tundish.loader.run.watching.ledger import Ledger
    from tundish.loader.run.watching.tracing import Trace
    from tundish.loader.run.wire.messages import Done
    from tundish.shm.layout import Layout


class Coordinator:
    """The coordinator: it hands out blocks of stages to workers, and takes in their answers.

    Parameters
    ----------
    context, options
        Of the iterator.
    workers : int
        How many there are to be.
    memory : Memory
        What blocks lie in.
    lookahead : LookAhead
        What says how many of them there may be.

    Attributes
    ----------
    workers : int
        How many compute.
    stages : list
        Those that there are, the one next to the source first.
    ordered : bool
        Whether elements have to come in the order of the input.
    moved : bool
        Whether something was done that may let others go on.
    pool : Pool or None
        The workers, while they are there.
    """

    def __init__(
        self,
        context: Context,
        options: Options,
        workers: int,
        memory: Memory,
        lookahead: LookAhead,
    ) -> None:
        self.context, self.options, self.workers = context, options, workers
        self.budget = memory.budget
        self.ordered = options.deterministic is not False and not any(
            n.unordered for n in context.nodes
        )
        self.stages: list[AnyStage] = []
        self.moved = False
        self.pool: Pool | None = None
        self._trace: Trace | None = None
        self._memory, self._lookahead = memory, lookahead
        self._definitions = Definitions()
        self._tasks = Tasks(context, self._definitions, memory)
        self._deaths = Deaths(context, options, self._definitions)
        self._repeats: list[AheadRepeated] = []
        self._blocks: dict[int, Block] = {}  # that are wanted, and not made
        self._next_block = 0
        self._queue: list[Job] = []  # to be handed out
        self._deferred: deque[tuple[Job, int]] = deque()  # until there is so much memory

    def open(self, pool: Pool, trace: Trace | None) -> None:
        """Begin, with these workers."""
        self.pool, self._trace = pool, trace

    def resize(self, workers: int) -> None:
        """Go on with another number of workers."""
        assert self.pool is not None
        self.pool.resize(workers)
        self.workers = self.pool.size
        if self._trace is not None:
            self._trace("--", 0, "RESIZE", workers=self.workers)
        for stage in self.stages:
            stage.window = 0
        self.feed()

    def tick(self, now: float) -> None:
        """Take stock of how things stand, now and then."""
        if self._trace is not None:
            blocks = [b for stage in self.stages for b in stage.queued()]
            self._trace.level(
                ready=sum(not block.left for block in blocks),
                leased=self._memory.leased,
                used=self._memory.used_bytes,
            )
        if self._lookahead.is_due(now):
            assert self.pool is not None
            self._lookahead.measure(self.stages, self.workers, fresh=self.pool.is_fresh)

    def end(self, jobs: list[Job], there: list[Peer], *, keep: bool) -> None:
        """Forget everything, and give back what it lies in: the workers are gone.

        Parameters
        ----------
        jobs : list of Job
            Tasks that nobody has answered.
        there : list of Peer
            Workers that may still write.
        keep : bool
            Whether they still do those tasks.
        """
        self.pool = None
        waiting = [*jobs, *self._queue, *(job for job, _ in self._deferred)]
        slots = [slot for job in waiting for slot in job.held]
        unfinished = (block for block in self._blocks.values() if not block.leased)
        slots += [block.slot for block in unfinished if block.slot is not None]
        self._memory.end(slots, there, jobs if keep else [])
        self._blocks.clear()
        self._queue.clear()
        self._deferred.clear()
        for stage in self.stages:
            stage.meter.gave(*stage.begun())
        self.stages.clear()
        self._repeats.clear()

    # -- stages --------------------------------------------------------------------------------

    def define(self, node: Operator, base: Operator, pass_: int, *, is_stream: bool) -> int:
        """Return a number for a new stage."""
        number = self._define(Definition(node, base, pass_), is_stream)
        if self._trace is not None:
            self._trace.stage(number, self.context.label(node))
        return number

    def seat(self) -> Seat:
        """The stage of a writer's orders."""
        root = self.context.root
        return Seat(self, self._define(Definition(root, root, 0), WRITING))

    def _define(self, definition: Definition, flag: int) -> int:
        number, index = self._definitions.add(definition), self.context.index
        node, base, pass_ = definition
        assert self.pool is not None
        self.pool.define(number, flag, (index(node), index(base), pass_))
        return number

    def look_after(self, repeated: AheadRepeated) -> None:
        """Let a repeat open its next pass early."""
        self._repeats.append(repeated)

    def retire(self, stage: AnyStage) -> None:
        """Let go of a stage that has given everything."""
        if stage in self.stages:
            self.stages.remove(stage)
            self._definitions.remove(stage.number)

    def forget(self, built: AnyStage | AheadRepeated) -> None:
        """Give back what a stage has: nobody will ask it again; answers to come are thrown away."""
        if isinstance(built, AheadRepeated):
            self._repeats.remove(built)
            built.forget()
            return
        self.retire(built)
        with uninterrupted():
            for block in built.forget():
                if self._blocks.pop(block.number, None) is not None:
                    self._memory.abandon(block)

    # -- going on ------------------------------------------------------------------------------

    def goes_on(self) -> bool:
        """Do what can be done before a worker answers; return True if there was anything."""
        pool = self.pool
        assert pool is not None
        if self.moved:
            self.moved = False
            if self.feed() or self.moved:
                pool.pump(0.0)  # to feed may have taken long: a generator is asked in here
                return True
        if pool.in_flight or pool.starts:
            return False
        if self.feed() or pool.in_flight:  # memory may have come back from a consumer
            return True
        if not self._deferred:
            raise AssertionError("nothing is being computed and nothing is ready")
        # Nobody will give memory back: consumers hold it, or it is ready and waits.
        self._memory.evict()
        job, nbytes = self._deferred.popleft()
        self._grant(job, nbytes, force=True)
        self.moved = True
        return True

    def wait(self, ledger: Ledger) -> None:
        """Wait for workers until there is something to do: rows of a block that is not whole are not enough."""
        pool = self.pool
        assert pool is not None
        ledger.waits_since, waited_s = perf_counter(), 0.0
        try:
            while True:
                pool.pump(None)
                waited_s += pool.waited_s
                if self.moved or self._deferred or not (pool.in_flight or pool.starts):
                    return
        finally:
            ledger.waited(waited_s)

    def runs_short(self, block: Block) -> bool:
        """Return True if a view of a block would leave too little memory to go on with."""
        memory = self._memory
        if memory.ring is None or block.slot is None or block.nbytes <= COPY_BELOW:
            return False
        need, workers = 0, self.workers
        for stage in self.stages:
            if stage.block_nbytes:  # what no block has needed yet is not known, and may be nothing
                blocks = self._lookahead.window(stage, workers) + 1
                need += blocks * memory.quota(stage, len(self.stages))
        return memory.runs_short(max(need, 3 * block.nbytes), workers)

    # -- handing out ---------------------------------------------------------------------------

    def feed(self) -> bool:
        """Let every stage take items and hand out tasks; downstream first, which makes room."""
        moved = False
        for stage in reversed(self.stages):
            moved = stage.feed() or moved
        for repeated in self._repeats:
            moved = repeated.look_ahead() or moved
        while self._deferred and self._grant(*self._deferred[0]):
            self._deferred.popleft()
        self.submit()
        return moved

    def submit(self) -> None:
        """Hand out what is to be handed out."""
        if self._queue:
            jobs, self._queue = self._queue, []
            wanted = []
            for job in jobs:
                if job.block.number in self._blocks:
                    wanted.append(job)
                else:
                    self._drop(job)
            assert self.pool is not None
            self.pool.submit(wanted)

    def may_issue(self, stage: AnyStage) -> bool:
        """Return True if a stage may have one more block."""
        if stage.blocks >= (stage.window or self._lookahead.window(stage, self.workers)):
            return False
        memory = self._memory
        if stage.blocks == 0 or memory.ring is None:
            return True
        return memory.has_room(stage, len(self.stages), self.workers) and not self._deferred

    def busy(self) -> bool:
        """Return True if workers have something to do."""
        return self.pool is not None and (self.pool.in_flight > 0 or bool(self._queue))

    def idle(self) -> bool:
        """Return True if a worker has nothing to do."""
        assert self.pool is not None
        return self.pool.in_flight + len(self._queue) < self.workers

    def next_block(self) -> int:
        """Return a number for a new block."""
        self._next_block += 1
        return self._next_block

    def issue(self, block: Block) -> None:
        """Cut a block into tasks, to be handed out by the next `feed`."""
        self._blocks[block.number] = block
        stage = block.stage
        quota = self._memory.quota(stage, len(self.stages))
        room = self._memory.give(block, quota)
        size = rows_per_task(stage, block.total, self.workers)
        jobs = self._jobs(block, 0, block.total, size, quota)
        if room:
            self._queue += jobs
        else:
            self._deferred += [(job, quota) for job in jobs]

    def _jobs(self, block: Block, first: int, stop: int, size: int, quota: int) -> list[Job]:
        """Cut rows into tasks; into single ones, where what an item is made of cannot be had: it is its error."""
        jobs: list[Job] = []
        have = self._memory.had_by(block)
        some = stop - first if self._tasks.are_plain(block) else size
        for at in range(first, stop, some):
            rows = min(some, stop - at)
            try:
                jobs += self._tasks.tasks(block, range(at, at + rows, size), have, quota)
            except Exception as error:  # noqa: BLE001 - of a file, or of functions that are run again
                if isinstance(
                    block.stage, StreamStage
                ):  # it cannot be opened: one error, and its end
                    block.gone = True
                    block.drops.update(range(at + 1, at + rows))
                    block.left -= rows - 1
                    rows = 1
                if rows == 1:
                    self._fail_rows(block, at, 1, error)
                else:
                    jobs += self._jobs(block, at, at + rows, 1, quota)
        return jobs

    def order(self, block: Block) -> None:
        """Have an order carried out by the writer."""
        self._blocks[block.number] = block
        self._queue.append(self._tasks.order(block))
        self.moved = True

    # -- what workers answer -------------------------------------------------------------------

    def done(self, job: Job, done: Done, layout: Layout | None, tail: memoryview) -> None:
        """Take in the rows of a task."""
        block, stage = job.block, job.block.stage
        if block.number not in self._blocks:
            self._drop(job)
            return
        if job.held:
            self._memory.let_go(job)
        block.flying -= 1
        pace, each_s = stage.pace, done.micros * 1e-6 / max(1, done.rows)
        pace.row_s = each_s if pace.row_s is None else 0.8 * pace.row_s + 0.2 * each_s
        stage.meter.did(done.rows, done.micros * 1e-6, done.busy * 1e-6)
        stage.window = 0  # to be worked out again
        try:
            take_in(block, done, layout, tail, self._memory)
        except Exception as error:  # noqa: BLE001 - of the user's class, which is unpickled here
            self._unreadable(job, error)
            return
        if isinstance(stage, StreamStage):
            rows = done.rows - len(block.drops)
            block.drops.clear()
            block.gone = bool(done.flags & NOT_OPENED)
            block.inputs.peer = job.prefer
            ended = bool(done.flags & STREAM_END)
            stage.chunk_done(block, max(rows, 0), len(tail) + done.nbytes, ended=ended)
        if block.left == 0:
            self._complete(block)

    def _unreadable(self, job: Job, error: Exception) -> None:
        """Ask one by one for rows that cannot be unpickled here; the error of a single one takes its place."""
        block, task = job.block, job.task
        self.moved = True
        if task.rows > 1:
            self._give_up(block, job)
            block.stage.split(block, 1)
            return
        add_origin(error, self._deaths.origin(job), "as it was unpickled in the consumer")
        self._fail_rows(block, task.first, 1, error)

    def _complete(self, block: Block) -> None:
        """Lease the slot of a block whose rows are all made, or do it again where they have no common layout."""
        self.moved = True
        del self._blocks[block.number]
        stage = block.stage
        self._memory.reserve.give_back(block)
        if block.mixed:
            stage.ragged = True
            block.reset()
            self.issue(block)
            return
        count(block, self.context.watch)
        self._memory.keep(block)
        if block.layout is not None and not isinstance(stage, StreamStage):
            stage.pace.row_nbytes = block.layout.row_nbytes  # a stream was told all that it took
        block.clean = block.layout is not None and not (
            block.drops or block.errors or block.events or block.elements or block.notes
        )
        if isinstance(block.refs, Pieces):
            block.refs = refs_only(block.refs)
        elif isinstance(block.refs, list):
            # What the items were made of is not needed any more, and may hold slots.
            block.refs = [ref_of(as_ref(item)) for item in block.refs]

    def need(self, job: Job, nbytes: int, *, alone: bool) -> None:
        """Take note that a block needs more than its slot may have, or has to be one task."""
        block, stage = job.block, job.block.stage
        if block.number not in self._blocks:
            self._drop(job)
            return
        block.flying -= 1
        self._memory.reserve.give_back(block)
        each = -(-nbytes // block.total)
        stage.pace.row_nbytes = max(stage.pace.row_nbytes, each)
        self.moved = True
        if alone:
            stage.ragged = True
            self._give_up(block, job)
            stage.split(block, stage.group)
            return
        if nbytes > self.budget // (4 * len(self.stages)) and block.total > stage.group:
            self._give_up(block, job)
            stage.split(block, stage.group)
            return
        block.flying += 1
        stage.block_nbytes = max(stage.block_nbytes, nbytes)
        if nbytes <= self.budget:
            self.moved = True
            self._deferred.append((job, nbytes))
            return
        error = SharedMemoryError(
            "a block of rows for one batch",
            nbytes,
            self.budget,
            "set Options(memory_budget=...) or TUNDISH_BUDGET, or use smaller batches",
        )
        self._fail(job, error)

    def _grant(self, job: Job, nbytes: int, *, force: bool = False) -> bool:
        """Hand out a task again that needs a larger slot, if there is memory for it."""
        if job.block.number not in self._blocks:
            self._drop(job)
            return True
        if not self._memory.reserve.take(job.block, nbytes) and not force:
            return False
        have = self._memory.had_by(job.block)
        job.task = job.task._replace(have=have, may=max(have, nbytes))
        self._queue.append(job)
        return True

    def _drop(self, job: Job) -> None:
        """Give up a task whose block is not wanted any more."""
        job.block.flying -= 1
        self._memory.let_go(job)
        self._memory.abandon(job.block)

    def _give_up(self, block: Block, job: Job) -> None:
        """Forget a block that others take the place of; `job` has been answered or lost."""
        del self._blocks[block.number]
        self._memory.let_go(job)
        self._memory.abandon(block)

    def _fail(self, job: Job, error: BaseException) -> None:
        """Make the rows of a task that cannot be done errors."""
        self._memory.let_go(job)
        job.block.flying -= 1
        self._fail_rows(job.block, job.task.first, job.task.rows, error)

    def _fail_rows(self, block: Block, first: int, rows: int, error: BaseException) -> None:
        """Rows that cannot be made are errors."""
        for row in range(first, first + rows):
            block.errors[row] = error
        block.left -= rows
        if isinstance(block.stage, StreamStage):
            block.stage.chunk_done(block, rows, 0, ended=block.gone)
        if block.left == 0:
            self._complete(block)

    # -- deaths --------------------------------------------------------------------------------

    def lost(self, jobs: list[Job], begun: Job | None, how: Exit) -> None:
        """Give the tasks of a worker that died to others; the one it had begun is cut into elements."""
        self.moved = True
        for job in jobs:
            if job.block.number not in self._blocks:
                self._drop(job)
            elif job is begun:
                self._begun(job, how)
            else:
                self._queue.append(job)
        if self._queue and self.pool is not None:
            queue, self._queue = self._queue, []
            self.pool.submit(queue)

    def _begun(self, job: Job, how: Exit) -> None:
        fate = self._deaths.of(job, how)
        if fate is Fate.AGAIN:
            self._queue.append(job)
        elif fate is Fate.SPLIT:
            block = job.block
            block.flying -= 1
            self._give_up(block, job)
            block.stage.split(block, 1)
        else:
            self._fail(job, fate)
