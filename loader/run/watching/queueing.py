"""Time that threads spent waiting for a core while others used them, as the system reports it.

From outside, a function that computes on a crowded machine looks like one that sleeps. Linux tells the two apart
(``schedstat``). Elsewhere context switches do: voluntary ones are of threads that block, involuntary ones of
threads that compute.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


PROC = "/proc"
_HARDLY = 0.05  # of the time: a thread that computes less does not wait for cores


class Runner(NamedTuple):
    """A worker's process, and the thread in it that works.

    Attributes
    ----------
    pid : int
        Its process.
    thread : int or None
        The thread that does the work; None if any of them may.
    """

    pid: int
    thread: int | None = None


def queued_s(pid: int, thread: int | None = None) -> float:
    """Return the seconds for which a thread was runnable without a core; 0.0 if the system does not report it.

    The default is the process's main thread.
    """
    return _read(pid, thread or pid) or 0.0


def _read(pid: int, thread: int) -> float | None:
    try:
        told = Path(f"{PROC}/{pid}/task/{thread}/schedstat").read_bytes()
        return int(told.split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


class Queue:
    """Sums up how long workers have waited for a core between calls.

    Parameters
    ----------
    cores : int
        The number of cores they may use.
    """

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._queued: dict[tuple[int, int], float] = {}
        self._switches: dict[int, tuple[int, int]] = {}

    def since(self, runners: Iterable[Runner], busy_s: float, cpu_s: float) -> float:
        """Return the seconds that workers have waited for a core since the last call.

        Parameters
        ----------
        runners : iterable of Runner
            The workers; a new one counts from the next call on.
        busy_s, cpu_s : float
            Seconds they have worked since the last call, and processor seconds that took.
        """
        off_s = max(0.0, busy_s - cpu_s)
        if cpu_s < _HARDLY * busy_s:
            self._queued, self._switches = {}, {}
            return 0.0
        runners = tuple(runners)
        before, now = self._queued, _queued(runners)
        self._queued = now
        if now:
            return sum(max(0.0, each - before[who]) for who, each in now.items() if who in before)
        share = self._lost({each.pid for each in runners})
        if share is not None:
            return share * off_s
        return min(off_s, cpu_s * max(0.0, os.getloadavg()[0] / self._cores - 1))

    def _lost(self, pids: Iterable[int]) -> float | None:
        """Return the share of context switches that were involuntary; None if it is not known."""
        import psutil  # noqa: PLC0415 - takes a while, and is needed where Linux does not tell

        before = self._switches
        now: dict[int, tuple[int, int]] = {}
        for pid in pids:
            try:
                given, lost = psutil.Process(pid).num_ctx_switches()
            except (psutil.Error, OSError, NotImplementedError):
                continue
            now[pid] = given, lost
        self._switches = now
        if not any(lost for _, lost in now.values()):
            return None  # macOS counts them all as given away
        given = lost = 0
        for pid, each in now.items():
            was = before.get(pid, each)
            given, lost = given + each[0] - was[0], lost + each[1] - was[1]
        return lost / (given + lost) if given + lost > 0 else 0.0


def _queued(runners: Iterable[Runner]) -> dict[tuple[int, int], float]:
    """Return the total wait of each thread; those that the system does not report are left out."""
    found = {}
    for pid, thread in runners:
        for each in _threads(pid) if thread is None else (thread,):
            seconds = _read(pid, each)
            if seconds is not None:
                found[pid, each] = seconds
    return found


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"{PROC}/{pid}/task")]  # noqa: PTH208 - half the price
    except OSError:
        return []
