"""AUTOTUNE for one iterator: feeds the tuner with measurements, and holds its decision.

It outlives the iterator's engines: if elements are so small that workers cost more than they save, the iterator
continues in its own process, and perhaps returns to workers later, from its current position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tundish.loader.run.watching.queueing import Queue
from tundish.loader.watch.throughput import EventSample
from tundish.loader.watch.tuner import Tuner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tundish.loader.plan.options import Options
    from tundish.loader.run.watching.queueing import Runner
    from tundish.loader.watch.stats import NodeStats, Stats

_MOST = 32
_PER_CORE = 4


class Counters(NamedTuple):
    """Counters at one moment, by ``perf_counter``."""

    at: float
    delivered: int
    waited_s: float
    own_s: float
    outside_s: float
    busy_s: float
    cpu_s: float
    consumer_cpu_s: float
    functions_s: float


class Tuning:
    """The tuner of one iterator.

    Parameters
    ----------
    options : Options
        The iterator's options.
    cores : int
        The number of cores that may be used.
    inline : bool
        True if the consumer's process may compute, too.
    first : int, optional
        The number of cores that are used first, on this machine; the others are seats of a service.

    Attributes
    ----------
    workers : int
        The number of workers wanted now.
    changes : list of (float, int)
        When the number was changed, in seconds since the iterator was made, and the new number.
    """

    every_s = 0.1
    """Seconds between two decisions on the number of workers."""

    def __init__(
        self, options: Options, cores: int, *, inline: bool, first: int | None = None
    ) -> None:
        asked = options.autotune
        least = asked.min_parallelism or 0
        most = options.threading.private_threadpool_size or max(_MOST, _PER_CORE * cores)
        if first is not None:
            most = cores  # a seat is one worker
        least = max(least, 0 if inline else 1)
        most = max(most, least, 1)
        self.workers = min(most, max(1, least, asked.initial_parallelism or first or cores))
        self._inline = inline
        self.tuner = Tuner(cores, self.workers, least, most)
        self.changes: list[tuple[float, int]] = []
        self._queue = Queue(cores)
        self._before: Counters | None = None
        self._wall_s = 0.0  # seconds of closed engines

    def observe(self, stats: Stats, starting: int, runners: Iterable[Runner]) -> int | None:
        """Feed the tuner with statistics; return a new number of workers, or None.

        Parameters
        ----------
        stats : Stats
            Statistics of the iterator's engine.
        starting : int
            The number of workers that are still starting.
        runners : iterable of Runner
            The other workers' processes.
        """
        counted, before = _counted(stats), self._before
        self._before = counted
        if before is None or counted.delivered < before.delivered:
            return None
        # An estimate from samples may become smaller: the difference then says nothing.
        change = [max(0.0, b - a) for a, b in zip(before, counted, strict=True)]
        seconds, delivered, waited_s, own_s, outside_s, busy_s, cpu_s, consumer, functions = change
        wanted = self.tuner.observe(
            EventSample(
                seconds=seconds,
                delivered=int(delivered),
                waited_s=waited_s,
                own_s=own_s,
                outside_s=outside_s,
                busy_s=busy_s,
                cpu_s=cpu_s,
                workers=stats.workers,
                queued_s=self._queue.since(runners, busy_s, cpu_s),
                consumer_cpu_s=consumer,
                functions_s=max(0.0, functions),
                starting=starting,
            )
        )
        if wanted is None or wanted == self.workers:
            return None
        self.workers = wanted
        self.changes.append((self._wall_s + stats.wall_s, wanted))
        self._before = (
            None  # what began with the old number of workers says nothing about the new one
        )
        return wanted

    def bound(self, workers: int) -> None:
        """Limit the number of workers: the system cannot start more."""
        self.workers = workers
        self.tuner.bound(workers)

    def moved(self, wall_s: float) -> None:
        """Note that the iterator has a new engine; `wall_s` is how long its earlier engines ran."""
        self._wall_s = wall_s
        self._before = None

    def restart(self) -> None:
        """Start counting anew, after the iterator loaded a state."""
        self.changes.clear()
        self.moved(0.0)

    def stay(self) -> bool:
        """Stay in the consumer's process since no worker could be started; return False if workers are required."""
        from_here = self._inline and self.workers > 0
        self.workers = 0 if from_here else self.workers
        return from_here


def _counted(stats: Stats) -> Counters:
    stages = [stage for stage in stats.stages if stage.where == "workers"]
    functions = (_usual_s(node) for stage in stages for node in stage.nodes if node.calls)
    return Counters(
        stats.wall_s,
        stats.elements + stats.errors,
        stats.waited_s,
        stats.own_s,
        stats.outside_s,
        sum(stage.busy_s for stage in stages),
        sum(stage.cpu_s for stage in stages),
        stats.cpu_s,
        sum(functions),
    )


def _usual_s(node: NodeStats) -> float:
    """Return the usual time of a node, without the rare outliers when another program had the core."""
    if not node.time.mean_s:  # only its openings are timed, and not its calls
        return node.busy_s
    return node.busy_s * min(1.0, node.time.quantile_s(0.5) / node.time.mean_s)
