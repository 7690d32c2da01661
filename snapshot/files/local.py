"""Immutable files on a local disk: written under a temporary name, made durable, then renamed.

A new file is called ``<name>.<something>.tmp`` until all its bytes are on the disk. Then it gets its name by
link(2), which fails if the name exists, and the folder is synced. So a file with its name is complete,
and of two writers of one name exactly one wins.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil

from tundish.formats.bytes.regular import (
    BINARY,
    LIMIT,
    open_regular,
    read_regular,
    sync_file,
    sync_folder,
)
from tundish.snapshot.failpoints import reach
from tundish.snapshot.files.mapping import Mapping
from tundish.snapshot.frame import TornFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer


REMOVED_FIRST = {"manifest.json", "run.json"}
"""Files without which nothing in their folder is read."""

_NETWORKED = ("nfs", "cifs", "smb", "fuse", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs")
_T = TypeVar("_T")
_NOT_HERE = (FileNotFoundError, NotADirectoryError)
_NO_FILE = {errno.EFBIG, errno.EINVAL, errno.EISDIR, errno.ELOOP}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY
_ATTEMPTS = 8
_MOST_PIECES = 1024  # buffers that one call of writev takes
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def make_folder(path: Path) -> None:
    """Create a durable folder, and its parents."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    sync_folder(path.parent)


def publish(path: Path, name: Path) -> bool:
    """Give a file that is on the disk its final name, if that is free; return False if it is not.

    On filesystems with hard links the file keeps its temporary name as well.
    """
    try:
        name.hardlink_to(path)
    except FileExistsError:
        # Over NFS the answer to a link that was made can be lost, and the call be made again.
        return path.stat().st_nlink == 2 and path.samefile(name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _claim(path, name)
    return True


def _claim(path: Path, name: Path) -> bool:
    """Publish without hard links: take the name with an empty file, then rename the complete one over it.

    So an empty file means that a writer is between the two steps, or died there.
    """
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o666))
    except FileExistsError:
        return False
    path.replace(name)
    return True


class Sink(ABC):
    """A new file of a store that is being written.

    Attributes
    ----------
    name : str
        Its final name.
    offset : int
        The number of bytes written.
    closed : bool
        True once it was published or abandoned.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.closed = False

    def write(self, data: Buffer) -> None:
        """Append bytes: all of them, or raise an error."""
        self.writev([data])

    def writev(self, pieces: Iterable[Buffer]) -> None:
        """Append the bytes of several buffers, without concatenating them."""
        views = [view for view in (memoryview(piece).cast("B") for piece in pieces) if view]
        size = sum(view.nbytes for view in views)  # they are used up
        self._append(views)
        self.offset += size

    @abstractmethod
    def _append(self, views: list[memoryview]) -> None: ...

    @abstractmethod
    def sync(self) -> None:
        """Start flushing what was written to the disk, so that publishing is quick."""

    @abstractmethod
    def publish(self) -> bool:
        """Make it durable under its final name; return False if the name is taken."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove it, unless it was published."""


class LocalStore:
    """A folder on a local or mounted filesystem.

    Parameters
    ----------
    root : str or os.PathLike
        The folder; it is created when something is written.
    """

    local = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = str(Path(root).absolute())
        self._root = Path(self.root)

    def shown(self, name: str = "") -> str:
        """Return the full path of a name, for messages and for `open`."""
        return f"{self.root}/{name}" if name else self.root

    def subfolder(self, name: str) -> LocalStore:
        """Return the store of a subfolder."""
        return LocalStore(self._root / name)

    @property
    def mappable(self) -> bool:
        """True if `map` is safe: on a network filesystem a lost page kills the process."""
        return not _filesystem(str(self._standing().resolve())).startswith(_NETWORKED)

    def free_bytes(self) -> int | None:
        """Return how many bytes may still be written."""
        return shutil.disk_usage(self._standing()).free

    def _standing(self) -> Path:
        """Return the folder, or the nearest existing parent."""
        return next(place for place in (self._root, *self._root.parents) if place.exists())

    # -- reading ----------------------------------------------------------------------------------

    def read(self, name: str, limit: int = LIMIT) -> bytes:
        """Return all bytes of a file; one larger than `limit` is treated as corrupt."""
        try:
            return read_regular(self._root / name, limit)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            raise TornFileError(self.shown(name), error.strerror or "cannot be read") from None

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Return a range of a file's bytes; fewer at its end."""
        with open_regular(self._root / name) as file:
            file.seek(offset)
            return file.read(length)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        try:
            return (self._root / name).stat().st_size
        except _NOT_HERE:
            return None

    def modified(self, name: str) -> float | None:
        """Return a file's modification time, by the filesystem's own clock; None if it does not exist."""
        try:
            return (self._root / name).stat().st_mtime
        except _NOT_HERE:
            return None

    def list(self, folder: str = "") -> list[str]:
        """Return the names in a folder, sorted; none if it does not exist."""
        try:
            return sorted(entry.name for entry in (self._root / folder).iterdir())
        except _NOT_HERE:
            return []

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the files in a folder with their sizes; none if it does not exist."""
        found = {}
        with suppress(*_NOT_HERE), os.scandir(self._root / folder) as entries:
            for entry in entries:
                with suppress(*_NOT_HERE):  # removed meanwhile
                    if entry.is_file():
                        found[entry.name] = entry.stat().st_size
        return found

    def map(self, name: str) -> Mapping:
        """Map a file for reading."""
        return Mapping.of(self.shown(name))

    # -- writing ----------------------------------------------------------------------------------

    def create(self, name: str, data: bytes, step: str = "") -> bool:
        """Write a durable file, if its name is free.

        Parameters
        ----------
        name : str
            The file's name.
        data : bytes
            All of its bytes.
        step : str, optional
            The prefix of failpoints on the way: ``<step>.begin`` ... ``<step>.durable``.

        Returns
        -------
        bool
            False if the name was taken: the existing file is unchanged.
        """
        path = self._root / name
        return not os.path.lexists(path) and _again(lambda: self._create(name, data, step))

    def _create(self, name: str, data: bytes, step: str) -> bool:
        if step:
            reach(f"{step}.begin")
        sink = self._sink(name, f"{name}.{secrets.token_hex(4)}.tmp", step)
        try:
            sink.write(data)
            if step:
                reach(f"{step}.written")
            return sink.publish()
        except OSError:
            sink.abandon()
            raise

    def claim(self, name: str, data: bytes) -> bool:
        """Write a hint file if its name is free; it is neither durable nor atomic."""
        path = self._root / name
        make_folder(path.parent)
        try:
            descriptor = os.open(path, _NEW, 0o666)
        except FileExistsError:
            return False
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            file.write(data)
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Write a durable file, replacing the existing one."""
        _again(lambda: self._replace(name, data))

    def _replace(self, name: str, data: bytes) -> None:
        path = self._root / name
        sink = self._sink(name, f"{name}.{secrets.token_hex(4)}.tmp", "")
        try:
            sink.write(data)
            reach("replace.written")
            sink.sync()
            reach("replace.synced")
            sink.end()
            sink.path.replace(path)
        except OSError:
            sink.end()
            sink.path.unlink(missing_ok=True)
            raise
        reach("replace.renamed")
        sync_folder(path.parent)
        reach("replace.durable")

    def sink(self, name: str, step: str = "shard") -> LocalSink:
        """Open a new file, which is written under its name plus ``.tmp``.

        Raises
        ------
        FileExistsError
            There is one already, left by a dead writer.
        """
        return self._sink(name, f"{name}.tmp", step)

    def _sink(self, name: str, temporary: str, step: str) -> LocalSink:
        path = self._root / temporary
        try:
            return LocalSink(name, self._root / name, path, step)
        except FileNotFoundError:
            make_folder(path.parent)
            return LocalSink(name, self._root / name, path, step)

    def touch(self, name: str) -> None:
        """Set a file's modification time to now, by the filesystem's own clock."""
        os.utime(self._root / name)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(*_NOT_HERE):
            (self._root / name).unlink()

    def prune(self, name: str) -> None:
        """Remove a folder, if it is empty."""
        with suppress(OSError):
            (self._root / name).rmdir()

    def remove_tree(self, name: str = "") -> None:
        """Remove a folder: its own files before its subfolders.

        So the files that mark something as complete (a manifest, a run's header) go first, and an interrupted removal
        leaves nothing that could be read.
        """
        files = sorted(self.sizes(name), key=lambda file: (file not in REMOVED_FIRST, file))
        for file in files:
            self.remove(f"{name}/{file}" if name else file)
        for folder in self.list(name):
            self.remove_tree(f"{name}/{folder}" if name else folder)
        with suppress(*_NOT_HERE):
            (self._root / name).rmdir()


def _again(write: Callable[[], _T]) -> _T:
    """Write, and retry if another process removed the temporary file as a dead writer's."""
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            return write()
    return write()


class LocalSink(Sink):
    """A new file on a local disk."""

    def __init__(self, name: str, target: Path, path: Path, step: str) -> None:
        super().__init__(name)
        self.closed = True  # until the file is open
        self.target = target
        self.path = path
        self._step = step
        self._descriptor = os.open(path, _NEW, 0o666)
        self.closed = False

    def _append(self, views: list[memoryview]) -> None:
        try:
            while views:
                written = _write(self._descriptor, views)
                while views and written >= views[0].nbytes:
                    written -= views.pop(0).nbytes
                if written:
                    views[0] = views[0][written:]
        except OSError as error:
            raise self._named(error) from None

    def sync(self) -> None:
        try:
            sync_file(self._descriptor)
        except OSError as error:
            raise self._named(error) from None

    def _named(self, error: OSError) -> OSError:
        """Return an error with the file's name, since a full or failing disk should be named."""
        return OSError(error.errno, error.strerror, str(self.path))

    def publish(self) -> bool:
        self.sync()
        if self._step:
            reach(f"{self._step}.synced")
        won = publish(self.path, self.target)
        if self._step:
            reach(f"{self._step}.linked")
        self.abandon()
        sync_folder(self.target.parent)
        if self._step:
            reach(f"{self._step}.durable")
        return won

    def abandon(self) -> None:
        if not self.closed:
            self.end()
            with suppress(*_NOT_HERE):
                self.path.unlink()

    def end(self) -> None:
        """Close the file, and leave it under its temporary name."""
        if not self.closed:
            self.closed = True
            os.close(self._descriptor)

    def __del__(self) -> None:
        self.end()


def _write(descriptor: int, views: list[memoryview]) -> int:
    if hasattr(os, "writev"):
        return os.writev(descriptor, views[:_MOST_PIECES])
    return os.write(descriptor, views[0])


def _filesystem(path: str) -> str:
    """Return the type of the filesystem that contains a path; "" if the system does not say."""
    mounts = [
        (len(part.mountpoint), part.fstype)
        for part in psutil.disk_partitions(all=True)
        if f"{path}/".startswith(f"{part.mountpoint.rstrip('/')}/")
    ]
    return max(mounts, default=(0, ""))[1]
