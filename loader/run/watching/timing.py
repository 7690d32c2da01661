"""Timing of evaluators: the time each node of a stage takes for an element, without its inputs; and when it is measured.

Reading the clock twice for each node costs as much as a cheap function, so only some elements are timed, which costs
half a percent of the time. The choice depends on time, not on elements, so results do not depend on it. A worker
times whole tasks (`TimingSchedule`); in the consumer's process all stages are timed for a while, then none (`Sampling`).
"""

from __future__ import annotations

import functools
import weakref
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.watch.watch import MOST, OPENING, NodeTimes

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Value
    from tundish.loader.watch.watch import Watch

CLOCK_S = 5e-7
"""The approximate cost of timing one node of one element."""

TASK_S = 4e-6
"""The approximate cost of noting one time for all elements of a task."""

_TRIED = 64
_TELLING = 8
_MOST_OFF = 8.0

SHARE = 0.005
"""The share of the time that may go into timing."""

_ON_S, _OFF_S = 0.001, 0.004
"""Seconds between decisions on going on, while timing and while not."""
_PART = 16
"""One element in this many between two decisions is timed at first."""
_MOST = 8192
_SAVED_S = 0.02
_CALL_S = 1.5e-6
"""The approximate additional cost of timing a call of ``next``."""


class Timer:
    """Wraps evaluators so that they record their time.

    Parameters
    ----------
    sample : NodeTimes
        Receives the measurements.

    Attributes
    ----------
    inside : list of float
        One number: the seconds that evaluators have taken since it was last set to 0.
    """

    def __init__(self, sample: NodeTimes) -> None:
        self._sample = sample
        self.inside = [0.0]

    def look(self, label: str, value: Value, _: object = None) -> Value:
        """Return an evaluator that records the time of a node."""
        own = self._sample.own.setdefault(label, [])
        return _timed(value, own, self.inside, self._sample, empty_s())


class StreamTimer:
    """Times a stage of inner datasets: each opening, with the nodes before it, and the reading of elements.

    Openings are few, and may take longer than thousands of elements, so each of them is timed.

    Parameters
    ----------
    watch : Watch
        Receives the measurements.
    name : str
        The stage's name, that of the node that opens datasets.
    """

    def __init__(self, watch: Watch, name: str) -> None:
        self._watch, self._name = watch, name
        self._sample, self._known = watch.sample(name), watch.opening_s
        self.inputs = Timer(self._sample)
        self._inside = self.inputs.inside
        self._noted = self._sample.own.setdefault(OPENING, [])
        self._opening_s = self._carried_s = 0.0

    def begin(self) -> None:
        """Note the start of a task; nothing counts of a task that fails."""
        self._opening_s = 0.0

    def opened(self, seconds: float, *, sampled: bool = False) -> None:
        """Record an opening; `sampled` if it is within a call that is timed."""
        noted, inside, known = self._noted, self._inside, self._known
        noted.append(seconds - inside[0])
        inside[0] = 0.0
        self._opening_s += seconds
        known[0] += seconds
        if sampled:
            known[1] += seconds
        if len(noted) >= MOST:
            self._watch.settle()

    def read(self, seconds: float, rows: int) -> None:
        """Record the elements of a task, and the seconds that it took with the openings in it."""
        self._carried_s += max(0.0, seconds - self._opening_s)
        self._opening_s = 0.0
        if rows:
            self._sample.node(self._name).add(self._carried_s / rows, rows)
            self._carried_s = 0.0


def _timed(
    value: Value, own: list[float], inside: list[float], sample: NodeTimes, nothing_s: float
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
    sample, inside = NodeTimes(), [0.0]
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


class TimingSchedule:
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


class Timeable(Protocol):
    """A machine that can be timed."""

    def time(self, *, on: bool) -> None:
        """Start or stop timing each node."""


class Sampling:
    """Chooses when the stages of an iterator in the consumer's process are timed.

    Parameters
    ----------
    watch : Watch
        The iterator's watch.

    Attributes
    ----------
    on : bool
        True while stages are being timed.
    every : int
        The number of delivered elements until `look` is due again: a few milliseconds' worth.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._machines: weakref.WeakSet[Any] = weakref.WeakSet()
        self.on, self.every = False, 1
        self._calls = 0
        self._saved_s = 0.0  # time that may go into timing
        self._last, self._cpu = perf_counter(), thread_time()
        self._first = True
        self._noted = 0  # durations, so far
        self._price = Price()

    def add(self, machine: Timeable) -> None:
        """Add a machine to those that are timed together."""
        self._machines.add(machine)
        if self.on:
            machine.time(on=True)

    def throughout(self, *, on: bool) -> None:
        """Time all machines within one call that takes many elements; at its end, go on as before."""
        for machine in list(self._machines):
            machine.time(on=self._watch.enabled and (on or self.on))

    def look(self, now: float, calls: int) -> bool:
        """Switch timing on or off if it is time; return True if it was switched.

        Parameters
        ----------
        now : float
            The current ``perf_counter``.
        calls : int
            Calls of ``next`` since the last `look`.
        """
        passed, self._last = now - self._last, now
        if calls:
            look_s = _ON_S if self.on else _OFF_S
            wanted = int(look_s * calls / max(passed, 1e-7))
            self._calls += calls
            # Costly elements may follow cheap ones: at most about a fifth of the calls goes unseen.
            self.every = max(1, min(_MOST, wanted, self._calls // 4))
        if not self._watch.enabled:
            return False
        # CPU time: on a busy machine the clock goes on while nothing is done.
        before, self._cpu = self._cpu, thread_time()
        used = max(0.0, self._cpu - before)  # less than 0 if another thread calls this
        self._saved_s += used * SHARE
        if self.on:
            self._saved_s -= self._price.timed(calls, used, self._spent_s() + calls * _CALL_S)
        elif calls and not self._first:
            self._price.plain(calls, used)
        self._saved_s = min(self._saved_s, _SAVED_S)
        # The first calls import modules and fill caches.
        window = self.every // _PART
        least_s = 0.0 if self.on else window * (CLOCK_S + _CALL_S)
        on = self._saved_s > least_s and not self._first
        self._first = self._first and not calls
        if on == self.on:
            return False
        self.on = on
        if on:
            self.every = max(1, window)
        for machine in list(self._machines):
            machine.time(on=on)
        return True

    def _spent_s(self) -> float:
        """Estimate the seconds that timing itself has cost since the last call."""
        samples = list(self._watch.samples.values())
        noted = sum(sample.noted for sample in samples)
        spent_s, self._noted = (noted - self._noted) * CLOCK_S, noted
        if any(sample.full for sample in samples):
            self._watch.settle()
        return spent_s
