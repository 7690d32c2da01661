"""Sampling of times in the consumer's process: all stages are timed for a while, then none.

The clock chooses what is timed, so results do not depend on it. If elements take longer than reading the clock, all
are timed; if they are cheap, one in some hundred.
"""

from __future__ import annotations

import weakref
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.run.watching.timing import CLOCK_S, SHARE, Price

if TYPE_CHECKING:
    from tundish.loader.watch.watch import Watch

_ON_S, _OFF_S = 0.001, 0.004
"""How often it is looked whether to go on, timed and not timed."""
_PART = 16
"""Of the elements between two looks so many are timed at first."""
_MOST = 8192
_SAVED_S = 0.02
_CALL_S = 1.5e-6
"""About what timing a call of ``next`` costs beside that."""


class Timed(Protocol):
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
        self._saved_s = 0.0  # time that may go into timing
        self._last, self._cpu = perf_counter(), thread_time()
        self._first = True
        self._noted = 0  # durations, so far
        self._price = Price()

    def add(self, machine: Timed) -> None:
        """Add a machine to those that are timed together."""
        self._machines.add(machine)
        if self.on:
            machine.time(on=True)

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
            self.every = max(1, min(_MOST, int(look_s * calls / max(passed, 1e-7))))
        if not self._watch.enabled:
            return False
        # Of a core: on a busy machine the clock goes on while nothing is done.
        before, self._cpu = self._cpu, thread_time()
        used = max(0.0, self._cpu - before)  # less than 0 where another thread comes here
        self._saved_s += used * SHARE
        if self.on:
            self._saved_s -= self._price.timed(calls, used, self._spent_s() + calls * _CALL_S)
        elif calls and not self._first:
            self._price.plain(calls, used)
        self._saved_s = min(self._saved_s, _SAVED_S)
        # What is first imports modules and fills caches.
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
