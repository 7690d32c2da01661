"""The engine with workers: delivers elements in order, each as soon as it is ready."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tundish.forked import misused
from tundish.loader.plan.node import AUTOTUNE
from tundish.loader.protocols.chunk import at_once, taken
from tundish.loader.protocols.items import Failure, NotReady
from tundish.loader.protocols.ownership import frozen
from tundish.loader.protocols.rows import Row, Rows
from tundish.loader.protocols.state_parsing import go_to
from tundish.loader.run.coordinating.coordinator import Coordinator
from tundish.loader.run.coordinating.deaths import Deaths
from tundish.loader.run.coordinating.lookahead import LookAhead
from tundish.loader.run.coordinating.memory import Memory
from tundish.loader.run.coordinating.planner import ParallelPlanner
from tundish.loader.run.coordinating.seat import WriterStage
from tundish.loader.run.engine import Engine
from tundish.loader.run.inline.reference import open_inline
from tundish.loader.run.parallelism import budget_of
from tundish.loader.run.pool.crew import crew_of
from tundish.loader.run.pool.recruiting import descriptors_for
from tundish.loader.run.stages.overtaking import left_out
from tundish.loader.run.starting.critical import uninterrupted
from tundish.loader.run.storing.live import linger as linger_on
from tundish.normalising import copy_element
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine
    from tundish.loader.run.coordinating.placement import Staff
    from tundish.loader.run.pool.peers import WorkerSpec
    from tundish.loader.run.pool.pool import Pool
    from tundish.loader.run.stages.stage import Stage
    from tundish.loader.run.watching.queueing import Runner
    from tundish.loader.run.watching.tracing import Trace
    from tundish.loader.run.watching.tuning import Tuning
    from tundish.loader.watch.stats import StageStats, Stats
    from tundish.loader.watch.watch import Watch

_LEAVING_S = 0.2
_LOOK_EVERY_S = 0.0002


class ParallelEngine(Engine):
    """An engine whose elements are computed by workers.

    Parameters
    ----------
    context : Context
        The iterator's context.
    options : Options
        Its options.
    workers : int
        The number of workers; with 0, elements are computed in this process and only a snapshot is written by another.
    executor : {"process", "thread"}
        The kind of worker.
    tuning : Tuning, optional
        Decides on the number of workers during the run.
    staff : Staff, optional
        The seats of a service; they are given back when the engine is closed.
    """

    def __init__(
        self,
        context: Context,
        options: Options,
        workers: int,
        executor: str,
        tuning: Tuning | None = None,
        *,
        staff: Staff | None = None,
    ) -> None:
        super().__init__(context, options, tuning)
        self._executor, self._staff = executor, staff
        tuned = tuning is not None
        kept = workers * context.room if context.reads_tables else 0
        memory = Memory(budget_of(options, tuned=tuned) - kept)
        deaths = Deaths(options.max_deaths, options.deadline)
        lookahead = LookAhead(context.nodes, tuned=tuned)
        self._coordinator = Coordinator(workers, memory, deaths, lookahead)
        self._looked = 0.0
        self._slack = bool(options.slack)
        self._trace: Trace | None = None
        self._pool: Pool | None = None
        self._mark: Any = (None,)  # after the delivered elements; None: ask the network
        self._before: Any = self._mark

    def open(self, position: Any) -> None:
        coordinator, recorders = self._coordinator, self._recorders
        with descriptors_for(f"{coordinator.workers} workers"):
            self._trace = self._opened_trace(coordinator.workers)
            self._timed = self._timed or self._trace is not None
            # Pickling calls the user's functions, which Ctrl-C must end.
            crew = crew_of(self.context, self.options, self._executor, clocked=self._timed)
            with uninterrupted():
                self._start(coordinator, crew)
        if recorders:
            seat = WriterStage(coordinator, self.context)
            for recorder in recorders:
                recorder.carrier = seat
        self._kept = self.context.root.kept
        self._network: Machine
        if coordinator.workers:
            planner = self._planner(coordinator)
            self._network = planner.computed(self.context.root, self.context.iteration)
        else:  # there is only a writer
            for recorder in recorders:
                recorder.wait = self._wait_for_writer
            self._network = open_inline(self.context, self.options)
        if position is not None:
            self._network = left_out(self._network, position)
            go_to(self._network, position)
        self._mark = self._before = self._network.mark()
        coordinator.feed()

    def _planner(self, coordinator: Coordinator) -> ParallelPlanner:
        if not self.context.services:
            return ParallelPlanner(coordinator, self.context, self.options)
        from tundish.loader.run.coordinating.placement import PlacedPlanner  # noqa: PLC0415 - few have one

        return PlacedPlanner(coordinator, self.context, self.options)

    def _start(self, coordinator: Coordinator, crew: WorkerSpec) -> None:
        if self._staff is not None:
            crew = self._staff.hired(crew)
        writers = min(1, len(self._recorders))
        homes = 1 if self._staff is None else self._homes()
        self._pool = coordinator.open(crew, self._trace, writers=writers, homes=homes)
        if self._staff is not None and self.options.service.pinned and not coordinator.memory.pin():
            warnings.warn(
                "Options.service.pinned: this process knows no device that could copy from pinned memory, so batches are in "
                "ordinary memory; import tundish.torch where CUDA is available",
                stacklevel=callers_level(),
            )

    def _homes(self) -> int:
        """Return how many workers the operators after a service's node ask for, if this machine has no others."""
        from tundish.loader.run.coordinating.placement import Placement  # noqa: PLC0415 - few have one

        placement = Placement(self.context.nodes)
        after = [node for node in self.context.nodes if not placement.is_served(node)]
        asked = [count for count in map(self.options.parallel_of, after) if count is not None]
        return self.options.cores(self._cores) if AUTOTUNE in asked else max([1, *asked])

    # -- elements ------------------------------------------------------------------------------

    def next(self) -> Any:
        coordinator = self._coordinator
        if os.getpid() != coordinator.owner:
            raise misused(coordinator.owner)
        if self._timed:
            self._ledger.enter()
        if self._recorders:
            self.told()
        if self._slack:
            coordinator.feed()
        if self._mark is None:
            self._mark = self._network.mark()
        self._before = self._mark
        item = self._awaited(self._network.next)
        element = self._deliver(item)
        failed = type(element) is Failure  # an exception may be an element like any other
        mark = self._network.mark()
        self._mark, self.given = mark, -1 if failed else 1  # no call in between, and below
        if failed:
            self._errors += 1
        else:
            self._elements += 1
        coordinator.moved = False
        if not self._slack:
            coordinator.feed()
        self._look(element)
        if failed:
            try:
                raise element.error
            finally:
                del item, element  # else the error and this frame would keep each other
        return element

    def _several(self) -> list[Any] | None:
        network = self._network
        if self.context.probes or os.getpid() != self._coordinator.owner:
            return None
        if not self._coordinator.workers:  # there is only a writer
            return None
        if self._timed:
            self._ledger.enter()
        if self._mark is None:
            self._mark = network.mark()
        self._before, self._undo = self._mark, self._elements
        most = self._awaited(lambda: at_once(network))
        chunk = None if most == 1 else self._awaited(lambda: taken(network, most))
        if chunk is None:  # the caller goes on with `next`, in the same call
            self._undo = None
            return None
        elements: list[Any] = chunk.values
        self._mark, self.given = None, 1
        self._elements += len(elements)
        # Of the same length, for statistics that are reported during this call.
        self.handed = range(len(elements) - 1)
        if self._kept:
            for element in elements:
                frozen(element)
        self._coordinator.feed()
        self._look(elements[0])
        return elements

    def _awaited(self, ask: Callable[[], Any]) -> Any:
        """Return a machine's result, waiting for workers while it is not ready."""
        while True:
            try:
                return ask()
            except NotReady:
                pass
            self._wait()  # outside the `except`: an interrupt would be chained to NotReady

    def _wait(self) -> None:
        coordinator, pool = self._coordinator, self._pool
        assert pool is not None
        if coordinator.goes_on():
            return
        left = None
        if self.until is not None:
            left = self.until - time.monotonic()
            if left <= 0:
                raise NotReady
        try:
            coordinator.wait(self._ledger, left)
        except BaseException:
            self.idle = pool.idle
            raise

    def _deliver(self, item: Any) -> Any:
        kind = type(item)
        if kind is Failure:
            return item
        if kind is Rows:
            ((block, first, stop, _),) = item.runs
            element = block.batch(first, stop, copy=self._coordinator.runs_short(block))
        elif kind is Row:
            block = item.block
            element = block.element(item.row, copy=self._coordinator.runs_short(block))
        else:
            element = copy_element(item.value)
        refusal = self._refused(item, element) if self.context.probes else None
        if refusal is not None:
            return refusal
        return frozen(element) if self._kept else element

    def _look(self, element: Any) -> None:
        """Process workers' answers; skipped for most small elements."""
        now = time.perf_counter()
        if now - self._looked > _LOOK_EVERY_S:
            self._pool.pump(0.0)  # type: ignore[union-attr]  # open
            self._weigh(element)
            self._tick(now)
            self._looked = now = time.perf_counter()
        if self._timed:
            took = self._ledger.leave(now)
            if self._trace is not None:
                self._trace.gave(took)

    # -- state ---------------------------------------------------------------------------------

    def take_back(self) -> None:
        if self.given:
            self._mark = self._before
            self._uncount()

    def position(self, left: int = 0) -> Any:
        return self.marked(left)()

    def position_within(self) -> Any:
        network, mark = self._network, self._before if self.given else self._mark
        return network.dump(network.mark() if mark is None else mark)

    def marked(self, left: int = 0) -> Callable[[], Any]:
        network: Any = self._network
        return partial(network.dump, network.mark(left) if self._mark is None else self._mark)

    # -- around --------------------------------------------------------------------------------

    def wakes(self) -> int | None:
        return self._pool.fileno() if self._pool is not None else None

    @property
    def starting(self) -> int:
        return self._pool.starting if self._pool is not None else 0

    def _resize(self, workers: int) -> None:
        if workers:
            if self._staff is not None:
                self._staff.want(workers)
            self._coordinator.resize(workers)
            if self.tuning is not None and self._coordinator.workers < workers:
                self.tuning.bound(self._coordinator.workers)
        else:
            self.wanted = 0  # in another engine

    def _tick(self, now: float) -> None:
        if self._staff is not None:
            self._look_for_seats(self._staff)
        self._coordinator.tick(now)
        super()._tick(now)

    def _look_for_seats(self, staff: Staff) -> None:
        """Take the seats that have been dealt meanwhile, unless the tuner decides on them."""
        seats = staff.seats()
        if self.tuning is None and seats != self._coordinator.workers and seats:
            self._coordinator.resize(seats)

    def pump(self) -> None:
        if self._pool is not None:
            self._pool.pump(0.0)
            self._coordinator.feed()

    def worker_pids(self) -> list[int]:
        return self._coordinator.worker_pids()

    def runners(self) -> list[Runner]:
        return self._pool.runners() if self._pool is not None else []

    def stats(self, *, whole: bool = True) -> Stats:
        stages = _measured(self.context.watch, self._coordinator.stages)
        return self._coordinator.standing(replace(super().stats(), stages=stages), whole=whole)

    # -- orders to the writer ------------------------------------------------------------------

    def save(self) -> None:
        super().save()
        # After the end all orders have been answered, or are left to a writer that lingers.
        if self._pool is not None:
            self._settle(None)

    def _settle(self, timeout_s: float | None) -> bool:
        """Wait until all orders have been answered; return True if they have."""
        pool, deadline = self._coordinator.pool, time.monotonic() + (timeout_s or 0.0)
        assert pool is not None
        while any(recorder.pending for recorder in self._recorders):
            self._coordinator.submit()
            if pool.cut:
                return False
            left = None if timeout_s is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            pool.pump(left)
        return True

    def _wait_for_writer(self) -> None:
        pool = self._coordinator.pool
        assert pool is not None
        self._coordinator.submit()
        pool.pump(None)

    # -- the end -------------------------------------------------------------------------------

    def finish(self) -> None:
        self._mark = self._network.mark()
        if self._timed:
            self._ledger.leave(time.perf_counter())
        self.close()

    def close(self) -> None:
        if os.getpid() != self._coordinator.owner:
            return
        # As a whole: an interrupt before it leaves the engine open, to be closed later.
        with uninterrupted():
            pool, self._pool = self._pool, None
            if pool is not None:
                self._ledger.end()
                self.reporter.end()
                self._end(pool)
            if self._staff is not None:
                self._staff.close()
            self.context.close_files()

    def _end(self, pool: Pool) -> None:
        linger = False
        if self._recorders:
            try:
                self.leave()
                linger = not self._settle(_LEAVING_S)
            except Exception:  # noqa: BLE001 - such as of a writer that cannot start: elements that are not durable are computed again
                linger = False
        writers = pool.writing if linger else []
        self._coordinator.close(linger=linger)
        if writers:
            gone = [writer.is_gone for writer in writers]
            for recorder in self._recorders:
                linger_on(recorder.target.path, recorder.target.key, gone)


def _measured(watch: Watch, stages: Iterable[Stage]) -> tuple[StageStats, ...]:
    """Return each stage's statistics, with what is in flight."""
    from tundish.loader.watch.stats import with_begun  # noqa: PLC0415 - if somebody asks

    given: dict[str, tuple[int, int, int]] = {}
    for meter in watch.meters.values():
        meter.in_flight = meter.ready = 0
    for stage in stages:
        meter, blocks = stage.meter, stage.queued()
        left = sum(1 for block in blocks if block.left)
        meter.in_flight += left
        meter.ready += len(blocks) - left
        meter.window = max(stage.window, meter.window)
        before = given.get(meter.name, (0, 0, 0))
        given[meter.name] = tuple(map(sum, zip(before, stage.begun(), strict=True)))  # type: ignore[assignment]  # of three
    return tuple(with_begun(stage, *given.get(stage.name, (0, 0, 0))) for stage in watch.stages())
