"""Files at a URL, through fsspec: object stores and others.

An object store shows only complete files, so nothing is written under a temporary name. Creating a file only if it is
absent is requested of the filesystem (``mode="create"``: a conditional PUT on S3 and GCS); what is found
afterwards decides who won, since not every filesystem honours the request.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tundish.errors import SnapshotCorruptError, SnapshotError
from tundish.formats.bytes.file import filesystem_of
from tundish.formats.bytes.regular import LIMIT
from tundish.snapshot.failpoints import reach
from tundish.snapshot.files.local import REMOVED_FIRST
from tundish.snapshot.files.publishing import Sink
from tundish.snapshot.frame import TornFileError

if TYPE_CHECKING:
    from collections.abc import Mapping as Options

    from tundish.snapshot.files.mapping import Mapping


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
