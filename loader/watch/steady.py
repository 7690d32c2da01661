"""What has happened between two looks at one iterator, and measuring while nothing else happens."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from tundish.loader.watch.throughput import Measure

if TYPE_CHECKING:
    from tundish.loader.watch.stats import NodeStats, StageStats, Stats, WorkerStats
    from tundish.loader.watch.throughput import Sample

LONG_S = 4.0
"""For so long is measured at most, where something is not clear."""

_STARTING_S = 30.0  # more is not waited for
_SETTLING_S = 0.1
_SHORT_S = 0.2
_FEWEST = 8  # elements
_SAMPLES = 4
_WARMING = 1.15  # times faster in its second half: still warming up
_PAUSE = 4.0  # times what the consumer usually takes
_PAUSE_S = 0.3
_OFTEN = 50  # samples between pauses; more often is no exception
_REMEMBERED = 15  # samples, to know what is usual


class Steady:
    """Gathers samples until they say something.

    Attributes
    ----------
    count : int
        Of how many samples the last measure is.
    """

    def __init__(self) -> None:
        self._outsides: deque[float] = deque(maxlen=_REMEMBERED)
        self._since_pause = _OFTEN
        self.begin()

    @property
    def count(self) -> int:
        """Of how many samples the last measure is."""
        return len(self._samples)

    def begin(self) -> None:
        """Forget all: there is another number of workers."""
        self.forget()
        self._starting_s, self._settling_s, self._settling_count = 0.0, 0.0, 0

    def forget(self) -> None:
        """Forget the samples."""
        self._samples: list[Sample] = []

    def take(self, sample: Sample, *, warming: bool) -> Measure | None:
        """Take in a sample; what they come to, if they are enough.

        Parameters
        ----------
        sample : Sample
            With the same number of workers as those before.
        warming : bool
            Whether work may still be getting faster: then it is waited until it does not.
        """
        if self._is_pause(sample) or not self._has_settled(sample):
            return None
        samples = self._samples
        samples.append(sample)
        enough = max(_FEWEST, sample.workers)
        if len(samples) < 2 or sum(each.delivered for each in samples) < enough:
            return None
        seen = Measure.of(samples)
        if seen is None or seen.seconds < _SHORT_S:
            return None
        if warming and len(samples) >= _SAMPLES and seen.seconds < LONG_S:
            half = len(samples) // 2
            first, second = Measure.of(samples[:half]), Measure.of(samples[half:])
            if first is None or second is None:
                return None
            if first.each_s > _WARMING * second.each_s * (1 + second.error):
                self._samples = samples[half:]
                return None
        return seen

    def _has_settled(self, sample: Sample) -> bool:
        """Whether all workers are there, and what was under way when they began is not."""
        if sample.starting and self._starting_s < _STARTING_S:
            self._starting_s += sample.seconds
            return False
        if self._settling_s < _SETTLING_S or self._settling_count < sample.workers:
            self._settling_s += sample.seconds
            self._settling_count += sample.delivered
            return False
        return True

    def _is_pause(self, sample: Sample) -> bool:
        """Whether the consumer did something else meanwhile, or takes what was made then."""
        usual = median(self._outsides) if len(self._outsides) >= _SAMPLES else inf
        if sample.delivered:
            self._outsides.append(sample.outside_s / sample.delivered)
        self._since_pause += 1
        if sample.outside_s > _PAUSE_S + _PAUSE * usual * max(1, sample.delivered):
            if self._since_pause < _OFTEN:  # that is how it is
                return False
            self._since_pause = 0
            return True
        return self._since_pause == 1


def between(earlier: Stats, later: Stats) -> Stats:
    """What was done and measured since an earlier look.

    Parameters
    ----------
    earlier, later : Stats
        Of one iterator. What says how things are (workers, slots in use) is the later one's.

    Examples
    --------
    >>> from tundish.loader.watch.stats import Stats
    >>> between(Stats(elements=100, wall_s=2.0), Stats(elements=350, wall_s=3.0)).elements
    250
    """
    waited_s, own_s, outside_s = _spent(earlier, later)
    stages = {stage.name: stage for stage in earlier.stages}
    pool = {worker.name: worker for worker in earlier.pool}
    return replace(
        later,
        elements=later.elements - earlier.elements,
        errors=later.errors - earlier.errors,
        restarts=later.restarts - earlier.restarts,
        tasks=later.tasks - earlier.tasks,
        copies=later.copies - earlier.copies,
        nbytes=later.nbytes - earlier.nbytes,
        wall_s=later.wall_s - earlier.wall_s,
        waited_s=waited_s,
        cpu_s=later.cpu_s - earlier.cpu_s,
        queued_s=later.queued_s - earlier.queued_s,
        own_s=own_s,
        outside_s=outside_s,
        waits=later.waits.since(earlier.waits),
        stages=tuple(
            _stage(stages[stage.name], stage) if stage.name in stages else stage
            for stage in later.stages
        ),
        pool=tuple(
            _worker(pool[worker.name], worker) if worker.name in pool else worker
            for worker in later.pool
        ),
    )


def _spent(earlier: Stats, later: Stats) -> list[float]:
    """The consumer's time: waited, own, outside.

    Without workers it is put together of a sample, and what was thought of the earlier time may
    be more than what is thought of all of it.
    """
    spent = [
        later.waited_s - earlier.waited_s,
        later.own_s - earlier.own_s,
        later.outside_s - earlier.outside_s,
    ]
    above = [max(0.0, seconds) for seconds in spent]
    whole = sum(above)
    return [seconds * max(0.0, sum(spent)) / whole if whole else 0.0 for seconds in above]


def _stage(earlier: StageStats, later: StageStats) -> StageStats:
    nodes = {node.name: node for node in earlier.nodes}
    return replace(
        later,
        nodes=tuple(
            _node(nodes[node.name], node) if node.name in nodes else node for node in later.nodes
        ),
        elements=later.elements - earlier.elements,
        dropped=later.dropped - earlier.dropped,
        errors=later.errors - earlier.errors,
        tasks=later.tasks - earlier.tasks,
        rows=later.rows - earlier.rows,
        busy_s=later.busy_s - earlier.busy_s,
        cpu_s=later.cpu_s - earlier.cpu_s,
        nbytes=later.nbytes - earlier.nbytes,
        time=later.time.since(earlier.time),
    )


def _node(earlier: NodeStats, later: NodeStats) -> NodeStats:
    return replace(
        later,
        elements=later.elements - earlier.elements,
        dropped=later.dropped - earlier.dropped,
        errors=later.errors - earlier.errors,
        busy_s=later.busy_s - earlier.busy_s,
        time=later.time.since(earlier.time),
    )


def _worker(earlier: WorkerStats, later: WorkerStats) -> WorkerStats:
    return replace(
        later,
        tasks=later.tasks - earlier.tasks,
        rows=later.rows - earlier.rows,
        busy_s=later.busy_s - earlier.busy_s,
        cpu_s=later.cpu_s - earlier.cpu_s,
        queued_s=later.queued_s - earlier.queued_s,
        alive_s=later.alive_s - earlier.alive_s,
    )
