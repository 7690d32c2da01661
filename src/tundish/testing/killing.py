"""An iterator whose workers are killed while it runs."""

from __future__ import annotations

import os
import random
import signal
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.run.iterator import Iterator

__all__ = ["Hunted", "positions"]


def positions(count: int, kills: int, rng: random.Random) -> list[int]:
    """Return positions for kills, last one first, and none in the last tenth, where little work is left."""
    reach = max(1, count - count // 10)
    return sorted((rng.randrange(reach) for _ in range(kills)), reverse=True)


class Hunted:
    """An iterator whose workers are killed at given positions."""

    def __init__(self, iterator: Iterator, positions: list[int], rng: random.Random) -> None:
        self.iterator = iterator
        self.positions = positions
        self.rng = rng
        self.position = 0
        self.killed = 0
        self.timers: list[threading.Timer] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        while self.positions and self.positions[-1] <= self.position:
            pids = self.iterator.worker_pids()
            if not pids:
                break  # not yet started: at the next step
            self.positions.pop()
            self.strike(self.rng.choice(pids), self.rng.choice((0, 0, 0.002, 0.02)))
        self.position += 1
        return next(self.iterator)

    def strike(self, pid: int, delay: float) -> None:
        try:
            kill = killer(pid)
        except ProcessLookupError:
            return
        self.killed += 1
        if not delay:
            kill()
            return
        self.timers.append(threading.Timer(delay, kill))
        self.timers[-1].start()

    def rest(self) -> None:
        for timer in self.timers:
            timer.join()


def killer(pid: int) -> Callable[[], None]:
    """Return a function that kills a process, and never another one that has got its id."""
    if not hasattr(os, "pidfd_open"):
        return lambda: os.kill(pid, signal.SIGKILL)
    handle = os.pidfd_open(pid)

    def kill() -> None:
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)

    return kill
