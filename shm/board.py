"""The board of a process: published data that other processes of the same user read by its pid.

It is an anonymous memory file that need not be passed to anybody: a reader finds it among the
descriptors of the process, ``/proc/PID/fd``. So it has no name anywhere, and disappears with the
process, however that ends. Neither side waits for the other.

::

    0      magic, version, pid                    once
    64     seq, length, crc32, crc32 of these     of the first half
    128    seq, length, crc32, crc32 of these     of the second half
    4096   the first half, 4096 + LARGEST         the second half

Data is written to the half that is not the newest. The half's header is invalidated before and
written after the data: a writer that is stopped or killed at any point leaves the newest half
unchanged, and a reader that was overtaken notices it by header and checksum, and retries.
Both use ``read`` and ``write``, not a mapping, so nothing can end in a SIGBUS.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
import weakref
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from tundish.shm.budget import portable
from tundish.shm.memory import open_memfd

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 256 << 10
"""Bytes that may be published at once. Pages that were never written take no memory."""

VERSION = 1
_NAME = "tundish-board"
_LINK = f"/memfd:{_NAME}"
_MAGIC = b"\x93tundish"
_IDENTITY = struct.Struct("<8sII")
_HEAD = struct.Struct("<QII")
_CHECK = struct.Struct("<I")
_HEADS = (64, 128)
_HALVES = (4096, 4096 + LARGEST)
_SIZE = _HALVES[1] + LARGEST
_INVALID = bytes(_HEAD.size + _CHECK.size)
_TRIES, _AGAIN_S = 64, 0.001
_ENDING = 0x4  # PF_EXITING of Linux: from then on it gives back what it has
_PROC = Path("/proc")


class Board:
    """The board of this process; its file is created by the first `publish`.

    Not thread-safe. A forked child has its own, which is empty.

    Examples
    --------
    >>> board = Board()
    >>> board.publish(b"three elements so far")  # `read_board(pid)` of another process gives it
    >>> board.close()
    """

    def __init__(self) -> None:
        self._seq = self._owner = 0
        self._fd, self._file = -1, (0, 0)
        self._close_fd: weakref.finalize[[int, tuple[int, int]], Board] | None = None

    def publish(self, data: bytes) -> None:
        """Replace the published data.

        Parameters
        ----------
        data : bytes
            At most `LARGEST` bytes.

        Raises
        ------
        ValueError
            It is larger; the published data does not change.
        OSError
            The system has no memfd (only Linux has), or no descriptor or memory left; the published data does not
            change.
        """
        if len(data) > LARGEST:
            raise ValueError(f"{len(data):,} bytes do not fit on a board of {LARGEST:,}")
        if self._owner != os.getpid() or not _is(self._fd, self._file):
            self._make()
        self._seq += 1
        half = self._seq % 2
        head = _HEAD.pack(self._seq, len(data), zlib.crc32(data))
        os.pwrite(self._fd, _INVALID, _HEADS[half])
        _write(self._fd, data, _HALVES[half])
        os.pwrite(self._fd, head + _CHECK.pack(zlib.crc32(head)), _HEADS[half])

    def _make(self) -> None:
        self.close()  # in a child that was forked: its copy of the descriptor, not its parent's
        if portable() or not hasattr(os, "memfd_create"):
            raise OSError(errno.ENOSYS, "a board needs Linux's memfd")
        fd = open_memfd(_NAME)
        try:
            os.ftruncate(fd, _SIZE)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            os.pwrite(fd, _IDENTITY.pack(_MAGIC, VERSION, os.getpid()), 0)
        except BaseException:
            os.close(fd)
            raise
        self._fd, self._seq, self._owner = fd, 0, os.getpid()
        status = os.fstat(fd)
        self._file = (status.st_dev, status.st_ino)
        self._close_fd = weakref.finalize(self, _close, fd, self._file)
        # Its end is the process's: without, one that is leaving would look like one that tells nothing.
        self._close_fd.atexit = False

    def close(self) -> None:
        """Remove the board; `publish` makes a new one. Safe to call twice, and in a forked child."""
        if self._close_fd is not None:
            self._close_fd()
        self._close_fd, self._fd, self._owner = None, -1, 0


def _is(fd: int, file: tuple[int, int]) -> bool:
    """Return True if a descriptor still refers to this file: a daemon closes all descriptors, and opens others."""
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == file


def _close(fd: int, file: tuple[int, int]) -> None:
    if _is(fd, file):
        os.close(fd)


def _write(fd: int, data: bytes, at: int) -> None:
    # A write is cut short by a lack of memory, and the next one says so.
    written = os.pwrite(fd, data, at)
    while written < len(data):
        more = os.pwrite(fd, memoryview(data)[written:], at + written)
        if not more:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more


def read_board(pid: int) -> bytes:
    """Return the data that a process has published last.

    Parameters
    ----------
    pid : int
        A process of this user, or any for root. A process in a container is read from
        the host by its pid on the host; from inside a container only its own processes are visible.

    Returns
    -------
    bytes
        Exactly the argument of one call of `Board.publish`.

    Raises
    ------
    ProcessLookupError
        There is no such process, or it has ended.
    PermissionError
        It belongs to another user.
    FileNotFoundError
        It has no board: this library has not been in use there for half a second yet, or publishing is turned off.
    ValueError
        The pid is invalid; or its board has another version.
    TimeoutError
        It was rewritten during each attempt to read it.
    NotImplementedError
        The system is not Linux.
    """
    if pid < 1:
        raise ValueError(f"{pid} is not a pid, which is at least 1")
    if sys.platform != "linux":
        raise NotImplementedError(
            "the board of another process is read through /proc, which only Linux has: "
            "here use `iterator.stats` and `iterator.explain()` within the program"
        )
    versions = []
    try:
        _must_live(pid)
        own = _own_pid(pid)
        for fd in _descriptors(pid):
            try:
                version, owner = _identity(fd)
                if owner == own and version == VERSION:
                    return _newest(fd, pid)
                versions += [version] if owner == own else []
            finally:
                os.close(fd)
        _must_live(pid)  # one that is ending has no descriptors any more
    except PermissionError as error:
        raise PermissionError(
            error.errno,
            f"process {pid} belongs to another user, or cannot be inspected: "
            "run this as its user, in its container, or as root",
        ) from error
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(
            errno.ESRCH, f"there is no process {pid} (in this container, if this is one)"
        ) from error
    if versions:
        raise ValueError(
            f"the board of process {pid} is of version {versions[0]} and this program reads "
            f"{VERSION}: use the `tundish` of the environment that the process runs in"
        )
    raise FileNotFoundError(
        errno.ENOENT,
        f"process {pid} shows no tundish pipeline: none has been iterated for half a second yet, or they are "
        "hidden (StatsOptions.enabled=False, TUNDISH_WATCH=0)",
    )


def pids_with_a_board() -> list[int]:
    """Return the pids of processes with a board that this user may read."""
    found = []
    for folder in _PROC.iterdir() if sys.platform == "linux" else ():
        if not folder.name.isdecimal():
            continue
        try:
            if folder.stat().st_uid == os.getuid():
                read_board(int(folder.name))
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return sorted(found)


def _must_live(pid: int) -> None:
    """Raise an error for a process that has ended, or is ending."""
    text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    state, *_, flags = text.rpartition(")")[2].split()[:7]  # before it stands a name: any text
    if state in "ZX" or int(flags) & _ENDING:
        raise ProcessLookupError(errno.ESRCH, "it has ended, or is ending")


def _own_pid(pid: int) -> int:
    """Return a process's pid in the innermost of its pid namespaces, by which it knows itself."""
    status = dict(
        line.split(":", 1)
        for line in (_PROC / str(pid) / "status").read_text(errors="replace").splitlines()
        if ":" in line
    )
    return int(status.get("NStgid", status["Tgid"]).split()[-1])


def _descriptors(pid: int) -> Iterator[int]:
    """Yield descriptors, opened for reading, of a process's files with a board's name."""
    for link in (_PROC / str(pid) / "fd").iterdir():
        try:
            if str(link.readlink()).split(" ")[0] != _LINK:
                continue
            fd = os.open(link, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # closed since the folder was read
        yield fd


def _identity(fd: int) -> tuple[int, int]:
    """Return version and pid of a board; (0, 0) for another file, or one that is being created."""
    found = os.pread(fd, _IDENTITY.size, 0)
    if len(found) < _IDENTITY.size:
        return 0, 0
    magic, version, owner = _IDENTITY.unpack(found)
    return (version, owner) if magic == _MAGIC else (0, 0)


def _newest(fd: int, pid: int) -> bytes:
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_AGAIN_S)
        heads = [head for at in _HEADS if (head := _head(fd, at)) is not None]
        if not heads:
            continue  # the first is just being written
        seq, length, crc = newest = max(heads)
        data = os.pread(fd, length, _HALVES[seq % 2])
        # Both: the head says that nobody began to write there, the checksum that nobody had.
        if zlib.crc32(data) == crc and _head(fd, _HEADS[seq % 2]) == newest:
            return data
    raise TimeoutError(
        f"the board of process {pid} changed during each of {_TRIES} reads, or its process was stopped before it wrote anything"
    )


def _head(fd: int, at: int) -> tuple[int, int, int] | None:
    """Return sequence number, length and checksum of a half; None while it is being written."""
    found = os.pread(fd, len(_INVALID), at)
    head, check = found[: _HEAD.size], found[_HEAD.size :]
    if check != _CHECK.pack(zlib.crc32(head)) or found == _INVALID:
        return None
    seq, length, crc = _HEAD.unpack(head)
    return seq, length, crc
