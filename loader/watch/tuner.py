"""AUTOTUNE: the choice of the number of workers by measurements.

`Tuner` receives what happened in each tenth of a second or so, and sometimes answers with another number of
workers. It has no clock and starts nothing.

Measurements at one number predict others (`throughput.predicted`), so the tuner goes there in
one step, measures again, and goes back if nothing was gained. Every step is such a trial. A search is a bounded number of
trials, and the next search starts only after a reason for it has lasted twice as long as the last time: so the number
grows or stays, but never oscillates. ``docs/design/009-tuner.md`` has the bound, and measurements.
"""

from __future__ import annotations

from math import ceil, inf, log2, sqrt
from typing import TYPE_CHECKING

from tundish.loader.watch.steady import LONG_S, Steady
from tundish.loader.watch.throughput import GAIN, WorkerForecast, computes, predicted

if TYPE_CHECKING:
    from tundish.loader.watch.throughput import EventSample, Measure

_KEEP = 0.25  # the part of a predicted gain that must come true, more than noise gives
_LEAST_KEEP = 0.015
_NO_LESS = 0.98  # the ratio of throughputs that counts as equal
_LOSS = 0.03  # the part of the throughput that fewer workers may cost
_CERTAIN = 2.0  # standard errors
_REJECTED = 2  # failed trials of more workers that end a search
# Failed trials: of more, one of fewer, one of none, to which it may return at the end.
_RETURNS = _REJECTED + 3
_CHANGED = 2.0  # the ratio of times that shows another workload
_NOTICED = 1.25  # the ratio of times that is more than noise
_PATIENCE_S = 5.0  # at first
_USUAL_S = 1.0  # the usual time of measuring
_LARGE = 1.5  # a gain that a short measurement shows
_SAMPLES = 4
_SPARE = 1.5  # the ratio of fewer workers to the busy ones
_CROWDED = 2.0  # the ratio of task times with more and with fewer workers
_FULL = 0.7  # the share of busy cores from which the cores explain longer tasks
_WORTH = 3  # the least number of workers to save
_WITHOUT = (
    1.5  # the least ratio of the time of an element to that of functions and the consumer alone
)
_WORTH_OWN = 1.05  # the least gain of going without workers
_NEARLY = 0.95  # the part of the gain of more workers with which none are as good, since they leave the cores to others


def most_changes(most: int, seconds: float = 0.0) -> int:
    """Return the largest number of changes that a tuner can make, whatever it measures.

    Parameters
    ----------
    most : int
        The largest permitted number of workers.
    seconds : float
        Seconds during which the work keeps changing; 0 for unchanging work.

    Examples
    --------
    >>> most_changes(32), most_changes(256), most_changes(32, seconds=3600.0)
    (12, 15, 120)
    """
    searches = 1 + int(log2(1 + seconds / _PATIENCE_S))
    return searches * (_trials(most) + _RETURNS)


def _trials(most: int) -> int:
    """Return the number of trials of a search."""
    return 2 + ceil(log2(max(2, most)))


class Tuner:
    """Decides how many workers there should be.

    Parameters
    ----------
    cores : int
        The number of cores that this process may use.
    initial : int
        The number of workers at the beginning; at least 1.
    least, most : int
        The permitted range of workers; with `least` 0 it includes the consumer's own process.

    Attributes
    ----------
    workers : int
        The wanted number of workers.
    changes : int
        The number of times it was changed.
    done : bool
        True if no search is running: nothing will change unless the work does.
    """

    def __init__(self, cores: int, initial: int, least: int, most: int) -> None:
        self.cores, self.workers, self.least, self.most = cores, initial, least, most
        self._initial = max(1, initial)
        self.changes = 0
        self.done = False
        self._trials = _trials(most)
        self._patience_s = _PATIENCE_S
        self._steady = Steady()
        self._begin_search()

    def observe(self, sample: EventSample) -> int | None:
        """Process a sample; return a new number of workers, or None.

        Parameters
        ----------
        sample : EventSample
            What happened since the last call, with one number of workers.

        Returns
        -------
        int or None
            The number of workers from now on; 0: compute in the consumer's process.
        """
        if sample.workers != self.workers:
            return None
        seen = self._steady.take(sample, warming=not self.done)
        if seen is None:
            return None
        if self.done:
            return self._watch(seen)
        return self._decide(seen) if self._trial is None else self._judge(seen)

    def bound(self, workers: int) -> None:
        """Limit the number of workers to the present one."""
        self.workers = self.most = workers

    # -- searching -----------------------------------------------------------------------------

    def _begin_search(self) -> None:
        self.done = False
        self._in_process = self.least == 0  # whether to try computing without workers
        self._tried: dict[int, Measure] = {}
        self._trial: WorkerForecast | None = None
        self._base: Measure | None = None
        self._left, self._rejected = self._trials, 0
        self._below = inf  # the least number of workers that gave nothing more
        self._shrunk = False
        self._alone: Measure | None = None

    def _go(self, workers: int) -> int | None:
        self._steady.begin()
        if workers == self.workers:
            return None
        self.workers = workers
        self.changes += 1
        return workers

    def _try(self, trial: WorkerForecast, base: Measure) -> int | None:
        self._trial, self._base = trial, base
        self._left -= 1
        return self._go(trial.workers)

    def _decide(self, seen: Measure) -> int | None:
        """Decide on the next step."""
        self._tried[seen.workers] = seen
        more = self._more(seen)
        if self._in_process and self._may_do_without(seen):
            if self._steady.count < _SAMPLES:
                return None
            self._in_process = False
            promised = more.gain if more else 1.0
            return self._try(WorkerForecast(0, max(_WORTH_OWN, _NEARLY * promised)), seen)
        if more is not None:
            sure = self._steady.count >= _SAMPLES and seen.error <= (more.gain - 1) / 4
            if more.gain < _LARGE and not sure and seen.seconds < LONG_S:
                return None
            return self._try(more, seen)
        if seen.seconds < _USUAL_S:
            return None
        alone, self._alone = self._alone, None
        if alone is not None and seen.each_s > _NEARLY * alone.each_s:
            self._settle(alone)  # the predicted gain of more workers did not come true
            return self._go(0)
        fewer = None if self._shrunk else self._fewer(seen)
        if fewer is not None:
            if seen.seconds < LONG_S:
                return None
            self._shrunk = True
            if not fewer.gain:  # no trial: additional workers only take cores from other programs
                return self._go(fewer.workers)
            return self._try(fewer, seen)
        self._settle(seen)
        return None

    def _more(self, seen: Measure, *, anew: bool = False) -> WorkerForecast | None:
        """Predict the gain of more workers; skip numbers that were found useless, unless `anew`."""
        left = anew or (self._left > 0 and self._rejected < _REJECTED)
        if not left or not seen.workers:
            return None
        found = predicted(seen, self.cores, self.most)
        below = inf if anew else self._below
        if found.workers >= below:  # try a number between
            between = int(sqrt(seen.workers * below))
            found = WorkerForecast(between, min(found.gain, between / seen.workers))
        return found if found.gain >= GAIN and found.workers > seen.workers else None

    def _may_do_without(self, seen: Measure) -> bool:
        """Return True if functions are so short that the consumer's process may be faster."""
        if seen.functions_s is None:
            return False
        return _WITHOUT * (seen.outside_s + seen.functions_s) < seen.each_s

    def _fewer(self, seen: Measure) -> WorkerForecast | None:
        """Predict fewer workers if they are enough: as many as cores if they compute, else as many as are busy."""
        if self._left <= 0 or not seen.workers:
            return None
        enough = max(self.cores, self.least)
        if seen.workers > enough and computes(seen.blocked_s, seen.cpu_s):
            return WorkerForecast(enough, 0.0)
        least_s = min(each.busy_s for each in (seen, *self._tried.values()) if each.workers)
        if seen.waited_s > (GAIN - 1) * seen.each_s:
            cores = (seen.cpu_s + seen.consumer_cpu_s) / seen.each_s
            if seen.busy_s < _CROWDED * least_s or cores > _FULL * self.cores:
                return None  # workers only delay each other by sharing cores
        need = max(1, self.least, ceil(_SPARE * least_s / seen.each_s))
        if need > seen.workers / 2 or seen.workers - need < _WORTH:
            return None
        return WorkerForecast(need, 1.0)

    def _judge(self, seen: Measure) -> int | None:
        """Decide whether a trial was worthwhile."""
        trial, base = self._trial, self._base
        assert trial is not None
        assert base is not None
        if self._steady.count < _SAMPLES:
            return None
        got = base.each_s / seen.each_s
        error = sqrt(seen.error**2 + base.error**2)
        wanted = 1 + max(_LEAST_KEEP, _KEEP * (min(trial.gain, 1.2) - 1))
        if not trial.workers:
            wanted = trial.gain
        elif trial.workers < base.workers:
            wanted = 1 - _LOSS + error
        if abs(got / wanted - 1) < _CERTAIN * error and seen.seconds < LONG_S:
            return None
        if not trial.workers and seen.seconds < _USUAL_S:
            return None  # it is tried only once, and ending workers disturb it at first
        self._trial = None
        if got >= wanted:
            if trial.workers > base.workers:
                return self._decide(seen)
            self._settle(seen)
            return None
        if not trial.workers:
            self._alone = seen
        elif trial.workers > base.workers:
            self._below = trial.workers
            self._rejected += 1
            if got > _NO_LESS:  # no loss either: workers are not what is missing
                self._rejected = _REJECTED
        return self._go(base.workers)

    # -- after a search --------------------------------------------------------------------------

    def _settle(self, seen: Measure) -> None:
        self.done = True
        self._reference = seen
        self._called_s = 0.0
        self._steady.forget()

    def _watch(self, seen: Measure) -> int | None:
        """Start a search if there has been a reason for it continuously, for longer than the last time."""
        if seen.seconds < _USUAL_S:
            return None
        self._steady.forget()
        changed = self._is_other_work(seen)
        called = changed and not seen.workers
        if seen.workers:
            more = self._more(seen, anew=changed)
            called = bool(more or (changed and self._fewer(seen)))
        self._called_s = self._called_s + seen.seconds if called else 0.0
        if self._called_s < self._patience_s:
            return None
        self._patience_s *= 2
        if changed:
            self._begin_search()
        self.done = False
        return self._go(self.workers or self._initial)

    def _is_other_work(self, seen: Measure) -> bool:
        """Return True if the times of tasks, or of the consumer, have changed since the search ended."""
        was = self._reference
        if not seen.workers:
            # The time outside is only that after measured calls: it may lack a pause.
            inside = seen.each_s - seen.outside_s > _CHANGED * (was.each_s - was.outside_s)
            return inside and seen.usual_s > _NOTICED * was.usual_s
        pairs = (
            (seen.busy_s, was.busy_s),
            (seen.each_s - seen.waited_s, was.each_s - was.waited_s),
        )
        return any(not 1 / _CHANGED < (a + 1e-9) / (b + 1e-9) < _CHANGED for a, b in pairs)
