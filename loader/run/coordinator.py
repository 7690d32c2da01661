"""The coordinator: what is to be computed next, where it goes, what order it comes out in.

It lives in the consumer's process and has no thread: everything happens within ``next``. Free
slots are the credits; every decision is private to it and travels as a message, so a worker that
dies takes nothing along but time.

::

    machines -> items -> blocks -> tasks  --- channel --->  workers: rows into slots
    deliver in order <- blocks complete  <--- DONE ----
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tundish.errors import SharedMemoryError
from tundish.loader.plan.elementwise import Map
from tundish.loader.run.answers import count, take_in
from tundish.loader.run.crew import crew_of
from tundish.loader.run.critical import uninterrupted
from tundish.loader.run.deaths import Deaths, Fate
from tundish.loader.run.definitions import Definition, Definitions
from tundish.loader.run.engine import Engine, refused
from tundish.loader.run.items import Failure, NotReady, ref_of
from tundish.loader.run.lookahead import LookAhead
from tundish.loader.run.memory import Memory
from tundish.loader.run.messages import (
    NOT_OPENED,
    STREAM_END,
    WRITING,
)
from tundish.loader.run.operators.flattening import FlatMapped
from tundish.loader.run.parallel import AheadRepeated, AnyStage, ParallelPlanner
from tundish.loader.run.pool import Pool
from tundish.loader.run.rows import Row, Rows, as_ref
from tundish.loader.run.stages import ParallelStage
from tundish.loader.run.storing.lingering import linger as linger_on
from tundish.loader.run.storing.seat import Seat
from tundish.loader.run.storing.stored import frozen, is_kept
from tundish.loader.run.streams import StreamStage
from tundish.loader.run.tasks import Tasks, rows_per_task
from tundish.loader.run.tracing import open_trace
from tundish.loader.watch.stats import StageStats, Stats, with_begun
from tundish.shm.budget import default_budget, parse_bytes
from tundish.spec import copy_element

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node
    from tundish.loader.plan.options import Options
    from tundish.loader.run.context import Context
    from tundish.loader.run.messages import Done
    from tundish.loader.run.peers import Job
    from tundish.loader.run.starting.launcher import Exit
    from tundish.loader.run.tuning import Tuning
    from tundish.shm.layout import Layout

_LEAVING_S = 0.2
_LOOK_EVERY_S = 0.0002


class Span(NamedTuple):
    """The mark behind several elements that were given at once.

    Parameters
    ----------
    block : Block
        Which they are rows of.
    stop : int
        The row behind the last one.
    beside : object
        What else the machine's mark was made of.
    """

    block: Block
    stop: int
    beside: Any


class Coordinator(Engine):
    """An engine whose elements are computed by workers.

    Parameters
    ----------
    context, options
        Of the iterator.
    workers : int
        How many; with 0 elements are computed in this process, and only a snapshot is written by another.
    executor : {"process", "thread"}
        What a worker is.
    tuning : Tuning, optional
        What decides how many, while it runs.
    """

    def __init__(
        self,
        context: Context,
        options: Options,
        workers: int,
        executor: str,
        tuning: Tuning | None = None,
    ) -> None:
        super().__init__(context, options, tuning)
        self.workers, self._executor = workers, executor
        self._owner = os.getpid()
        self.budget = _budget_of(options, tuning)
        self._memory = Memory(self.budget)
        self.ordered = options.deterministic is not False and not any(
            isinstance(n, Map) and n.deterministic is False for n in context.nodes
        )
        self.stages: list[AnyStage] = []
        self._repeats: list[AheadRepeated] = []
        self._definitions = Definitions()
        self._tasks = Tasks(context, self._definitions, self._memory)
        self._deaths = Deaths(context, options, self._definitions)
        self._blocks: dict[int, Block] = {}
        self._next_block = 0
        self._queue: list[Job] = []
        self._deferred: deque[tuple[Job, int]] = deque()
        self.moved = False
        self._looked = 0.0
        self._slack = bool(options.slack)
        self._lookahead = LookAhead(context.nodes, tuned=tuning is not None)
        self._pool: Pool | None = None
        self._final: Pool | None = None
        self._mark: Any = (None,)
        self._before: Any = self._mark

    # -- engine --------------------------------------------------------------------------------

    def open(self, position: Any) -> None:
        self._memory.open()
        crew = crew_of(self.context, self.options, self._executor)
        recorders = self._recorders
        writers = min(1, len(recorders))
        self._trace = open_trace(self.options.stats.trace, self._reporter.plan, self.workers)
        self._pool = Pool(
            self.workers,
            self._memory.arena,
            crew,
            owner=self,
            writers=writers,
            trace=self._trace,
        )
        if recorders:
            seat = self._seat()
            for recorder in recorders:
                recorder.carrier = seat
        self._kept = is_kept(self.context.root)
        root, iteration = self.context.root, self.context.iteration
        if self.workers:
            self._network = ParallelPlanner(self).computed(root, iteration)
        else:  # there is only a writer
            for recorder in recorders:
                recorder.wait = self._wait_for_writer
            self._network = open_inline(self.context, self.options)
        if position is not None:
            self._network.load(position)
        self._mark = self._before = self._network.mark()
        self.feed()

    def next(self) -> Any:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"this iterator was made in process {self._owner}; make one here ({os.getpid()})"
            )
        self._ledger.enter()
        if self._recorders:
            self.told()
        if self._slack:
            self.feed()
        self._before = self._mark
        item = self._awaited(self._network.next)
        element = self._deliver(item)
        failed = isinstance(element, BaseException)
        mark = self._network.mark()
        self._mark, self.given = mark, -1 if failed else 1  # no call in between, and below
        if failed:
            self._errors += 1
        else:
            self._elements += 1
        self.moved = False
        if not self._slack:
            self.feed()
        self._look(element)
        if failed:
            try:
                raise element
            finally:
                del item, element  # else the error and this frame would keep each other
        return element

    @property
    def starting(self) -> int:
        return self._pool.starting if self._pool is not None else 0

    def _resize(self, workers: int) -> None:
        if not workers:
            self.wanted = 0  # another engine's
            return
        assert self._pool is not None
        self._pool.resize(workers)
        self.workers = self._pool.size
        if self._trace is not None:
            self._trace("--", 0, "RESIZE", workers=self.workers)
        for stage in self.stages:
            stage.window = 0
        self.feed()

    def _tick(self, now: float) -> None:
        if self._trace is not None:
            blocks = [b for stage in self.stages for b in stage.queued()]
            self._trace.level(
                ready=sum(not block.left for block in blocks),
                leased=self._memory.leased,
                used=self._memory.used_bytes,
            )
        if self._lookahead.is_due(now):
            assert self._pool is not None
            fresh = self._pool.is_fresh
            self._lookahead.measure(self.stages, self.workers, fresh=fresh)
        super()._tick(now)

    def _look(self, element: Any) -> None:
        """Take in what workers have answered; small elements need no look for each of them."""
        now = time.perf_counter()
        if now - self._looked > _LOOK_EVERY_S:
            self._pool.pump(0.0)  # type: ignore[union-attr]  # open
            self._weigh(element)
            self._tick(now)
            self._looked = now = time.perf_counter()
        self._ledger.leave(now)
        if self._trace is not None:
            self._trace.gave(self._ledger.call_s)

    def _awaited(self, ask: Callable[[], Any]) -> Any:
        """What a machine gives, waiting for workers as long as it is not ready."""
        while True:
            try:
                return ask()
            except NotReady:
                pass
            self._wait()  # not above: what interrupts it would be chained to NotReady

    def _deliver(self, item: Any) -> Any:
        kind = type(item)
        if kind is Failure:
            return item.error
        if kind is Rows:
            ((block, first, stop, _),) = item.runs
            element = block.batch(first, stop, copy=self._short_of(block))
        elif kind is Row:
            element = item.block.element(item.row, copy=self._short_of(item.block))
        else:
            element = copy_element(item.value)
        if self.context.probes:
            try:
                self._seen(element)
            except Exception as error:  # noqa: BLE001 - the element's error
                return refused(item, error)
        return frozen(element) if self._kept else element

    def _short_of(self, block: Block) -> bool:
        """Whether a view of a block would leave too little memory to go on with."""
        memory = self._memory
        if memory.ring is None or block.slot is None or block.nbytes <= COPY_BELOW:
            return False
        window = self._lookahead.window
        # What no block has needed yet is not known, and may be nothing.
        known = [stage for stage in self.stages if stage.block_nbytes]
        quotas = [(window(stage, self.workers) + 1) * self._quota(stage) for stage in known]
        return memory.runs_short(max(sum(quotas), 3 * block.nbytes), self.workers)

    def _wait(self) -> None:
        pool = self._pool
        assert pool is not None
        if self.moved:
            self.moved = False
            if self.feed() or self.moved:
                pool.pump(0.0)  # to feed may have taken long: a generator is asked in here
                return
        if not pool.in_flight and not pool.waits:
            if self.feed() or pool.in_flight:  # memory may have come back from a consumer
                return
            if self._deferred:
                # Nobody will give memory back: consumers hold it, or it is ready and waits.
                self._memory.evict()
                job, nbytes = self._deferred.popleft()
                self._grant(job, nbytes, force=True)
                self.moved = True
                return
            raise AssertionError("nothing is being computed and nothing is ready")
        self._ledger.waits_now()
        self._ledger.waited(pool.wait())
        while self._nothing_moved and not self._deferred and (pool.in_flight or pool.waits):
            self._ledger.waits_now()
            self._ledger.waited(pool.wait())

    @property
    def _nothing_moved(self) -> bool:
        """Rows of a block that is not whole let nobody go on: no need to look."""
        return not self.moved

    def several(self) -> list[Any] | None:
        network = self._network
        if not isinstance(network, (FlatMapped, ParallelStage)) or os.getpid() != self._owner:
            return None
        if self.context.probes:
            return None
        self._ledger.enter()
        self._before, self._undo = self._mark, self._elements
        got: tuple[Block | None, int, list[Any]] = self._awaited(network.rest)
        block, stop, elements = got
        if block is None:
            self._ledger.leave(time.perf_counter())
            self._undo = None
            return None
        self._mark, self.given = Span(block, stop, network.beside()), 1
        self._elements += len(elements)
        if self._kept:
            for element in elements:
                frozen(element)
        self.feed()
        self._look(elements[0])
        return elements

    def take_back(self) -> None:
        if self.given:
            self._mark = self._before
            self._uncount()

    def position(self, left: int = 0) -> Any:
        mark = self._mark
        network = self._network
        if type(mark) is Span:
            assert isinstance(network, (FlatMapped, ParallelStage))
            mark = network.mark_at(mark.block, mark.stop - 1 - left, mark.beside)
        return network.dump(mark)

    def pump(self) -> None:
        if self._pool is not None:
            self._pool.pump(0.0)
            self.feed()

    def stats(self, *, whole: bool = True) -> Stats:
        pool, memory = self._pool or self._final, self._memory
        return replace(
            super().stats(),
            workers=self.workers,
            stages=self._measured(),
            pool=pool.measured() if pool and whole else (),
            restarts=pool.restarts if pool else 0,
            tasks=pool.tasks if pool else 0,
            copies=memory.copies,
            leased=memory.leased,
            used_bytes=memory.used_bytes,
            budget_bytes=self.budget,
        )

    def _measured(self) -> tuple[StageStats, ...]:
        """What is known of each stage, with what is on its way."""
        given: dict[str, tuple[int, int, int]] = {}
        for meter in self.context.watch.meters.values():
            meter.in_flight = meter.ready = 0
        for stage in self.stages:
            meter, blocks = stage.meter, stage.queued()
            left = sum(1 for block in blocks if block.left)
            meter.in_flight += left
            meter.ready += len(blocks) - left
            meter.window = max(stage.window, meter.window)
            before = given.get(meter.name, (0, 0, 0))
            given[meter.name] = tuple(map(sum, zip(before, stage.begun(), strict=True)))  # type: ignore[assignment]  # of three
        return tuple(
            with_begun(stage, *given.get(stage.name, (0, 0, 0)))
            for stage in self.context.watch.stages()
        )

    def worker_pids(self) -> list[int]:
        return self._pool.pids() if self._pool is not None else []

    def finish(self) -> None:
        self._mark = self._network.mark()
        self._ledger.leave(time.perf_counter())
        self.close()

    def close(self) -> None:
        if os.getpid() != self._owner:
            return
        with uninterrupted():  # all of it: an interrupt before leaves it open, to be closed again
            pool, self._pool = self._pool, None
            if pool is not None:
                self._final = pool
                self._ledger.end()
                self._reporter.end()
                self._end(pool)
            self.context.close_files()

    def save(self) -> None:
        super().save()
        self._settle(None)

    def _settle(self, timeout_s: float | None) -> bool:
        """Wait until all orders have been answered; whether they have."""
        pool, deadline = self._pool, time.monotonic() + (timeout_s or 0.0)
        assert pool is not None
        while any(recorder.pending for recorder in self._recorders):
            self._submit()
            if pool.cut:
                return False
            left = None if timeout_s is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            pool.pump(left)
        return True

    def _wait_for_writer(self) -> None:
        assert self._pool is not None
        self._submit()
        self._pool.pump(None)

    def _end(self, pool: Pool) -> None:
        linger = False
        if self._recorders:
            self._pool = pool
            try:
                self.leave()
                linger = not self._settle(_LEAVING_S)
            except Exception:  # noqa: BLE001 - a writer that cannot start, say: what is not durable is computed again
                linger = False
            self._pool = None
        jobs = pool.jobs()
        writers = pool.writing if linger else []
        there = pool.close(linger=linger)
        if writers:
            for recorder in self._recorders:
                linger_on(recorder.target.path, recorder.target.key, writers)
        slots = [
            slot
            for job in [*jobs, *self._queue, *(j for j, _ in self._deferred)]
            for slot in job.held
        ]
        unfinished = (block for block in self._blocks.values() if not block.leased)
        slots += [block.slot for block in unfinished if block.slot is not None]
        self._memory.end(slots, there, jobs if writers else [])
        self._blocks.clear()
        self._queue.clear()
        self._deferred.clear()
        for stage in self.stages:
            stage.meter.gave(*stage.begun())
        self.stages.clear()
        self._repeats.clear()

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
        self._submit()
        return moved

    def _submit(self) -> None:
        if self._queue:
            jobs, self._queue = self._queue, []
            assert self._pool is not None
            self._pool.submit([job for job in jobs if self._is_wanted(job)])

    def may_issue(self, stage: AnyStage) -> bool:
        """Whether a stage may have one more block."""
        if stage.blocks >= (stage.window or self._lookahead.window(stage, self.workers)):
            return False
        memory = self._memory
        if stage.blocks == 0 or memory.ring is None:
            return True
        return memory.has_room(stage, len(self.stages), self.workers) and not self._deferred

    def busy(self) -> bool:
        """Whether workers have something to do."""
        return self._pool is not None and (self._pool.in_flight > 0 or bool(self._queue))

    def idle(self) -> bool:
        """Whether a worker has nothing to do."""
        assert self._pool is not None
        return self._pool.in_flight + len(self._queue) < self.workers

    def next_block(self) -> int:
        """A number for a new block."""
        self._next_block += 1
        return self._next_block

    def issue(self, block: Block) -> None:
        """Cut a block into tasks, to be handed out by the next `feed`."""
        self._blocks[block.number] = block
        stage = block.stage
        quota = self._quota(stage)
        room = self._memory.give(block, quota)
        rows = rows_per_task(stage, block.total, self.workers)
        for first in range(0, block.total, rows):
            for job in self._jobs(block, first, min(rows, block.total - first), quota):
                if room:
                    self._queue.append(job)
                else:
                    self._deferred.append((job, quota))

    def _jobs(self, block: Block, first: int, rows: int, quota: int) -> list[Job]:
        """The task of some rows; one each, if what an item is made of cannot be had: it is its error."""
        try:
            return [self._tasks.task(block, first, rows, quota)]
        except Exception as error:  # noqa: BLE001 - of a file, or of functions that are run again
            if isinstance(block.stage, StreamStage):  # it cannot be opened: one error, and its end
                block.gone = True
                block.drops.update(range(first + 1, first + rows))
                block.left -= rows - 1
                rows = 1
            if rows == 1:
                self._fail_rows(block, first, 1, error)
                return []
        each = [self._jobs(block, row, 1, quota) for row in range(first, first + rows)]
        return [job for jobs in each for job in jobs]

    def _seat(self) -> Seat:
        """The stage of a writer's orders."""
        root = self.context.root
        number = self._definitions.add(Definition(root, root, 0))
        assert self._pool is not None
        index = self.context.index(root)
        self._pool.define(number, WRITING, (index, index, 0))
        return Seat(self, number)

    def order(self, block: Block) -> None:
        """Have an order carried out by the writer."""
        self._blocks[block.number] = block
        self._queue.append(self._tasks.order(block))
        self.moved = True

    def _quota(self, stage: AnyStage) -> int:
        """Bytes that a block may take before the coordinator is asked."""
        return self._memory.quota(stage, len(self.stages))

    # -- what workers answer -------------------------------------------------------------------

    def done(self, job: Job, done: Done, layout: Layout | None, tail: memoryview) -> None:
        """Take in the rows of a task."""
        if not self._is_wanted(job):
            return
        block, stage = job.block, job.block.stage
        self._memory.let_go(job)
        block.flying -= 1
        stage.pace.saw(done.rows, done.micros * 1e-6)
        stage.meter.did(done.rows, done.micros * 1e-6, done.busy * 1e-6)
        stage.window = 0  # to be worked out again
        take_in(block, done, layout, tail, self._memory)
        if isinstance(stage, StreamStage):
            rows = done.rows - len(block.drops)
            block.drops.clear()
            block.gone = bool(done.flags & NOT_OPENED)
            block.inputs.peer = job.prefer
            ended = bool(done.flags & STREAM_END)
            stage.chunk_done(block, max(rows, 0), len(tail) + done.nbytes, ended=ended)
        if block.left == 0:
            self._complete(block)

    def _complete(self, block: Block) -> None:
        """All rows are made: lease the slot, or do it again where they have no common layout."""
        self.moved = True
        del self._blocks[block.number]
        stage = block.stage
        self._memory.end_promise(block)
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
        if isinstance(block.refs, list):
            # What the items were made of is not needed any more, and may hold slots.
            block.refs = [ref_of(as_ref(item)) for item in block.refs]

    def need(self, job: Job, nbytes: int, *, alone: bool) -> None:
        """A block needs more than its slot may have, or has to be one task."""
        if not self._is_wanted(job):
            return
        block = job.block
        block.flying -= 1
        stage = block.stage
        self._memory.end_promise(block)
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
        if not self._is_wanted(job):
            return True
        if not self._memory.promise(job.block, nbytes) and not force:
            return False
        have = self._memory.had_by(job.block)
        job.task = job.task._replace(have=have, may=max(have, nbytes))
        self._queue.append(job)
        return True

    def _is_wanted(self, job: Job) -> bool:
        """Whether a task's block is still wanted; of one that is not, the task is given up."""
        block = job.block
        if block.number in self._blocks:
            return True
        block.flying -= 1
        self._memory.let_go(job)
        self._memory.abandon(block)
        return False

    def _give_up(self, block: Block, job: Job) -> None:
        """Forget a block that others take the place of; `job` has been answered or lost."""
        del self._blocks[block.number]
        self._memory.let_go(job)
        self._memory.abandon(block)

    def _fail(self, job: Job, error: BaseException) -> None:
        """A task cannot be done: its rows are errors."""
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
        """A worker died: its tasks go to others; the one it had begun is cut into elements."""
        self.moved = True
        for job in jobs:
            if not self._is_wanted(job):
                continue
            if job is begun:
                self._begun(job, how)
            else:
                self._queue.append(job)
        if self._queue and self._pool is not None:
            queue, self._queue = self._queue, []
            self._pool.submit(queue)

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

    def retire(self, stage: AnyStage) -> None:
        """A stage has given everything."""
        if stage in self.stages:
            self.stages.remove(stage)
            self._definitions.remove(stage.number)

    def forget(self, built: AnyStage | AheadRepeated) -> None:
        """Nobody will ask it again: give back what it has; answers to come are thrown away."""
        if isinstance(built, AheadRepeated):
            self._repeats.remove(built)
            built.forget()
            return
        self.retire(built)
        with uninterrupted():
            for block in built.forget():
                if self._blocks.pop(block.number, None) is not None:
                    self._memory.abandon(block)

    # -- stages --------------------------------------------------------------------------------

    def define(self, node: Node, base: Node, pass_: int, *, is_stream: bool) -> int:
        """A number for a new stage."""
        number = self._definitions.add(Definition(node, base, pass_))
        context = self.context
        assert self._pool is not None
        self._pool.define(number, is_stream, (context.index(node), context.index(base), pass_))
        if self._trace is not None:
            self._trace.stage(number, context.label(node))
        return number

    def look_after(self, repeated: AheadRepeated) -> None:
        """Let a repeat open its next pass early."""
        self._repeats.append(repeated)


def _budget_of(options: Options, tuning: Tuning | None) -> int:
    """Bytes that an iterator's slots may have."""
    asked = options.memory_budget
    nbytes = default_budget().nbytes if asked is None else parse_bytes(asked)
    if tuning is not None and options.autotune.ram_budget is not None:
        return min(nbytes, options.autotune.ram_budget)
    return nbytes
