"""Sharing the marks of verified snapshot batches with workers, so that none verifies a batch again."""

from __future__ import annotations

import os
import threading

from tundish.errors import SharedMemoryError
from tundish.shm.memory import Arena
from tundish.snapshot.reading.verified import NBYTES, is_used, verified

_lock = threading.Lock()
_current: list[Arena] = []


def shared_marks() -> Arena | None:
    """Return the memory to send to a worker; None if no snapshot was read, or memory cannot be shared."""
    if not is_used():
        return None
    with _lock:
        if not _current:
            try:
                arena = Arena.create(stride=NBYTES, slots=1)
                arena.allocate(0, 0, NBYTES)
            except SharedMemoryError:  # each worker verifies for itself
                return None
            _current.append(arena)
            verified().share(arena.root(0, NBYTES), new=True)
        return _current[0]


def take_marks(fd: int, stride: int) -> None:
    """Use the consumer's memory in a worker, from a received descriptor."""
    _current[:] = [Arena.attach(fd, stride, 1)]
    verified().share(_current[0].root(0, NBYTES), new=False)


def _renew() -> None:
    global _lock  # noqa: PLW0603 - another thread may hold the parent's
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew)
