"""Which bytes of which files were compared with their checksums, remembered by all processes of a pipeline.

One table of 8-byte marks in shared memory: made by the first process that reads a snapshot, inherited
by what it forks, and sent to its workers. A mark is a digest of the file's identity (device, inode, size,
mtime, ctime), the range, and the checksum that was found; so a file that is changed has other marks, and
nothing is ever taken back. Processes write without a lock: a mark that is lost, or overwritten where the
table is full, costs a second verification and nothing else.
"""

from __future__ import annotations

import struct
import threading
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tundish.errors import SharedMemoryError
from tundish.shm.memory import Arena

if TYPE_CHECKING:
    from tundish.snapshot.files.mapping import Identity

__all__ = ["Verified", "mark_of", "shared_marks", "use", "verified"]

_SLOTS = 1 << 19  # of 8 bytes: half full with 1 TiB in batches of 4 MiB
_WAYS = 8
_FACTS = struct.Struct("<8Q")
_MASK = (1 << 64) - 1


def mark_of(identity: Identity, offset: int, length: int, crc32: int) -> int:
    """The mark of a range of a file that has a checksum: 64 bits, never 0."""
    facts = (*identity, offset, length, crc32)
    digest = blake2b(_FACTS.pack(*[fact & _MASK for fact in facts]), digest_size=8)
    return int.from_bytes(digest.digest(), "little") or 1


class Verified:
    """A set of marks that may forget some.

    Parameters
    ----------
    arena : Arena or None
        Shared memory of one slot; None: memory of this process.
    """

    def __init__(self, arena: Arena | None) -> None:
        self.arena = arena
        memory: Any = bytearray(8 * _SLOTS) if arena is None else arena.root(0, 8 * _SLOTS)
        self._marks = memoryview(memory).cast("B").cast("Q")

    @classmethod
    def shared(cls) -> Verified:
        """A new one in shared memory, if there is some."""
        try:
            arena = Arena.create(stride=8 * _SLOTS, slots=1)
            arena.allocate(0, 0, 8 * _SLOTS)
        except SharedMemoryError:
            return cls(None)
        return cls(arena)

    def __contains__(self, mark: int) -> bool:
        start = mark % (_SLOTS - _WAYS)
        return mark in self._marks[start : start + _WAYS].tolist()

    def add(self, mark: int) -> None:
        """Remember a mark, in the place of another one if all of its places are taken."""
        start = mark % (_SLOTS - _WAYS)
        places = self._marks[start : start + _WAYS].tolist()
        free = places.index(0) if 0 in places else (mark >> 32) % _WAYS
        self._marks[start + free] = mark


_making = threading.Lock()
_current: list[Verified] = []


def verified() -> Verified:
    """The one of this process, and of those it was forked from; made on first use."""
    if not _current:
        with _making:
            if not _current:
                _current.append(Verified.shared())
    return _current[0]


def shared_marks() -> Arena | None:
    """The memory that workers are given; None if nothing was read, or nothing can be shared."""
    return _current[0].arena if _current else None


def use(arena: Arena) -> None:
    """In a worker: take the consumer's for this process's."""
    _current[:] = [Verified(arena)]
