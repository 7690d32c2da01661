"""`Replacing`: when a worker that died is replaced by another, and when that is given up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tundish.errors import WorkerDiedError
from tundish.loader.run.pool.recruiting import SHORT, too_many
from tundish.loader.run.starting.watchdog import deadlocked

if TYPE_CHECKING:
    from tundish.loader.run.starting.workerprocess import Exit

BACK_OFF_S = (0.0, 0.0, 0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
"""Seconds until a worker that died is replaced, by how often all have died in a row."""
LATER_S = BACK_OFF_S[-1]
"""Seconds until a worker that could not be started is tried again."""
_START_DEATHS = 8
_ELSEWHERE_S = 10.0
"""Seconds for which starts on other machines may fail while no worker is up."""


class Replacing:
    """Counts the workers that have died one after another.

    The pool sets `in_a_row` to 0 when a task is done, and `at_start`, of those that were never up, when a worker is up.
    """

    def __init__(self) -> None:
        self.in_a_row = self.at_start = 0
        self._since = 0.0  # when the first of `at_start` died

    def pause_s(self, size: int) -> float:
        """Count a death; return how long to wait before another worker is started, in a pool of `size`."""
        self.in_a_row += 1
        return BACK_OFF_S[min(self.in_a_row // max(1, size), len(BACK_OFF_S) - 1)]

    def refuse(self, how: Exit, *, elsewhere: bool, others: bool) -> BaseException | None:
        """Count a worker that died before it was up; return the error if no other is to be started at once.

        The worker was on another machine if `elsewhere`; `others` says whether any worker is up.
        """
        if how.errno in SHORT:
            return too_many(how.errno, "a worker")
        now = time.monotonic()
        self._since = self._since if self.at_start else now
        self.at_start += 1
        if how.stuck:
            return deadlocked("the start of a worker", how.stderr)
        # A connection that ends says little: machines come and go, and one may fail where others succeed.
        patient = elsewhere and (others or now - self._since < _ELSEWHERE_S)
        if self.at_start < _START_DEATHS or patient:
            return None
        return WorkerDiedError("its start", how.how, self.at_start, how.stderr)
