"""Making names and bytes outlive a crash of the machine, and names be taken only once."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from tundish.formats.bytes.durable import BINARY, sync_file, sync_folder

__all__ = ["BINARY", "make_folder", "publish", "sync_file", "sync_folder"]

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def make_folder(path: Path) -> None:
    """Make a folder and those above it, durable."""
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
