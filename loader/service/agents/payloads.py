"""The payloads of trainers' plans at an agent, in unnamed files that its workers map."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import Self

from tundish.loader.run.starting.control import scratch_file

_SMALL = 64 << 10  # bytes up to which a blob is no file while it comes


class Payloads:
    """The payloads of trainers' plans in unnamed files, by digest; the least recently used go.

    Workers map the files, so what goes here stays as long as a worker has it.

    Parameters
    ----------
    most_bytes : int
        The number of bytes to keep.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.nbytes = 0
        self._files: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def __contains__(self, digest: str) -> bool:
        return digest in self._files

    def __len__(self) -> int:
        return len(self._files)

    def keep(self, digest: str, fd: int, nbytes: int) -> None:
        """Keep a file, which is this object's from now on."""
        if digest in self._files:
            os.close(fd)
            return
        while self._files and self.nbytes + nbytes > self.most_bytes:
            _, (old, size) = self._files.popitem(last=False)
            self.nbytes -= size
            os.close(old)
        self._files[digest] = fd, nbytes
        self.nbytes += nbytes

    def use(self, digest: str) -> int | None:
        """Return a payload's descriptor; None if it is not here."""
        if digest not in self._files:
            return None
        self._files.move_to_end(digest)
        return self._files[digest][0]

    def close(self) -> None:
        """Close all files."""
        for fd, _ in self._files.values():
            os.close(fd)
        self._files.clear()
        self.nbytes = 0


@dataclass
class IncomingBlob:
    """A blob that is coming: in memory, or in an unnamed file if it is large."""

    data: bytearray | mmap.mmap
    fd: int | None = None

    @classmethod
    def of_size(cls, nbytes: int) -> Self:
        """Return room for a blob."""
        if nbytes <= _SMALL:
            return cls(bytearray(nbytes))
        fd = scratch_file()
        try:
            os.truncate(fd, nbytes)
            return cls(mmap.mmap(fd, nbytes), fd)
        except BaseException:
            os.close(fd)
            raise

    def bytes(self) -> bytes:
        """Return the bytes that have arrived."""
        return bytes(self.data)

    def file(self) -> int:
        """Return the descriptor of a file with the bytes that have arrived; the caller owns it."""
        fd, self.fd = self.fd, None
        return scratch_file(self.bytes()) if fd is None else fd

    def close(self) -> None:
        """Let go of it."""
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)
        if isinstance(self.data, mmap.mmap):
            with contextlib.suppress(BufferError):  # a view of it is still about to go
                self.data.close()
