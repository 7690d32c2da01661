"""The process's shared memory: one arena and one ring of slots for all iterators."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from tundish.errors import SharedMemoryError
from tundish.shm.memory import Arena
from tundish.shm.ring import Ring

if TYPE_CHECKING:
    from tundish.loader.run.peers import Peer

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


_graves: list[tuple[Ring, list[Peer], list[int], object]] = []


def bury(ring: Ring, peers: list[Peer], slots: list[int], keep: object = None) -> None:
    """Keep slots from use until the workers that may still write them are gone.

    Parameters
    ----------
    ring : Ring
        Whose slots.
    peers : list of Peer
        The workers.
    slots : list of int
        What they may write.
    keep : object
        What has to live as long: the memory that they read.
    """
    for slot in slots:
        ring.quarantine(slot)
    with _lock:
        _graves.append((ring, peers, slots, keep))


def visit_graves() -> None:
    """Give the slots back whose writers have gone meanwhile."""
    with _lock:
        graves, _graves[:] = list(_graves), []
    for ring, peers, slots, keep in graves:
        left = [peer for peer in peers if not peer.is_gone(0.0)]
        if left:
            with _lock:
                _graves.append((ring, left, slots, keep))
        else:
            for slot in slots:
                ring.clear(slot)
