"""A model of throughput: the time of an element, and the gain from other numbers of workers.

An `EventSample` is what happened in a short time, a `Measure` the resulting time of an element, and `predicted` the
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
"""The least ratio of throughputs that is worth a change."""

_JUMP = 16  # the largest factor of one step
_NEAR = 0.98  # the part of the largest possible throughput that is enough
_LITTLE = 0.1  # the share of time below which waiting does not count, and a task computes
_AHEAD = 1.15  # the ratio to the consumer's rate that is enough, since both are uneven


@dataclass(frozen=True)
class EventSample:
    """The counts of a short time.

    Attributes
    ----------
    seconds : float
        Its length.
    delivered : int
        Elements delivered to the consumer.
    waited_s, own_s, outside_s : float
        How the time was spent: waiting for workers, in ``next`` itself, outside of ``next``.
    busy_s, cpu_s : float
        Seconds of work in the tasks answered in that time, and the part of it on a core.
    workers : int
        The number of workers; 0: the consumer's own process, and nothing is known of workers.
    consumer_cpu_s : float
        CPU seconds of the consumer's process, without worker threads.
    functions_s : float or None
        Approximate part of `busy_s` in user functions; None if unknown.
    starting : int
        The number of workers that are still starting and importing.
    queued_s : float
        Seconds that workers were ready to run without a core; 0.0 if unknown.
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
    """The mean time of an element with a number of workers, in seconds, over several samples.

    Attributes
    ----------
    workers, delivered : int
        The number of workers, and of delivered elements.
    seconds : float
        The measured time.
    each_s : float
        The time from one element to the next.
    waited_s, outside_s, busy_s, cpu_s, queued_s, consumer_cpu_s, functions_s : float
        The parts of an element's time, as in `EventSample`.
    error : float
        The relative standard error of `each_s`.
    usual_s : float
        The median of the samples' `each_s`, which ignores pauses of the consumer.
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
        """The time that workers wait for something other than a core: a disk, a network, sleep."""
        return max(0.0, self.busy_s - self.cpu_s - self.queued_s)

    @classmethod
    def of(cls, samples: Sequence[EventSample]) -> Measure | None:
        """Make a measure from samples with one number of workers; None if they contain no element."""
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
    """Return the rate of workers that alternately wait and compute on shared cores.

    This is the "machine repairman" of queueing theory: exact for exponentially distributed times;
    less variable times give a little more.

    Parameters
    ----------
    workers : int
        The number of workers.
    wait_s, cpu_s : float
        Seconds that an element waits (disk, network, sleep), and seconds that it keeps a core busy.
    cores : float
        The number of cores.

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
    """Return True if a function keeps its core busy nearly all of the time.

    Parameters
    ----------
    blocked_s, cpu_s : float
        Seconds that a call waits for something other than a core, and seconds that it keeps a core busy.
    """
    return blocked_s < _LITTLE * (blocked_s + cpu_s)


def warranted(blocked_s: float, cpu_s: float, cores: int, most: int) -> int:
    """Return the largest number of workers that functions justify, regardless of the machine's other load.

    Functions that compute justify as many as there are cores: more would only take cores from other programs, or
    from one another. Functions that also wait justify as many as keep the cores busy.

    Parameters
    ----------
    blocked_s, cpu_s : float
        Seconds that a call waits for something other than a core, and seconds that it keeps a core busy.
    cores : int
        The number of cores that this process may use.
    most : int
        The largest permitted number of workers.

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
    """A number of workers, and its predicted gain.

    Attributes
    ----------
    workers : int
        The number of workers.
    gain : float
        The predicted throughput relative to the measured one.
    """

    workers: int
    gain: float


def predicted(seen: Measure, cores: int, most: int) -> WorkerForecast:
    """Predict the gain of more workers.

    An element cannot come faster than the consumer takes it, nor than the cores compute the workers' and
    the consumer's part together. Below that, workers reach the rate of `computed_per_s`, scaled by how far the
    measured rate is from that model at the present number (stragglers, starvation, other programs).
    More than `warranted` are never suggested.

    Parameters
    ----------
    seen : Measure
        A measure with at least one worker.
    cores : int
        The number of cores that this process may use.
    most : int
        The largest permitted number of workers.

    Returns
    -------
    WorkerForecast
        The smallest number close to the best; the present one, with gain 1, if the consumer hardly waits.
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
    """Return how many blocks may be in flight or ready, so that slow tasks do not hold up the others.

    While one block waits for its slowest task, the workers compute others:
    ``2 + workers * p99.9(time of a task) / work of a block`` keep them busy. Tasks are handed out before
    it is known who will be free first: those queued after a slow one wait for it. So the result is twice as many,
    and no fewer than two and a half tasks a worker. The caller has to check that there is enough memory.

    Parameters
    ----------
    workers : int
        The number of workers.
    tasks : Histogram
        The durations of tasks, without each worker's first ones, which import modules.
    per_block : float
        The number of tasks of a block.
    now : int
        The present limit; 0: none yet.
    least : int
        The smallest permitted result.

    Returns
    -------
    int
        `now`, unless the new limit is larger by a tenth, or smaller by a quarter.
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
