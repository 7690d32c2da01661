"""The process's shared memory: one arena and one ring for all iterators, and the bytes promised of it."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from tundish.errors import SharedMemoryError
from tundish.shm.memory import Arena
from tundish.shm.ring import Ring

if TYPE_CHECKING:
    from tundish.loader.run.pool.peers import Peer

_SLOTS = 1024
_lock = threading.Lock()
_current: list[tuple[int, Ring | None]] = []


def shared_ring() -> Ring | None:
    """Return the process's ring, made on first use, and again in a forked child.

    Each user compares the bytes that it has with a budget of its own.

    Returns
    -------
    Ring or None
        None if there is no shared memory: everything is sent over the channels.
    """
    with _lock:
        if not _current or _current[0][0] != os.getpid():
            try:
                ring: Ring | None = Ring(Arena.create(slots=_SLOTS))
            except SharedMemoryError:
                ring = None
            _current[:] = [(os.getpid(), ring)]
        return _current[0][1]


_graves: deque[tuple[Ring, list[Peer], list[int], object]] = deque()
"""Slots whose writers may still be there. It has no lock, since garbage collection closes iterators at any point of any thread."""


def quarantine_slots(ring: Ring, peers: list[Peer], slots: list[int], keep: object = None) -> None:
    """Quarantine slots until the workers that may still write to them are gone.

    Parameters
    ----------
    ring : Ring
        The ring of the slots.
    peers : list of Peer
        The workers.
    slots : list of int
        The slots that they may write to.
    keep : object
        What must be kept alive as long: the memory that they read.
    """
    for slot in slots:
        ring.quarantine(slot)
    _graves.append((ring, peers, slots, keep))


def release_quarantined() -> None:
    """Release the quarantined slots whose writers are gone."""
    for _ in range(len(_graves)):
        try:
            ring, peers, slots, keep = _graves.popleft()
        except IndexError:  # another thread was faster
            return
        left = [peer for peer in peers if not peer.is_gone(0.0)]
        if left:
            _graves.append((ring, left, slots, keep))
        else:
            for slot in slots:
                ring.clear(slot)


class SlotHolder(Protocol):
    """The holder of a slot."""

    slot: int | None
    reserved: int
    """Bytes that are promised to it beyond those it has."""


class Reserve:
    """Counts the bytes of a budget that are promised to slots and not yet in use.

    Parameters
    ----------
    ring : Ring or None
        The slots; None without shared memory.
    budget : int
        The number of bytes that slots may have in total.
    """

    def __init__(self, ring: Ring | None, budget: int) -> None:
        self._ring, self.budget = ring, budget
        self.nbytes = 0

    def take(self, holder: SlotHolder, nbytes: int) -> bool:
        """Promise bytes to a slot; return False if the budget is exhausted."""
        ring = self._ring
        if ring is None or holder.slot is None:
            return True
        more = max(0, nbytes - ring.allocated(holder.slot)) - holder.reserved
        if more > 0 and ring.used_bytes + self.nbytes + more > self.budget:
            ring.trim(max(1, self.budget - self.nbytes - more))
            if ring.used_bytes + self.nbytes + more > self.budget:
                return False
        self.nbytes += more
        holder.reserved += more
        return True

    def give_back(self, holder: SlotHolder) -> None:
        """Withdraw a promise of memory: the ring counts the slots in use."""
        self.nbytes -= holder.reserved
        holder.reserved = 0
