"""Histograms of durations: counts in buckets of equal ratio.

A bucket is a quarter of an octave, so a quantile is accurate to a tenth, and a histogram of any
number of durations takes a few hundred bytes: small enough to be sent with a worker's answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

LEAST_S = 1e-7
"""Durations below it are counted in the first bucket."""

_PARTS = 4  # of an octave
_OCTAVES = 48  # up to a year


@dataclass(frozen=True)
class Histogram:
    """Durations, in seconds.

    Attributes
    ----------
    counts : mapping of int to int
        The number of durations in each bucket; empty buckets are left out.
    count : int
        The number of durations.
    total_s : float
        Their sum.
    least_s, most_s : float
        The shortest and the longest; 0.0 for an empty histogram.

    Examples
    --------
    >>> seen = Durations()
    >>> for seconds in (0.001, 0.002, 0.004):
    ...     seen.add(seconds)
    >>> histogram = seen.frozen()
    >>> histogram.count, round(histogram.mean_s, 6)
    (3, 0.002333)
    >>> 0.0018 < histogram.quantile_s(0.5) < 0.0022
    True
    """

    counts: Mapping[int, int] = field(default_factory=dict)
    count: int = 0
    total_s: float = 0.0
    least_s: float = 0.0
    most_s: float = 0.0

    @property
    def mean_s(self) -> float:
        """The mean; 0.0 for an empty histogram."""
        return self.total_s / self.count if self.count else 0.0

    def quantile_s(self, q: float) -> float:
        """Return the duration that a share `q` of all does not exceed, accurate to a tenth; 0.0 if empty.

        Parameters
        ----------
        q : float
            From 0 to 1.
        """
        if not self.count:
            return 0.0
        wanted, seen = q * self.count, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                middle = math.sqrt(upper_s(bucket) * upper_s(bucket - 1))
                return min(max(middle, self.least_s), self.most_s)
        return self.most_s

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Yield the upper end of each non-empty bucket, in seconds, and its count."""
        for bucket in sorted(self.counts):
            yield upper_s(bucket), self.counts[bucket]

    def __add__(self, other: Histogram) -> Histogram:
        both = Durations()
        both.merge(self)
        both.merge(other)
        return both.frozen()

    def since(self, earlier: Histogram) -> Histogram:
        """Return the durations since an earlier histogram; shortest and longest are accurate to a bucket."""
        counts = {
            bucket: count - earlier.counts.get(bucket, 0)
            for bucket, count in self.counts.items()
            if count > earlier.counts.get(bucket, 0)
        }
        if not counts:
            return Histogram()
        least_s = max(upper_s(min(counts) - 1), self.least_s)
        most_s = min(upper_s(max(counts)), self.most_s)
        total_s = max(0.0, self.total_s - earlier.total_s)
        return Histogram(counts, self.count - earlier.count, total_s, least_s, most_s)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "counts": {str(bucket): count for bucket, count in self.counts.items()},
            "count": self.count,
            "total_s": self.total_s,
            "least_s": self.least_s,
            "most_s": self.most_s,
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """Parse the result of `to_dict`."""
        counts = {int(bucket): count for bucket, count in told["counts"].items()}
        return cls(counts, told["count"], told["total_s"], told["least_s"], told["most_s"])


class Durations:
    """A histogram that is being filled; `frozen` returns its present state."""

    __slots__ = ("_counts", "count", "least_s", "most_s", "total_s")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total_s = self.most_s = 0.0
        self.least_s = math.inf

    def add(self, seconds: float, times: int = 1) -> None:
        """Add a duration.

        Parameters
        ----------
        seconds : float
            The duration; a clock that was set back gives 0.
        times : int
            The number of times to count it.
        """
        seconds = max(0.0, seconds)
        part, octave = math.frexp(seconds / LEAST_S)
        bucket = octave * _PARTS + int(part * 2 * _PARTS) - _PARTS
        bucket = min(max(bucket, 0), _OCTAVES * _PARTS)
        self._counts[bucket] = self._counts.get(bucket, 0) + times
        self.count += times
        self.total_s += seconds * times
        self.least_s = min(self.least_s, seconds)
        self.most_s = max(self.most_s, seconds)

    def extend(self, seconds: Iterable[float]) -> None:
        """Add several durations."""
        array = np.fromiter(seconds, np.float64)
        if not array.size:
            return
        np.maximum(array, 0.0, out=array)
        parts, octaves = np.frexp(array / LEAST_S)
        buckets = octaves * _PARTS + (parts * 2 * _PARTS).astype(np.int64) - _PARTS
        np.clip(buckets, 0, _OCTAVES * _PARTS, out=buckets)
        for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True):
            self._counts[int(bucket)] = self._counts.get(int(bucket), 0) + int(count)
        self.count += array.size
        self.total_s += float(array.sum())
        self.least_s = min(self.least_s, float(array.min()))
        self.most_s = max(self.most_s, float(array.max()))

    def merge(self, other: Histogram) -> None:
        """Add another histogram's durations."""
        for bucket, count in other.counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        if other.count:
            self.count += other.count
            self.total_s += other.total_s
            self.least_s = min(self.least_s, other.least_s)
            self.most_s = max(self.most_s, other.most_s)

    def clear(self) -> None:
        """Remove all durations."""
        self._counts.clear()
        self.count, self.total_s, self.least_s, self.most_s = 0, 0.0, math.inf, 0.0

    def told(self) -> tuple[dict[int, int], int, float, float, float]:
        """Return the histogram's fields, to be sent between processes."""
        return dict(self._counts), self.count, self.total_s, self.least_s, self.most_s

    def frozen(self) -> Histogram:
        """Return a histogram of the durations so far."""
        least = self.least_s if self.count else 0.0
        return Histogram(dict(self._counts), self.count, self.total_s, least, self.most_s)


def upper_s(bucket: int) -> float:
    """Return the upper end of a bucket, in seconds."""
    octave, part = divmod(bucket, _PARTS)
    return math.ldexp(0.5 + (part + 1) / (2 * _PARTS), octave) * LEAST_S
