"""New files, invisible until `publish`; after that their names survive a crash of the machine."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tundish.formats.bytes.durable import BINARY, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer


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
