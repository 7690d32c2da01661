"""A pipeline that is made up: consumer, coordinator and workers on a few cores, in made-up time.

Every element is cut into tasks. A worker waits (a disk, a network), computes, and takes its next task; who computes
shares the cores evenly with all who do. The consumer takes elements in order, and the coordinator keeps as many
under way as `window` says. What it measures goes to a tuner every tenth of a second, as in the engine.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

from tundish.loader.watch.histogram import Durations
from tundish.loader.watch.throughput import EventSample, window

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.watch.tuner import Tuner

_SUMS = ("waited", "own", "outside", "busy", "cpu", "queued", "consumer")
PERIOD_S = 0.1
STARTING_S = 0.005
IMPORTING_S = 0.05
TASK_S = 60e-6
"""What a task costs a worker beside the work."""
AIM_S = 0.004
"""How long a task should take."""


@dataclass(frozen=True)
class Work:
    """The time and the processor that elements take.

    Attributes
    ----------
    name : str
        Of the workload.
    wait_s, cpu_s : float
        What the functions wait and compute for an element, on average.
    spread : {"even", "exponential", "lognormal", "stragglers"}
        How that varies; stragglers: one of a hundred takes a hundred times as long.
    own_s : float
        What the coordinator computes for an element.
    takes_s, thinks_s : float
        What the consumer waits (an accelerator) and computes for an element.
    at_once : int
        How many may wait at a time (a disk's queue); 0: any number.
    importing_s : float
        What a worker's first task takes beside.
    rows : int
        Of how many rows an element is: into so many tasks it may be cut.
    functions_s : float or None
        What the functions alone take for an element; None: all of it.
    alone_s : float or None
        What an element takes in the consumer's process, functions and all; None: as in a worker.
    pause : (float, float)
        How often and how long the consumer does something else.
    later : (float, Work) or None
        When the work becomes other work.
    """

    name: str
    wait_s: float = 0.0
    cpu_s: float = 0.0
    spread: str = "even"
    own_s: float = 100e-6
    takes_s: float = 0.0
    thinks_s: float = 0.0
    at_once: int = 0
    importing_s: float = IMPORTING_S
    rows: int = 8
    functions_s: float | None = None
    alone_s: float | None = None
    pause: tuple[float, float] = (math.inf, 0.0)
    later: tuple[float, Work] | None = None


class Simulation:
    """Run a workload.

    Parameters
    ----------
    work : Work
        What.
    cores : int
        How many.
    workers : int
        With how many it begins.
    tuner : Tuner, optional
        Who may change that.
    seed : int
        Of the variation.
    noise : float
        By how much the machine's speed varies from one half second to the next (relative).
    others : int
        How many other programs keep a core busy, or the share of one that is to be had.
    """

    def __init__(
        self,
        work: Work,
        cores: int,
        workers: int,
        tuner: Tuner | None = None,
        *,
        seed: int = 0,
        noise: float = 0.0,
        others: int = 0,
    ) -> None:
        self.work, self.cores, self.tuner, self.noise = work, cores, tuner, noise
        self._others = others
        self.now = 0.0
        self.delivered = 0
        self.changed: list[tuple[float, int]] = []
        self._random = random.Random(seed)
        self._factors = [self._factor() for _ in range(2003)]
        self._drawn = 0
        self._timed: list[tuple[float, int, Callable[[], None]]] = []
        self._computing: list[tuple[float, int, Callable[[], None]]] = []
        self._virtual = self._virtual_at = 0.0
        self._serial = 0
        self._speed, self._speed_until = 1.0, 0.0
        self._using = 0
        self._queued: deque[tuple[float, Callable[[], None]]] = deque()
        self._workers: list[_Worker] = []
        self._fresh = 0  # of them have done no task yet
        self._issued = 0
        self._made: dict[int, int] = {}  # how many tasks are left of an element under way
        self._tasks = Durations()
        self.window = self._looked = 0
        self._starting = 0
        self._waiting = False
        self._since = 0.0
        self._paused = 0.0
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._sampled, self._sampled_count = 0.0, 0
        self._resize(workers)
        self._step()

    # -- time ----------------------------------------------------------------------------------

    def run(self, until: float) -> int:
        """Go on to a time; how many elements were delivered meanwhile."""
        before = self.delivered
        while True:
            at, cpu_at = math.inf, math.inf
            if self._timed:
                at = self._timed[0][0]
            if self._computing:
                cpu_at = self._virtual_at + (self._computing[0][0] - self._virtual) / self._rate()
            if min(at, cpu_at) > until:
                self._advance(until)
                return self.delivered - before
            if at <= cpu_at:
                self._advance(at)
                heapq.heappop(self._timed)[2]()
            else:
                self._advance(max(cpu_at, self.now))
                heapq.heappop(self._computing)[2]()

    def _rate(self) -> float:
        """Return the speed of each that computes."""
        return self._speed * min(1.0, self.cores / (len(self._computing) + self._others))

    def _advance(self, to: float) -> None:
        if self._computing:
            self._virtual += (to - self._virtual_at) * self._rate()
        self._virtual_at = self.now = to
        if self.noise and to >= self._speed_until:
            self._speed = math.exp(self._random.gauss(0.0, self.noise))
            self._speed_until = to + 0.5

    def _after(self, seconds: float, then: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._timed, (self.now + seconds, self._serial, then))

    def compute(self, seconds: float, then: Callable[[], None]) -> None:
        """Keep a core busy, or the share of one that is to be had."""
        self._advance(self.now)
        self._serial += 1
        heapq.heappush(self._computing, (self._virtual + seconds, self._serial, then))

    # -- work ----------------------------------------------------------------------------------

    def _factor(self) -> float:
        spread = self.work.spread
        if spread == "exponential":
            return self._random.expovariate(1.0)
        if spread == "lognormal":
            return self._random.lognormvariate(-0.5, 1.0)
        if spread == "stragglers":
            return (100.0 if self._random.random() < 0.01 else 1.0) / 1.99
        return self._random.uniform(0.9, 1.1)

    def factor(self) -> float:
        """Return how much longer than usual the next task takes."""
        self._drawn = (self._drawn + 1) % len(self._factors)
        return self._factors[self._drawn]

    def wait(self, seconds: float, then: Callable[[], None]) -> None:
        """Wait for a disk, with others who do."""
        if not seconds:
            then()
            return
        if self.work.at_once and self._using >= self.work.at_once:
            self._queued.append((seconds, then))
            return
        self._using += 1

        def over() -> None:
            self._using -= 1
            if self._queued:
                self.wait(*self._queued.popleft())
            then()

        self._after(seconds, over)

    # -- workers -------------------------------------------------------------------------------

    def _resize(self, count: int) -> None:
        had = self._workers
        self._looked = 0
        self._workers = had[:count]
        for worker in had[count:]:
            worker.leaving = True
        while len(self._workers) < count:
            self._workers.append(_Worker(self))
            self._starting += 1
        self._fresh = sum(worker.fresh for worker in self._workers)
        orphans = [task for worker in had[count:] for task in worker.tasks]
        self._issued = max(self._issued, self.delivered)  # what was made without them
        if count:
            for task in sorted(orphans):
                self._hand_out(task)
            self._feed()
        else:  # what is under way is left, and made again here
            self._issued = self.delivered
            self._made.clear()

    @property
    def parts(self) -> int:
        """Into how many tasks an element is cut."""
        work = self.work
        fit = int((work.wait_s + work.cpu_s) / AIM_S)
        return max(1, min(work.rows, fit, 4 * len(self._workers)))

    def _hand_out(self, task: tuple[int, float]) -> None:
        worker = min(self._workers, key=_LOAD)
        worker.tasks.append(task)
        worker.load += task[1]
        worker.go_on()

    def _feed(self) -> None:
        if not self._workers:
            return
        parts = self.parts
        if self._tasks.count >= self._looked:
            self._looked = self._tasks.count * 5 // 4
            self.window = window(len(self._workers), self._tasks.frozen(), parts, self.window)
        while self._issued - self.delivered < self.window:
            self._made[self._issued] = parts
            for _ in range(parts):
                self._hand_out((self._issued, 1 / parts))
            self._issued += 1

    def warmed(self, worker: _Worker) -> None:
        """A worker has done its first task."""
        worker.fresh = False
        self._fresh -= not worker.leaving

    def done(self, index: int, seconds: float, cpu_s: float, queued_s: float) -> None:
        """A worker has done a task."""
        self._sums["busy"] += seconds
        self._sums["cpu"] += cpu_s
        self._sums["queued"] += queued_s
        if self._fresh:  # as the coordinator does
            self._tasks.clear()
            self._looked = 0
        else:
            self._tasks.add(seconds)
        if index in self._made:
            self._made[index] -= 1
        if self._waiting and self._made.get(self.delivered) == 0:
            self._waiting = False
            self._sums["waited"] += self.now - self._since
            self._take()

    # -- consumer ------------------------------------------------------------------------------

    def _step(self) -> None:
        """`next` is called."""
        self._since = self.now
        if not self._workers:
            self._alone()
        elif self._made.get(self.delivered) == 0:
            self._take()
        else:
            self._waiting = True

    def _alone(self) -> None:
        work, factor = self.work, self.factor()
        cpu_s, wait_s = work.cpu_s * factor, work.wait_s * factor
        if work.alone_s is not None:
            cpu_s, wait_s = work.alone_s * factor, 0.0
        self._sums["consumer"] += cpu_s
        self._after(wait_s, lambda: self.compute(cpu_s, self._taken))

    def _take(self) -> None:
        self._since = self.now
        starting, self._starting = self._starting * STARTING_S, 0
        del self._made[self.delivered]
        own_s = self.work.own_s + starting
        self._sums["consumer"] += own_s
        self.compute(own_s, self._taken)

    def _taken(self) -> None:
        self.delivered += 1
        self._sums["own"] += self.now - self._since
        self._feed()
        self._tick()
        work = self.work
        pause_s = 0.0
        if self.now - self._paused >= work.pause[0]:
            self._paused, pause_s = self.now + work.pause[1], work.pause[1]
        self._since = self.now
        self._sums["consumer"] += work.thinks_s

        def outside() -> None:
            self._sums["outside"] += self.now - self._since
            self._step()

        def think() -> None:
            if work.thinks_s:
                self.compute(work.thinks_s, outside)
            else:
                outside()

        if work.takes_s + pause_s:
            self._after(work.takes_s + pause_s, think)
        else:
            think()

    def _tick(self) -> None:
        if self.work.later is not None and self.now >= self.work.later[0]:
            self.work = self.work.later[1]
        if self.now - self._sampled < PERIOD_S:
            return
        s, work = self._sums, self.work
        functions_s = work.functions_s
        if functions_s is None:
            functions_s = work.wait_s + work.cpu_s
        sample = EventSample(
            seconds=self.now - self._sampled,
            delivered=self.delivered - self._sampled_count,
            waited_s=s["waited"],
            own_s=s["own"],
            outside_s=s["outside"],
            busy_s=s["busy"],
            cpu_s=s["cpu"],
            queued_s=s["queued"],
            workers=len(self._workers),
            consumer_cpu_s=s["consumer"],
            functions_s=functions_s * (self.delivered - self._sampled_count),
        )
        self._sampled, self._sampled_count = self.now, self.delivered
        for name in s:
            s[name] = 0.0
        if self.tuner is not None:
            asked = self.tuner.observe(sample)
            if asked is not None:
                self.changed.append((self.now, asked))
                self._resize(asked)


class _Worker:
    """One worker of a simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.tasks: deque[tuple[int, float]] = deque()
        self.load = 0.0
        self.leaving = False
        self._at_work, self._new, self.fresh = False, True, True

    def go_on(self) -> None:
        if self._at_work or self.leaving or not self.tasks:
            return
        sim, work = self._simulation, self._simulation.work
        (index, share), began = self.tasks.popleft(), sim.now
        share_now = share * sim.factor()
        cpu_s = work.cpu_s * share_now + TASK_S + (work.importing_s if self._new else 0.0)
        self._new, self._at_work = False, True

        ready = began

        def done() -> None:
            self._at_work = False
            if self.fresh:
                sim.warmed(self)
            self.load -= share
            sim.done(index, sim.now - began, cpu_s, max(0.0, sim.now - ready - cpu_s))
            self.go_on()

        def compute() -> None:
            nonlocal ready
            ready = sim.now
            sim.compute(cpu_s, done)

        sim.wait(work.wait_s * share_now, compute)


_LOAD = attrgetter("load")


@cache
def rate(work: Work, cores: int, workers: int, others: int = 0) -> float:
    """Elements a second with a fixed number of workers, when all is warm."""
    simulation = Simulation(replace(work, later=None), cores, workers, others=others)
    least_s = 20 * (work.wait_s + work.cpu_s) + work.importing_s * workers / cores
    until = 1.0 + least_s
    while simulation.run(until) < 5 * simulation.window and until < 80:
        until += 1.0 + least_s
    began, before = until, simulation.delivered
    while simulation.delivered - before < 10 * simulation.window + 200 and until < began + 60:
        until += 1.0
        simulation.run(until)
    return (simulation.delivered - before) / (until - began)
