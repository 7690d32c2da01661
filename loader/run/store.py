"""The process's shared memory: one arena and one ring of slots for all iterators."""

from __future__ import annotations

import os
import threading

from tundish.errors import SharedMemoryError
from tundish.shm.memory import Arena
from tundish.shm.ring import Ring

_SLOTS = 1024
_lock = threading.Lock()
_current: list[tuple[int, Ring | None]] = []


def shared_ring(budget: int) -> Ring | None:
    """The process's ring, made on first use and again in a forked child.

    Parameters
    ----------
    budget : int
        Bytes that its first user asks for; its users compare with their own.

    Returns
    -------
    Ring or None
        None where there is no shared memory: everything travels over the channels.
    """
    with _lock:
        if not _current or _current[0][0] != os.getpid():
            try:
                ring: Ring | None = Ring(Arena.create(slots=_SLOTS), budget)
            except SharedMemoryError:
                ring = None
            _current[:] = [(os.getpid(), ring)]
        return _current[0][1]
