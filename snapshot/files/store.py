"""Stores: folders of immutable files, on a local disk or, through fsspec, at a URL.

An object store shows only complete files, so nothing is written under a temporary name. Creating a file only if it is
absent is requested of the filesystem (``mode="create"``: a conditional PUT on S3 and GCS); what is found
afterwards decides who won, since not every filesystem honours the request.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tundish.errors import SnapshotCorruptError, SnapshotError
from tundish.formats.bytes.file import filesystem_of, is_remote, local_path
from tundish.formats.bytes.regular import LIMIT
from tundish.snapshot.failpoints import reach
from tundish.snapshot.files.local import REMOVED_FIRST, LocalStore, Sink
from tundish.snapshot.frame import TornFileError

if TYPE_CHECKING:
    from collections.abc import Mapping as Options

    from tundish.snapshot.files.mapping import Mapping

__all__ = ["LocalStore", "RemoteStore", "Store", "open_store"]


class Store(Protocol):
    """A folder of immutable files. Names are relative, with ``/``.

    Reading a missing file raises `FileNotFoundError`, other problems an `OSError`, both with the
    file's name; a file that is larger than possible raises `SnapshotCorruptError`.
    """

    root: str
    """The folder."""

    local: bool
    """True if `shown` gives a path that `open` takes."""

    @property
    def mappable(self) -> bool:
        """True if `map` is safe: on a disk of this machine."""

    def shown(self, name: str = "") -> str:
        """The full name, for messages."""

    def read(self, name: str, limit: int = LIMIT) -> bytes:
        """Return all bytes of a file of at most `limit` bytes."""

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Return a range of a file's bytes; fewer at its end."""

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""

    def modified(self, name: str) -> float | None:
        """Return a file's modification time, by the filesystem's clock; None if it does not exist."""

    def list(self, folder: str = "") -> list[str]:
        """Return the names in a folder, sorted; none if it does not exist."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the files in a folder with their sizes; none if it does not exist."""

    def create(self, name: str, data: bytes, step: str = "") -> bool:
        """Write a durable file, if its name is free; return False if it is taken.

        `step` is the prefix of failpoints on the way: ``<step>.begin`` ... ``<step>.durable``.
        """

    def claim(self, name: str, data: bytes) -> bool:
        """Write a hint file if its name is free; it is neither durable nor atomic."""

    def replace(self, name: str, data: bytes) -> None:
        """Write a durable file, replacing the existing one."""

    def sink(self, name: str, step: str = "shard") -> Sink:
        """Open a new file, under its name plus ``.tmp`` until it is published."""

    def touch(self, name: str) -> None:
        """Set a file's modification time to now."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    def prune(self, name: str) -> None:
        """Remove a folder, if it is empty; a process that writes to it creates it again."""

    def remove_tree(self, name: str = "") -> None:
        """Remove a folder, beginning with the files that mark it as complete."""

    def map(self, name: str) -> Mapping:
        """Map a local file for reading."""

    def free_bytes(self) -> int | None:
        """Return how many bytes may still be written; None if unknown."""

    def subfolder(self, name: str) -> Store:
        """Return the store of a subfolder."""


def open_store(
    path: str | os.PathLike[str], storage_options: Options[str, Any] | None = None
) -> Store:
    """Return the store of a path or a URL.

    Parameters
    ----------
    path : str or os.PathLike
        A local path (full guarantees), or a URL that fsspec knows: ``s3://bucket/snapshots``.
    storage_options : mapping, optional
        Options of a URL's filesystem.

    Raises
    ------
    SnapshotError
        fsspec, or its driver for this protocol, is not installed.
    """
    text = os.fspath(path)
    if is_remote(text):
        return remote_store(text, storage_options)
    local = local_path(text)
    return LocalStore(local if local != text else Path(text).expanduser())


def remote_store(url: str, storage_options: Options[str, Any] | None = None) -> RemoteStore:
    """Return the store of a URL.

    Raises
    ------
    SnapshotError
        fsspec, or its driver for this protocol, is not installed.
    """
    try:
        filesystem, root = filesystem_of(url, storage_options)
    except (ImportError, ValueError) as problem:
        raise SnapshotError(str(problem)) from problem
    return RemoteStore(filesystem, root)


class RemoteStore:
    """A folder on an fsspec filesystem.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
        The filesystem.
    root : str
        The folder's path in it, without the protocol.
    """

    local = False
    mappable = False

    def __init__(self, filesystem: Any, root: str) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")

    def shown(self, name: str = "") -> str:
        return str(self.filesystem.unstrip_protocol(self._path(name)))

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    # -- reading ----------------------------------------------------------------------------------

    def read(self, name: str, limit: int = LIMIT) -> bytes:
        size = self.size(name)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.shown(name))
        if size > limit:
            raise TornFileError(
                self.shown(name), f"has {size:,} bytes, {limit:,} at most were expected"
            )
        return self._bytes(name)

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        return self._bytes(name, start=offset, end=offset + length)

    def _bytes(self, name: str, **span: int) -> bytes:
        try:
            return bytes(self.filesystem.cat_file(self._path(name), **span))
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, str(error), self.shown(name)) from None

    def size(self, name: str) -> int | None:
        self.filesystem.invalidate_cache()
        try:
            info = self.filesystem.info(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if info.get("type") == "directory" else int(info["size"])

    def modified(self, name: str) -> float | None:
        self.filesystem.invalidate_cache()
        try:
            found: datetime = self.filesystem.modified(self._path(name))
        except (FileNotFoundError, NotImplementedError, KeyError):
            return None
        return found.timestamp()

    def list(self, folder: str = "") -> list[str]:
        self.filesystem.invalidate_cache()
        try:
            found = self.filesystem.ls(self._path(folder), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = {str(path).rstrip("/").rsplit("/", 1)[-1] for path in found}
        return sorted(names)

    def sizes(self, folder: str = "") -> dict[str, int]:
        self.filesystem.invalidate_cache()
        try:
            found = self.filesystem.ls(self._path(folder), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        files = (info for info in found if info["type"] == "file")
        return {info["name"].rsplit("/", 1)[-1]: int(info["size"]) for info in files}

    def map(self, name: str) -> Mapping:
        raise SnapshotError(f"{self.shown(name)} is not local and cannot be mapped")

    def free_bytes(self) -> int | None:
        return None

    # -- writing ----------------------------------------------------------------------------------

    def create(self, name: str, data: bytes, step: str = "") -> bool:
        path = self._path(name)
        if self.size(name) is not None:
            return False
        if step:
            reach(f"{step}.begin")
        self._make_folder(path)
        try:
            self.filesystem.pipe_file(path, data, mode="create")
        except FileExistsError:
            pass  # perhaps by ourselves: a request may be sent twice
        except (TypeError, ValueError, NotImplementedError):  # it knows no such mode
            self.filesystem.pipe_file(path, data)
        if step:
            reach(f"{step}.linked")
        won = self.read(name) == data
        if step:
            reach(f"{step}.durable")
        return won

    def claim(self, name: str, data: bytes) -> bool:
        return self.create(name, data)

    def replace(self, name: str, data: bytes) -> None:
        path = self._path(name)
        self._make_folder(path)
        reach("replace.written")
        self.filesystem.pipe_file(path, data)
        reach("replace.durable")

    def sink(self, name: str, step: str = "shard") -> RemoteSink:
        self._make_folder(self._path(name))
        return RemoteSink(self, name, self._path(name), step)

    def touch(self, name: str) -> None:
        self.replace(name, self.read(name))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem.rm_file(self._path(name))

    def prune(self, name: str) -> None:
        if not self.list(name):
            with suppress(OSError, NotImplementedError):
                self.filesystem.rmdir(self._path(name))

    def remove_tree(self, name: str = "") -> None:
        files = self.sizes(name)
        for file in sorted(files, key=lambda file: (file not in REMOVED_FIRST, file)):
            self.remove(f"{name}/{file}" if name else file)
        for folder in self.list(name):
            if folder not in files:  # some stores list a folder that has no file any more
                self.remove_tree(f"{name}/{folder}" if name else folder)
        with suppress(OSError, NotImplementedError):  # an object store has no folders
            self.filesystem.rmdir(self._path(name))

    def subfolder(self, name: str) -> RemoteStore:
        return RemoteStore(self.filesystem, self._path(name))

    def _make_folder(self, path: str) -> None:
        self.filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)


class RemoteSink(Sink):
    """A new object; on stores without folders it is visible once `publish` has closed it."""

    def __init__(self, store: RemoteStore, name: str, path: str, step: str) -> None:
        super().__init__(name)
        self._store = store
        self._step = step
        self._file = store.filesystem.open(path, "wb")

    def _append(self, views: list[memoryview]) -> None:
        for view in views:
            self._file.write(view)

    def sync(self) -> None:
        """Do nothing, since an object does not exist before it is closed."""

    def publish(self) -> bool:
        self.closed = True
        self._file.close()
        if self._step:
            reach(f"{self._step}.linked")
        size = self._store.size(self.name)
        if size != self.offset:
            raise SnapshotCorruptError(
                self._store.shown(self.name), f"has {size} bytes, and {self.offset} were written"
            )
        if self._step:
            reach(f"{self._step}.durable")
        return True

    def abandon(self) -> None:
        if not self.closed:
            self.closed = True
            try:
                self._file.discard()  # an upload that is under way
            except (AttributeError, NotImplementedError, RuntimeError):  # it writes into place
                self._file.close()
            self._store.remove(self.name)
