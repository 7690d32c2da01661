"""Jobs whose process ends again and again: consumers are told why, instead of waiting for the next one to end."""

from __future__ import annotations

from collections.abc import Callable

_MOST = 3
"""The number of ends in a row after which a job is refused."""
_REFUSED_S = 10.0
"""The time for which it is refused: its consumers ask about once a second. Whoever asks later has it tried again."""


class JobEnds:
    """Counts the ends of jobs' processes that came of themselves, while no consumer received an element.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._jobs: dict[str, tuple[int, str, float]] = {}  # how many; the last one, and when
        self._lives: dict[str, str] = {}  # the process that ended last

    def ended(self, job: str, how: str, life: str) -> bool:
        """Record that a job's process has ended, and how; return False if that was told before. `life` is a name of the process."""
        if self._lives.get(job) == life:
            return False
        self._lives[job] = life
        count, _, last = self._jobs.get(job, (0, "", 0.0))
        now = self._clock()
        if count >= _MOST and now - last > _REFUSED_S:  # it was tried again
            count = 0
        self._jobs[job] = count + 1, how, now
        return True

    def advanced(self, job: str) -> None:
        """Forget the ends of a job, as a consumer has received an element."""
        self._jobs.pop(job, None)

    def forget(self, job: str) -> None:
        """Forget a job that nobody uses any more."""
        self._jobs.pop(job, None)
        self._lives.pop(job, None)

    def refusal(self, job: str) -> str | None:
        """Return why a job is not started again; None if it may be."""
        count, how, last = self._jobs.get(job, (0, "", 0.0))
        if count < _MOST or self._clock() - last > _REFUSED_S:
            return None
        return (
            f"job {job!r} is not started again: {count} times in a row its process has ended before a consumer "
            f"received another element; the last time, {how}"
        )
