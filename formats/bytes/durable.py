"""Making bytes and names outlive a crash of the machine."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

if sys.platform == "darwin":
    import fcntl

__all__ = ["BINARY", "sync_file", "sync_folder"]

BINARY = getattr(os, "O_BINARY", 0)


def sync_file(descriptor: int) -> None:
    """Wait until a file's bytes are on the disk."""
    if sys.platform == "darwin":  # where fsync only hands them to the drive
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":
        return  # it cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # of filesystems that have no need to
            raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)
