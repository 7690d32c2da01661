"""The ring of slots: which pieces of shared memory are free, being written, or still held.

::

            acquire             lease                last view dies
    FREE ------------> GRANTED -------> LEASED ------------------------> FREE
                        |    |            +--> DRAINING: a device still copies --> FREE
                        |    |  release
                        |    +-----------------------------------------> FREE
                        |  quarantine                 clear
                        +-------------> QUARANTINED -------------------> FREE

Free slots are the pipeline's credits: without one a stage waits, and nothing else limits how far the
workers run ahead. Unlike a FIFO ring it never waits for one particular slot, so a
batch that somebody keeps costs only its slot.

The states are in the coordinator's private memory; there is nothing in shared memory to repair
when a process is killed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from tundish.shm.memory import Arena
    from tundish.shm.pinned import DeviceMark, PinnedSlots

    Root = np.ndarray[Any, np.dtype[np.uint8]]


class SlotState(IntEnum):
    """The state of a slot."""

    FREE = 0  # nobody's
    GRANTED = 1  # workers write it, or it waits to be delivered
    LEASED = 2  # delivered: somebody holds a view of it
    QUARANTINED = 3  # given up, but a writer may still be alive
    DRAINING = 4  # nobody's, but a device may still read it


class _Lease(weakref.ref["Root"]):
    """A weak reference to a lease's root array that knows its slot."""

    __slots__ = ("slot",)
    slot: int


class Ring:
    """The slots of an arena and their states, shared by all iterators of the process.

    Safe to use from several threads, and from finalizers that run in the middle of a call. In a
    forked child it grants nothing and frees nothing.

    Parameters
    ----------
    arena : Arena
        The memory.
    """

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        """The memory whose slots these are."""
        self._owner = os.getpid()
        self._states = [SlotState.FREE] * arena.slots
        self._allocated = [0] * arena.slots
        self._leases: list[_Lease | None] = [None] * arena.slots
        # A stack: the slot freed last is the one still in the caches, and slots that were never
        # needed stay at the bottom and never take memory.
        self._free = list(range(arena.slots - 1, -1, -1))
        self._free_bytes = 0
        self.used_bytes = 0
        """Bytes of all slots that have pages."""
        # Roots die in any thread and in the middle of anything, garbage collection included. So
        # their callback is this one atomic C method and everything else is done by `_collect`.
        self._returned: deque[weakref.ref[Root]] = deque()
        # Re-entrant, because a finalizer may release a slot while this thread is in here.
        self._lock = threading.RLock()
        self.pinned: PinnedSlots | None = None
        """Which slots a device's driver has registered, if any."""
        self._draining: list[tuple[int, list[DeviceMark]]] = []

    def acquire(self) -> int | None:
        """Take a free slot, the most recently used one; None if none is free."""
        self._check_process()
        with self._lock:
            self._collect()
            if not self._free:
                return None
            slot = self._free.pop()
            self._free_bytes -= self._allocated[slot]
            self._states[slot] = SlotState.GRANTED
            return slot

    def acquire_pages(self, nbytes: int) -> int | None:
        """Take a free slot whose first `nbytes` have pages; None if no slot is free.

        Raises
        ------
        SharedMemoryError
            There is not so much memory; the slot is free again.
        """
        slot = self.acquire()
        if slot is None:
            return None
        try:
            self.arena.allocate(slot, 0, nbytes)
        except BaseException:
            self.empty(slot)
            self.release(slot)
            raise
        self.grew(slot, nbytes)
        return slot

    def release(self, slot: int) -> None:
        """Return a granted slot that was not delivered. Its writers must be done or dead."""
        self._finish(slot, SlotState.GRANTED)

    def empty(self, slot: int) -> None:
        """Release all pages of a granted slot, whose writers may have allocated an unknown number."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._expect(slot, SlotState.GRANTED)
            if self._discard(slot):
                self.used_bytes -= self._allocated[slot]
                self._allocated[slot] = 0

    def _discard(self, slot: int) -> bool:
        if self.pinned is not None:
            self.pinned.forget(slot)
        return self.arena.discard(slot, 0, self.arena.stride)

    def quarantine(self, slot: int) -> None:
        """Quarantine a granted slot whose writer may still be alive: it is not granted until `clear`."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._expect(slot, SlotState.GRANTED)
            self._states[slot] = SlotState.QUARANTINED

    def clear(self, slot: int) -> None:
        """Return a quarantined slot: its writers are confirmed dead, or have answered."""
        self._finish(slot, SlotState.QUARANTINED)

    def lease(self, slot: int, nbytes: int) -> Root:
        """Lease a granted slot to the consumer.

        Parameters
        ----------
        slot : int
            The slot's number.
        nbytes : int
            The number of its bytes to lease.

        Returns
        -------
        numpy.ndarray of uint8
            The root array. The slot is free again once it and everything that shares its memory
            (views, memoryviews, Arrow buffers, DLPack exports) are gone.
        """
        self._check_process()
        self._expect(slot, SlotState.GRANTED)
        root = self.arena.root(slot, nbytes)
        lease = _Lease(root, self._returned.append)
        lease.slot = slot
        self._states[slot] = SlotState.LEASED
        self._leases[slot] = lease
        return root

    def grew(self, slot: int, nbytes: int) -> None:
        """Record that the slot's first `nbytes` have pages; a smaller number than before is ignored."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            more = nbytes - self._allocated[slot]
            if more > 0:
                self._allocated[slot] = nbytes
                self.used_bytes += more
                if self._states[slot] is SlotState.FREE:
                    self._free_bytes += more

    def allocated(self, slot: int) -> int:
        """Return how many of the slot's first bytes have pages."""
        return self._allocated[slot]

    def trim(self, keep_bytes: int) -> None:
        """Release pages of free slots, least recently used first, until at most `keep_bytes` are in use.

        With 0, every free slot releases all its pages, recorded by `grew` or not (a failed allocation
        may leave unrecorded pages).
        """
        if os.getpid() != self._owner:
            return
        everything = keep_bytes <= 0
        with self._lock:
            self._collect()
            for slot in tuple(self._free):  # coldest first
                if self.used_bytes <= keep_bytes and not everything:
                    break
                if not (everything or self._allocated[slot]):
                    continue
                if self._discard(slot):
                    self.used_bytes -= self._allocated[slot]
                    self._free_bytes -= self._allocated[slot]
                    self._allocated[slot] = 0

    @property
    def free(self) -> int:
        """The number of slots that can be acquired now."""
        with self._lock:
            self._collect()
            return len(self._free)

    @property
    def leased(self) -> int:
        """The number of slots of which somebody holds a view."""
        return self.count(SlotState.LEASED)

    @property
    def free_bytes(self) -> int:
        """The bytes of pages in free slots."""
        with self._lock:
            self._collect()
            return self._free_bytes

    def count(self, state: SlotState) -> int:
        """Return how many slots are in a state."""
        with self._lock:
            self._collect()
            return self._states.count(state)

    def _collect(self) -> None:
        """Free the slots whose leases have ended; the caller holds the lock."""
        while self._returned:
            lease = self._returned.popleft()
            assert isinstance(lease, _Lease)  # nothing else has this callback
            self._leases[lease.slot] = None
            marks = self.pinned.mark(lease.slot) if self.pinned is not None else []
            if marks:
                self._states[lease.slot] = SlotState.DRAINING
                self._draining.append((lease.slot, marks))
            else:
                self._set_free(lease.slot)
        if self._draining:
            self._drain()

    def _drain(self) -> None:
        """Free the slots that no device reads any more; the caller holds the lock."""
        waiting, self._draining = self._draining, []
        for slot, marks in waiting:
            left = [mark for mark in marks if not mark.passed()]
            if left:
                self._draining.append((slot, left))
            else:
                self._set_free(slot)

    def _finish(self, slot: int, expected: SlotState) -> None:
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._expect(slot, expected)
            self._set_free(slot)

    def _set_free(self, slot: int) -> None:
        self._states[slot] = SlotState.FREE
        self._free.append(slot)
        self._free_bytes += self._allocated[slot]

    def _expect(self, slot: int, expected: SlotState) -> None:
        state = self._states[slot]
        if state is not expected:
            raise RuntimeError(f"slot {slot} is {state.name}, not {expected.name}")

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"this ring belongs to process {self._owner}, and this is process {os.getpid()}, "
                "forked from it: make a new iterator here"
            )
