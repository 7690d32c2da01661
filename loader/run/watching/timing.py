"""Timing of evaluators: the time each node of a stage takes for an element, without its inputs.

Reading the clock twice for each node costs as much as a cheap function, so only some elements are timed: as many as
cost half a percent of the time. The choice depends on time, not on elements, so results do not depend on it.
"""

from __future__ import annotations

import functools
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tundish.loader.watch.watch import MOST, Sample

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Value

CLOCK_S = 5e-7
"""About what timing one node of one element costs."""

TASK_S = 4e-6
"""About what it costs to note one time for all elements of a task."""

_TRIED = 64
_TELLING = 8
_MOST_OFF = 8.0

SHARE = 0.005
"""How much of the time may go into timing."""


class Timer:
    """Wraps evaluators so that they record their time.

    Parameters
    ----------
    sample : Sample
        Receives the measurements.
    """

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._inside = [0.0]  # what the inputs took of the evaluator that is running

    def look(self, label: str, value: Value, _: object = None) -> Value:
        """Return an evaluator that records the time of a node."""
        own = self._sample.own.setdefault(label, [])
        return _timed(value, own, self._inside, self._sample, empty_s())


def _timed(
    value: Value, own: list[float], inside: list[float], sample: Sample, nothing_s: float
) -> Value:
    def timed(item: Any, pass_: int) -> Any:
        if sample.full:
            return value(item, pass_)
        before, inside[0] = inside[0], 0.0
        began = perf_counter()
        try:
            return value(item, pass_)
        finally:
            spent = perf_counter() - began
            own.append(spent - inside[0] - nothing_s)
            inside[0] = before + spent
            if len(own) >= MOST:
                sample.full = True

    return timed


@functools.cache
def empty_s() -> float:
    """Return the time recorded for a node that only passes on its input: the cost of timing itself."""
    sample, inside = Sample(), [0.0]
    up = _timed(lambda item, _: item, [], inside, sample, 0.0)
    own: list[float] = []
    nothing = _timed(up, own, inside, sample, 0.0)
    for item in range(_TRIED):
        nothing(item, 0)
    return sorted(own)[_TRIED // 4]


class Price:
    """The cost of timing: an estimate, corrected by measurement.

    Clocks, caches and machines differ, and timing slows a closure by more than the time to read the clock.
    """

    __slots__ = ("_off", "_usual_s")

    def __init__(self) -> None:
        self._off = 1.0
        self._usual_s: float | None = None

    def plain(self, count: int, seconds: float) -> None:
        """Record the seconds that `count` elements took without timing."""
        self._usual_s = seconds / count

    def timed(self, count: int, seconds: float, thought_s: float) -> float:
        """Return how much of the seconds that `count` elements took was the cost of timing.

        Parameters
        ----------
        count : int
            The number of elements.
        seconds : float
            The time they took, with timing on.
        thought_s : float
            The estimated cost of timing among it. If that is small, the measured time says nothing about it, since
            functions vary more.
        """
        if self._usual_s is not None and thought_s * _TELLING > seconds:
            off = (seconds - count * self._usual_s) / thought_s
            self._off += (min(max(off, 1 / _MOST_OFF), _MOST_OFF) - self._off) / 4
        return thought_s * self._off


class Turns:
    """Chooses the tasks that are timed, so that timing takes its share of the time and no more.

    Parameters
    ----------
    row_s, task_s : float
        The approximate cost of timing for each row, and for each task.
    """

    __slots__ = ("_left", "_price", "_row_s", "_task_s")

    def __init__(self, row_s: float, task_s: float = 0.0) -> None:
        self._row_s, self._task_s, self._price = row_s, task_s, Price()
        self._left = 1.0  # not the first: it imports, and fills caches

    def due(self) -> bool:
        """Return True if the next task is to be timed."""
        return self._left <= 0.0

    def did(self, rows: int, seconds: float, *, timed: bool) -> None:
        """Record the duration of a task."""
        if timed:
            self._left = self._price.timed(rows, seconds, rows * self._row_s + self._task_s)
        elif self._left == 1.0:
            self._left = 0.0
        else:
            self._price.plain(rows, seconds)
        self._left -= seconds * SHARE
