"""Throughput: the time of an element, the gain of another number of workers, and how far ahead they should be.

A `EventSample` is what happened in a short time, a `Measure` what that comes to for an element, and `predicted` the
model: an element comes no faster than the consumer takes it, the cores compute it, or the workers make it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, sqrt
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.watch.histogram import Histogram

GAIN = 1.03
"""How many times the throughput is worth a change."""

_JUMP = 16  # times as many at once
_NEAR = 0.98  # of what the most workers would give
_LITTLE = 0.1  # of the time: who waits less computes
_AHEAD = 1.15  # times what the consumer takes, since both are uneven


@dataclass(frozen=True)
class EventSample:
    """The events of a short time.

    Attributes
    ----------
    seconds : float
        How long it was.
    delivered : int
        How many elements the consumer got.
    waited_s, own_s, outside_s : float
        How ``next`` and the consumer spent it: waiting for workers, at work itself, outside of ``next``.
    busy_s, cpu_s : float
        How long workers worked at the tasks that were answered in that time, and how much of it a
        core worked for them.
    workers : int
        How many there were; 0: the consumer's own process, and nothing is known of what workers do.
    consumer_cpu_s : float
        CPU time of the consumer's process, all threads of it but workers.
    functions_s : float or None
        About how much of `busy_s` the user's functions took; None: nobody knows.
    starting : int
        How many of the workers have not begun: they start, and import what they need.
    queued_s : float
        How long workers were ready to run in that time and had no core; 0.0 where nobody knows.
    """

    seconds: float
    delivered: int
    waited_s: float
    own_s: float
    outside_s: float
    busy_s: float
    cpu_s: float
    workers: int
    consumer_cpu_s: float = 0.0
    functions_s: float | None = None
    starting: int = 0
    queued_s: float = 0.0


@dataclass(frozen=True)
class Measure:
    """The time that an element takes with so many workers: means in seconds, of several samples.

    Attributes
    ----------
    workers, delivered : int
        With how many, and how many elements.
    seconds : float
        How long was measured.
    each_s : float
        From one element to the next.
    waited_s, outside_s, busy_s, cpu_s, queued_s, consumer_cpu_s, functions_s
        Of it, as in `EventSample`.
    error : float
        The standard error of `each_s`, relative to it.
    usual_s : float
        The median of what the samples say of `each_s`: a pause of the consumer is not in it.
    """

    workers: int
    delivered: int
    seconds: float
    each_s: float
    waited_s: float
    outside_s: float
    busy_s: float
    cpu_s: float
    consumer_cpu_s: float
    functions_s: float | None
    error: float
    usual_s: float
    queued_s: float = 0.0

    @property
    def blocked_s(self) -> float:
        """The time that workers wait for something that is no core: a disk, a network, sleep."""
        return max(0.0, self.busy_s - self.cpu_s - self.queued_s)

    @classmethod
    def of(cls, samples: Sequence[EventSample]) -> Measure | None:
        """Make a measure of samples with one number of workers; None as long as there is no element."""
        count = sum(s.delivered for s in samples)
        if not count:
            return None
        seconds = sum(s.seconds for s in samples)
        each, k = seconds / count, len(samples)
        spread = sum((s.seconds - each * s.delivered) ** 2 for s in samples)
        error = sqrt(spread * k / (k - 1)) / seconds if k > 1 else inf
        functions = [s.functions_s for s in samples]
        known = [f for f in functions if f is not None]
        return cls(
            workers=samples[-1].workers,
            delivered=count,
            seconds=seconds,
            each_s=each,
            waited_s=sum(s.waited_s for s in samples) / count,
            outside_s=sum(s.outside_s for s in samples) / count,
            busy_s=sum(s.busy_s for s in samples) / count,
            cpu_s=sum(s.cpu_s for s in samples) / count,
            consumer_cpu_s=sum(s.consumer_cpu_s for s in samples) / count,
            functions_s=sum(known) / count if len(known) == k else None,
            error=error,
            usual_s=median(s.seconds / s.delivered for s in samples if s.delivered),
            queued_s=sum(s.queued_s for s in samples) / count,
        )


def computed_per_s(workers: int, wait_s: float, cpu_s: float, cores: float) -> float:
    """Return the elements a second of workers that wait, and compute on shared cores, in turns.

    The "machine repairman" of queueing theory: exact for times that are exponentially distributed;
    evener ones give a little more.

    Parameters
    ----------
    workers : int
        How many.
    wait_s, cpu_s : float
        How long an element waits (disk, network, sleep), and how long it keeps a core busy.
    cores : float
        How many there are.

    Examples
    --------
    >>> computed_per_s(8, 0.010, 0.0, cores=2)  # sleeping
    800.0
    >>> computed_per_s(8, 0.0, 0.010, cores=2)  # computing
    200.0
    >>> [round(computed_per_s(n, 0.010, 0.010, cores=2)) for n in (2, 4, 8)]
    [100, 170, 200]
    """
    if wait_s <= 1e-3 * cpu_s:
        return min(workers, cores) / cpu_s if cpu_s else inf
    if cpu_s <= 1e-6 * wait_s:
        return workers / wait_s
    weight, weights, rate = 1.0, 1.0, 0.0
    for computing in range(1, workers + 1):
        served = min(computing, cores) / cpu_s
        weight *= (workers - computing + 1) / wait_s / served
        weights += weight
        rate += weight * served
        if weights > 1e200:
            weight, weights, rate = weight / weights, 1.0, rate / weights
    return rate / weights


def computes(blocked_s: float, cpu_s: float) -> bool:
    """Return True if a function keeps a core busy as long as it has one, but for a little.

    Parameters
    ----------
    blocked_s, cpu_s : float
        How long a call waits for something that is no core, and how long it keeps a core busy.
    """
    return blocked_s < _LITTLE * (blocked_s + cpu_s)


def warranted(blocked_s: float, cpu_s: float, cores: int, most: int) -> int:
    """Give the most workers that functions are a reason for, whatever else the machine does.

    Those that compute warrant as many as there are cores: more would only take cores from other programs, or
    from one another. Those that wait as well warrant as many as keep the cores busy.

    Parameters
    ----------
    blocked_s, cpu_s : float
        How long a call waits for something that is no core, and how long it keeps a core busy.
    cores : int
        How many this process may use.
    most : int
        How many workers there may be.

    Examples
    --------
    >>> warranted(0.0, 0.016, cores=2, most=32), warranted(0.010, 0.0, cores=2, most=32)
    (2, 32)
    >>> warranted(0.016, 0.016, cores=2, most=32)
    7
    """
    if computes(blocked_s, cpu_s):
        return min(cores, most)
    if cpu_s <= 1e-6 * blocked_s:
        return most
    wanted = _NEAR * cores / cpu_s
    fits = (n for n in range(cores, most) if computed_per_s(n, blocked_s, cpu_s, cores) >= wanted)
    return next(fits, most)


class WorkerForecast(NamedTuple):
    """The number of workers it takes, and what they would give.

    Attributes
    ----------
    workers : int
        How many.
    gain : float
        How many times the throughput that was measured.
    """

    workers: int
    gain: float


def predicted(seen: Measure, cores: int, most: int) -> WorkerForecast:
    """Return what more workers would give.

    An element cannot come faster than the consumer takes it, nor than the cores compute it, workers' and
    consumer's part together. Below that, workers give what `computed_per_s` says, times how far what
    was measured is from what it says for the number there is (stragglers, starving, other programs).
    More than `warranted` are never called for.

    Parameters
    ----------
    seen : Measure
        Of at least one worker.
    cores : int
        How many this process may use.
    most : int
        How many workers there may be.

    Returns
    -------
    WorkerForecast
        The fewest that come near the best; those there are, with gain 1, where the consumer hardly waits.
    """
    none = WorkerForecast(seen.workers, 1.0)
    taken_s = max(seen.each_s - seen.waited_s, 1e-9)
    if seen.each_s < GAIN * taken_s or seen.busy_s <= 0:
        return none
    cpu_s = seen.cpu_s
    queued_s = min(seen.queued_s, max(0.0, seen.busy_s - cpu_s))
    idle_s = max(0.0, seen.workers * seen.each_s - cpu_s - queued_s)  # waiting, or without a task
    computing_s = cpu_s + seen.consumer_cpu_s
    bound = min(1 / taken_s, cores / computing_s if computing_s > 0 else inf)
    left = max(0.5, cores - seen.consumer_cpu_s * bound)  # cores for workers

    def model(workers: int) -> float:
        return computed_per_s(workers, idle_s, cpu_s, left)

    fits = 1 / (seen.each_s * model(seen.workers))
    reach = min(_JUMP * seen.workers, warranted(seen.blocked_s, cpu_s, cores, most))
    if reach <= seen.workers:
        return none
    wanted = min(_AHEAD / taken_s, _NEAR * fits * model(reach))
    workers = next((w for w in range(seen.workers, reach) if fits * model(w) >= wanted), reach)
    return WorkerForecast(workers, min(bound, fits * model(workers)) * seen.each_s)


_ENOUGH = 64  # tasks
_TAIL = 4.0  # times the mean: what is slower than the others holds them up


def window(workers: int, tasks: Histogram, per_block: float, now: int, *, least: int = 3) -> int:
    """Return how many blocks may be under way or ready, so that slow tasks do not hold up the others.

    While one block waits for the slowest of its tasks, the workers make others:
    ``2 + workers * p99.9(time of a task) / work of a block`` keep them busy. Tasks are handed out before
    it is known who will be free first: those behind a slow one wait with it. So there are twice as many,
    and no fewer than two and a half tasks a worker. Whether there is memory for so many is for the
    caller to know.

    Parameters
    ----------
    workers : int
        How many.
    tasks : Histogram
        How long tasks took, each worker's first ones left out: they import.
    per_block : float
        How many tasks a block is cut into.
    now : int
        How many there may be now; 0: nothing was said yet.
    least : int
        No fewer than these.

    Returns
    -------
    int
        `now`, unless it should be larger by a tenth, or smaller by a quarter at least.
    """
    per_block = max(1.0, per_block)
    ahead = 2.5 * workers / per_block
    if tasks.count >= _ENOUGH and tasks.mean_s > 0:
        slowest = tasks.quantile_s(min(0.999, 1 - 1 / tasks.count))
        behind = slowest / tasks.mean_s
        if behind > _TAIL:
            ahead = max(ahead, 2 * workers * behind / per_block)
    wanted = max(least, 2 + ceil(ahead))
    return wanted if wanted > 1.1 * now or wanted <= 0.75 * now else now
