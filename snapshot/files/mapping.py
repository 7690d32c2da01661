"""Files mapped for reading."""

from __future__ import annotations

import errno
import mmap
import os
import sys
from typing import TYPE_CHECKING

from tundish.errors import SnapshotCorruptError
from tundish.formats.bytes.regular import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

Identity = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime in ns: they change with the file."""

_PIECE = 1 << 20
# Python names it from 3.14 on, Linux knows it from 5.14 on.
_POPULATE_READ = 22 if sys.platform.startswith("linux") else None
_UNREADABLE = (errno.EFAULT, errno.EIO, getattr(errno, "EHWPOISON", errno.EIO))


def _identity(status: os.stat_result) -> Identity:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class Mapping(mmap.mmap):
    """A whole file mapped for reading, the base of numpy views of it.

    Reading beyond the end of a truncated file kills the process. So `size`, the file's present size
    (``len`` is what was mapped), is checked before bytes are handed out.

    Attributes
    ----------
    path : str
        The file; "" for memory without a file.
    identity : tuple of int
        The file's identity, and when it was last changed.
    immutable : bool
        True if nobody changes the bytes, so that views of them need not be copied before they are handed out.
    """

    path = ""
    identity: Identity = (0, 0, 0, 0, 0)
    immutable = True

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Mapping:
        """Map a file.

        Raises
        ------
        FileNotFoundError
            The file does not exist.
        SnapshotCorruptError
            The file is empty.
        """
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            if not status.st_size:
                raise SnapshotCorruptError(os.fspath(path), "is empty")
            # It keeps a descriptor of its own, by which `size` asks.
            mapping = cls(file.fileno(), status.st_size, access=mmap.ACCESS_READ)
        mapping.path, mapping.identity = os.fspath(path), _identity(status)
        return mapping

    def changed(self) -> bool:
        """Return True if the file was written or truncated since it was mapped.

        A file that was replaced or unlinked can only be truncated by a process that has it open, so only its size is checked.
        """
        try:
            now = _identity(os.stat(self.path))  # noqa: PTH116 - a third of the time of Path's
        except OSError:
            now = None
        if now is None or now[:2] != self.identity[:2]:
            return self.size() != len(self)
        return now != self.identity

    def pieces(self, first: int, length: int) -> Iterator[memoryview]:
        """Yield the bytes of a range, piece by piece, each paged in first.

        Raises
        ------
        OSError
            The file was truncated, or the disk cannot read it.
        """
        view = memoryview(self)
        for at in range(first, first + length, _PIECE):
            count = min(_PIECE, first + length - at)
            self._bring(at, count)
            yield view[at : at + count]

    def _bring(self, first: int, length: int) -> None:
        """Page in a range; raises an error in place of a SIGBUS on access."""
        if self.size() != len(self):
            raise OSError(
                errno.EIO, f"has {self.size():,} bytes, {len(self):,} were written", self.path
            )
        if _POPULATE_READ is None:
            return
        start = first // mmap.PAGESIZE * mmap.PAGESIZE
        try:
            self.madvise(_POPULATE_READ, start, first + length - start)
        except OSError as problem:
            if problem.errno in _UNREADABLE:  # else the system does not know how
                raise OSError(errno.EIO, "cannot be read from the disk", self.path) from problem
