"""The dispatcher's journal: checksummed lines, each on the disk before its call is answered.

A line is ``<crc32> <length> <JSON>``. Its checksum begins with that of the line before it, so a reader notices a line that is lost,
doubled or moved as surely as one that was changed. A crash can leave a last line that is cut off, or that has blocks which were
never written. The call of such a line was never answered, and the line is removed. Damage before the last line is an error.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.errors import RecordCorruptError, SnapshotVersionError
from tundish.forked import not_inherited
from tundish.formats.bytes.file import is_remote, local_path
from tundish.formats.bytes.regular import BINARY, sync_file, sync_folder
from tundish.snapshot.files.local import make_folder
from tundish.snapshot.files.store import open_store

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store

if sys.platform != "win32":
    import fcntl

FORMAT = 1
"""The version that is written, in the first line."""

NAME = "journal"
"""The file in the folder, or at a URL the folder of its lines."""

_HEAD = re.compile(rb"([0-9a-f]{8}) (0|[1-9][0-9]{0,9}) ")
_BEGUN = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8} [0-9]{0,10}")
_REMEDY = "the lines before it are intact: restore the file from a copy, or use another work_dir"
_SUPERSEDED = "another dispatcher has written to it since this one started: this one must stop"


class Disk:
    """The system calls of a journal, in one place so that a test may fail any of them."""

    def open(self, path: Path) -> int:
        """Open a file for reading and appending, created if it is not there."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY, 0o600)

    def lock(self, descriptor: int) -> None:
        """Take the file for this opening of it alone, or raise `BlockingIOError`."""
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def read(self, descriptor: int) -> bytes:
        """Return all bytes of the file."""
        pieces, at = [], 0
        while piece := os.pread(descriptor, 1 << 24, at):
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def write(self, descriptor: int, data: bytes) -> int:
        """Append bytes; return how many were taken."""
        return os.write(descriptor, data)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut the file."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Wait until the file is on the disk."""
        sync_file(descriptor)

    def sync_folder(self, path: Path) -> None:
        """Wait until the folder's entries are on the disk."""
        sync_folder(path)

    def close(self, descriptor: int) -> None:
        """Close the file, which frees its lock."""
        os.close(descriptor)


class LocalJournal:
    """A journal in one file of a local folder.

    Parameters
    ----------
    folder : Path
        The folder; made if it is not there.
    disk : Disk
        The system calls.

    Raises
    ------
    BlockingIOError
        Another dispatcher has it open.
    RecordCorruptError
        It was damaged; the error names the byte.
    SnapshotVersionError
        It was written by a later version.
    """

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.path = folder / NAME
        self._disk = disk if disk is not None else Disk()
        self._broken: OSError | None = None
        make_folder(folder)
        self._descriptor = self._disk.open(self.path)
        not_inherited(self, LocalJournal.close)
        try:
            self._lock()
            self._disk.sync_folder(folder)
            data = self._disk.read(self._descriptor)
            lines, self._size, self._crc = read_lines(data, str(self.path))
            if self._size < len(data):
                self._disk.truncate(self._descriptor, self._size)  # durable with the next entry
            if not lines:
                self.append({"journal": "tundish dispatcher", "format": FORMAT})
            self.entries = _checked(lines, str(self.path))
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        try:
            self._disk.lock(self._descriptor)
        except BlockingIOError as error:
            raise BlockingIOError(
                error.errno,
                "another dispatcher is running with this journal; stop it, or give another work_dir",
                str(self.path),
            ) from None

    def append(self, entry: dict[str, Any]) -> None:
        """Write an entry; it is durable when this returns, and is not there if it raises.

        Raises
        ------
        OSError
            It could not be written.
        """
        if self._broken is not None:
            raise OSError(
                self._broken.errno,
                "an earlier entry could be neither written nor removed",
                self.path,
            ) from self._broken
        line, crc = frame(entry, self._crc)
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._disk.write(self._descriptor, bytes(rest)) :]
            self._disk.sync(self._descriptor)
        except OSError:
            self._take_back()
            raise
        self._size, self._crc = self._size + len(line), crc

    def _take_back(self) -> None:
        """Remove the part of an entry that was written before an error, so that the next entry follows a whole line."""
        try:
            self._disk.truncate(self._descriptor, self._size)
            self._disk.sync(self._descriptor)
        except OSError as error:
            self._broken = error

    def close(self) -> None:
        """Let another dispatcher open it. Safe to call twice."""
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1


class RemoteJournal:
    """A journal at a URL: an object for each line, numbered, since objects cannot be appended to.

    Each is created only if its name is free, so of two dispatchers the one that is behind learns it at once.

    Parameters
    ----------
    store : Store
        The folder.

    Raises
    ------
    RecordCorruptError
        A line was damaged or is missing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store.subfolder(NAME)
        self._number, self._crc = 0, 0
        lines: list[dict[str, Any]] = []
        names = [name for name in self._store.list() if name.isdecimal()]
        for name in names:
            shown = self._store.shown(name)
            if name != _numbered(self._number):
                missing = self._store.shown(_numbered(self._number))
                raise RecordCorruptError(missing, 0, f"is missing; {_REMEDY}")
            found, _, self._crc = read_lines(self._store.read(name), shown, self._crc)
            if not found and name != names[-1]:
                raise RecordCorruptError(shown, 0, f"is cut off; {_REMEDY}")
            if not found:  # where creating is not atomic: its call was never answered
                self._store.remove(name)
            lines += found
            self._number += len(found)
        if not lines:
            self.append({"journal": "tundish dispatcher", "format": FORMAT})
        self.entries = _checked(lines, self._store.shown())

    def append(self, entry: dict[str, Any]) -> None:
        """Write an entry; raise `OSError` if it could not be written."""
        line, crc = frame(entry, self._crc)
        name = _numbered(self._number)
        if not self._store.create(name, line):
            raise FileExistsError(errno.EEXIST, _SUPERSEDED, self._store.shown(name))
        self._number, self._crc = self._number + 1, crc

    def close(self) -> None:
        """Do nothing: nothing is open."""


class NoJournal:
    """A journal that keeps nothing: a dispatcher that restarts begins anew."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def append(self, entry: dict[str, Any]) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Do nothing."""


Journal = LocalJournal | RemoteJournal | NoJournal
"""Entries that outlive their writer: JSON objects in order."""


def open_journal(work_dir: str) -> Journal:
    """Open the journal of a folder or a URL; see `LocalJournal` and `RemoteJournal`."""
    if is_remote(work_dir):
        return RemoteJournal(open_store(work_dir))
    return LocalJournal(Path(local_path(work_dir)).expanduser())


def frame(entry: dict[str, Any], before: int) -> tuple[bytes, int]:
    """Return the line of an entry, and its checksum; `before` is that of the line before."""
    body = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode("ascii")
    crc = zlib.crc32(body, before)
    return b"%08x %d %b\n" % (crc, len(body), body), crc


def read_lines(data: bytes, path: str, crc: int = 0) -> tuple[list[dict[str, Any]], int, int]:
    """Return the entries of lines, the size of those that are whole, and the checksum of the last.

    Parameters
    ----------
    data : bytes
        The lines.
    path : str
        Their file, for errors.
    crc : int
        The checksum of the line before them.

    Raises
    ------
    RecordCorruptError
        A line was damaged, and no crash leaves it so.
    """
    lines: list[dict[str, Any]] = []
    at = 0
    while at < len(data):
        problem, end, found = _line(data, at, crc)
        if problem:
            if _is_torn(data, at):
                break
            raise RecordCorruptError(path, at, f"{problem}; {_REMEDY}")
        lines.append(json.loads(data[end - found[1] - 1 : end - 1]))
        at, crc = end, found[0]
    return lines, at, crc


def _line(data: bytes, at: int, before: int) -> tuple[str, int, tuple[int, int]]:
    """Return the problem of the line at a byte, empty if there is none; its end, its checksum and length."""
    head = _HEAD.match(data, at, at + 20)
    if head is None:
        return "a line does not begin with its checksum and length", at, (0, 0)
    length = int(head[2])
    end = head.end() + length + 1
    if len(data) < end or data[end - 1 : end] != b"\n":
        return f"a line of {length} bytes has no end", at, (0, 0)
    crc = zlib.crc32(memoryview(data)[head.end() : end - 1], before)
    if crc != int(head[1], 16):
        return f"crc32 is {crc:08x}, should be {head[1].decode()}", at, (0, 0)
    return "", end, (crc, length)


def _is_torn(data: bytes, at: int) -> bool:
    """Return True if the bytes from `at` on are the remains of one line that a crash interrupted."""
    line, end, rest = data[at:].partition(b"\n")
    if rest.strip(b"\0"):
        return False
    if b"\0" in line:  # JSON has no zeros: blocks that were never written
        return True
    if end:
        return False
    head = _HEAD.match(line)
    return _BEGUN.fullmatch(line) is not None or (
        head is not None and len(line) <= head.end() + int(head[2])
    )


def _checked(lines: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    """Return the entries after the first line, which says the format."""
    if not lines:
        return []
    version = lines[0].get("format")
    if version != FORMAT:
        raise SnapshotVersionError(path, str(version), str(FORMAT))
    return lines[1:]


def _numbered(number: int) -> str:
    return f"{number:08d}"
