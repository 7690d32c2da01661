"""A consumer's view of a host process's arena: private, so that its writes reach no other process.

The arena is mapped once, privately, from a descriptor that is open for reading alone. A page that is only read is the
host process's own, one that is written to becomes a copy of this process. Before the host process is told that a slot's
views are gone, such copies are dropped: else the next batch in that slot would show them. Most consumers write to
nothing, and to drop the mapping of a slot each time would cost a fault for every 16 pages, ten times what
it takes to ask the system whether there is a copy. Even that is asked only if this process has had a page fault while it
had the views: without one nothing was copied.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import sys
from typing import Any

import numpy as np

from tundish.shm.memory import NORESERVE

_ENTRY = 8  # bytes of /proc/PID/pagemap for a page
_TOP = 7 if sys.byteorder == "little" else 0  # the byte of it that has the bits below
_FILE, _THERE = 0x20, 0xC0  # a page of a file; one that is in memory, or swapped out
_OWN = np.array([bool(top & _THERE) and not top & _FILE for top in range(256)])

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class PrivateSlots:
    """The slots of another process's arena, mapped privately.

    Parameters
    ----------
    fd : int
        The arena's descriptor, which this then owns.
    stride, slots : int
        Bytes of a slot, and the number of slots.

    Attributes
    ----------
    written : int
        The number of times that pages were dropped to which this process had written.
    """

    def __init__(self, fd: int, stride: int, slots: int) -> None:
        self._fd, self._stride, self.written = fd, stride, 0
        self._map: mmap.mmap | None = None
        self._pages: int | None = None
        # By slot: how many views there are, from where to where they reach, and the page faults before the first of them.
        self._live: dict[int, list[int]] = {}
        flags, protection = mmap.MAP_PRIVATE | NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
        # Without so many addresses (`ulimit -v`) everything is copied.
        with contextlib.suppress(OSError, OverflowError, ValueError):
            self._map = mmap.mmap(fd, stride * slots, flags=flags, prot=protection)
            self._map.madvise(mmap.MADV_DONTDUMP)
        if self._map is not None:
            self._base = np.frombuffer(self._map, np.uint8, 1).ctypes.data
            with contextlib.suppress(OSError):
                self._pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def mapped(self) -> bool:
        """True if views can be given; else everything has to be copied."""
        return self._map is not None

    def view(self, slot: int, start: int, stop: int) -> Bytes:
        """Return bytes of a slot as a new writable array, to be followed by one call of `leave`."""
        assert self._map is not None
        live = self._live.get(slot)
        if live is None:
            live = self._live[slot] = [0, start, stop, _faults()]
        live[:3] = live[0] + 1, min(live[1], start), max(live[2], stop)
        return np.frombuffer(self._map, np.uint8, stop - start, slot * self._stride + start)

    def copy(self, slot: int, start: int, stop: int) -> Bytes:
        """Return bytes of a slot as an array of its own memory."""
        found = np.empty(stop - start, np.uint8)
        view, at = found.data, slot * self._stride + start
        while view:
            count = os.preadv(self._fd, [view], at)
            if not count:
                raise OSError("the memory of the host process ends before its batch does")
            view, at = view[count:], at + count
        return found

    def leave(self, slot: int) -> None:
        """Note that a view is gone; the last view of a slot drops the pages that were written."""
        live = self._live[slot]
        live[0] -= 1
        if not live[0]:
            _, start, stop, faults = self._live.pop(slot)
            # A system without the table of pages may not count faults either.
            if self._pages is None or _faults() != faults:
                self._clean(slot * self._stride + start, slot * self._stride + stop)

    def _clean(self, start: int, stop: int) -> None:
        first, pages = start // mmap.PAGESIZE, -(-stop // mmap.PAGESIZE) - start // mmap.PAGESIZE
        if self._has_own(first, pages):
            assert self._map is not None
            self.written += 1
            self._map.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, pages * mmap.PAGESIZE)

    def _has_own(self, first: int, pages: int) -> bool:
        """Return True if some of these pages may be this process's own copies."""
        if self._pages is None:
            return True
        at = (self._base // mmap.PAGESIZE + first) * _ENTRY
        data = os.pread(self._pages, pages * _ENTRY, at)
        if len(data) != pages * _ENTRY:
            return True
        return bool(_OWN[np.frombuffer(data, np.uint8)[_TOP::_ENTRY]].any())

    def close(self) -> None:
        """Close the descriptors; the mapping goes with the last view."""
        fd, self._fd = self._fd, -1
        pages, self._pages = self._pages, None
        self._map = None
        for each in (fd, pages):
            if each is not None and each >= 0:
                os.close(each)


def _faults() -> int:
    """Return how many page faults all threads of this process have had."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt
