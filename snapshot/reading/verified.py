"""A shared table of verified ranges of files, so that the processes of a pipeline verify each range once.

It is one table of 8-byte marks in shared memory: made by the process that reads a snapshot first, inherited by
processes forked from it, and sent to its workers. A mark is a digest of the file's identity (device, inode, size,
mtime, ctime), the range, and its checksum; so a changed file has other marks, and
nothing is ever removed. Processes write without a lock: a mark that is lost, or overwritten because the
table is full, only costs a second verification.
"""

from __future__ import annotations

import mmap
import struct
import threading
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tundish.forked import renewed

if TYPE_CHECKING:
    from tundish.snapshot.files.mapping import Identity

_SLOTS = 1 << 19  # 8 bytes each: half full with 1 TiB in batches of 4 MiB
_WAYS = 8
NBYTES = 8 * _SLOTS
_FACTS = struct.Struct("<8Q")
_MASK = (1 << 64) - 1


def mark_of(identity: Identity, offset: int, length: int, crc32: int) -> int:
    """Return the mark of a range of a file with a checksum: 64 bits, never 0."""
    facts = (*identity, offset, length, crc32)
    digest = blake2b(_FACTS.pack(*[fact & _MASK for fact in facts]), digest_size=8)
    return int.from_bytes(digest.digest(), "little") or 1


class Verified:
    """A set of marks that may forget some, in memory shared with forked children."""

    def __init__(self) -> None:
        self._marks = memoryview(mmap.mmap(-1, NBYTES)).cast("Q")

    def __contains__(self, mark: int) -> bool:
        start = mark % (_SLOTS - _WAYS)
        return mark in self._marks[start : start + _WAYS].tolist()

    def add(self, mark: int) -> None:
        """Add a mark, overwriting another one if all its places are taken."""
        start = mark % (_SLOTS - _WAYS)
        places = self._marks[start : start + _WAYS].tolist()
        free = places.index(0) if 0 in places else (mark >> 32) % _WAYS
        self._marks[start + free] = mark

    def share(self, memory: Any, *, new: bool) -> None:
        """Move the marks to memory that other processes have mapped.

        Parameters
        ----------
        memory : writable buffer
            The memory, of `NBYTES`.
        new : bool
            True if nobody has written marks to it yet: then the present ones are copied to it.
        """
        shared = memoryview(memory).cast("B").cast("Q")
        if new:
            shared[:] = self._marks
        self._marks = shared


_making = renewed(threading.Lock())
_current: list[Verified] = []


def verified() -> Verified:
    """Return the set of this process and of the processes it was forked from, made on first use."""
    if not _current:
        with _making:
            if not _current:
                _current.append(Verified())
    return _current[0]


def is_used() -> bool:
    """Return True if this process has read a snapshot."""
    return bool(_current)
