"""New files on their way: nobody sees them until `publish`, and then their names outlive a crash of the machine."""

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
    """Make a folder and its parents, durable."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    sync_folder(path.parent)


def publish(path: Path, name: Path) -> bool:
    """Give a file, all of which is on the disk, the name it is for, if that is free.

    The file keeps its first name too, where the filesystem has hard links.
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
    """The same without links: the name is taken by an empty file, and the whole one renamed over it.

    So an empty file is a writer that is between the two, or died there.
    """
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o666))
    except FileExistsError:
        return False
    path.replace(name)
    return True


class Sink(ABC):
    """The writer that a store gives for a new file.

    Attributes
    ----------
    name : str
        What it will be called.
    offset : int
        How many bytes were written.
    closed : bool
        Whether it was published or abandoned.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.closed = False

    def write(self, data: Buffer) -> None:
        """Append bytes: all of them, or an error."""
        self.writev([data])

    def writev(self, pieces: Iterable[Buffer]) -> None:
        """Append the bytes of several buffers, without putting them together."""
        views = [view for view in (memoryview(piece).cast("B") for piece in pieces) if view]
        size = sum(view.nbytes for view in views)  # they are used up
        self._append(views)
        self.offset += size

    @abstractmethod
    def _append(self, views: list[memoryview]) -> None: ...

    @abstractmethod
    def sync(self) -> None:
        """Send what was written to the disk, so that publishing is short."""

    @abstractmethod
    def publish(self) -> bool:
        """Make it durable and give it its name; False if the name is taken."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove it, unless it was published."""
