"""Measuring in a steady state."""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from tundish.loader.watch.throughput import Measure

if TYPE_CHECKING:
    from tundish.loader.watch.throughput import EventSample

LONG_S = 4.0
"""The longest time of measuring, if something is not clear."""

_STARTING_S = 30.0  # the longest wait for the start
_SETTLING_S = 0.1
_SHORT_S = 0.2
_FEWEST = 8  # elements
_SAMPLES = 4
_WARMING = 1.15  # the ratio of rates in the second and the first half that shows warming up
_PAUSE = 4.0  # the ratio to the consumer's usual time that makes a pause
_PAUSE_S = 0.3
_OFTEN = 50  # samples between pauses; more frequent ones are no exception
_REMEMBERED = 15  # samples from which the usual time is known


class Steady:
    """Gathers samples until they are conclusive.

    Attributes
    ----------
    count : int
        The number of samples in the last measure.
    """

    def __init__(self) -> None:
        self._outsides: deque[float] = deque(maxlen=_REMEMBERED)
        self._since_pause = _OFTEN
        self.begin()

    @property
    def count(self) -> int:
        """The number of samples in the last measure."""
        return len(self._samples)

    def begin(self) -> None:
        """Start over with another number of workers."""
        self.forget()
        self._starting_s, self._settling_s, self._settling_count = 0.0, 0.0, 0

    def forget(self) -> None:
        """Drop the samples."""
        self._samples: list[EventSample] = []

    def take(self, sample: EventSample, *, warming: bool) -> Measure | None:
        """Add a sample; return a measure if there are enough samples.

        Parameters
        ----------
        sample : EventSample
            A sample with the same number of workers as the earlier ones.
        warming : bool
            True if work may still be getting faster; samples are then ignored until it does not.
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

    def _has_settled(self, sample: EventSample) -> bool:
        """Return True if all workers are up, and the work that was in flight when they started is done."""
        if sample.starting and self._starting_s < _STARTING_S:
            self._starting_s += sample.seconds
            return False
        if self._settling_s < _SETTLING_S or self._settling_count < sample.workers:
            self._settling_s += sample.seconds
            self._settling_count += sample.delivered
            return False
        return True

    def _is_pause(self, sample: EventSample) -> bool:
        """Return True if the consumer paused, or takes the elements that were computed during a pause."""
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
