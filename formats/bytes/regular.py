"""Careful reading and writing of our own files, since anything may have been put in their place.

A pipe would wait for a writer for ever, a device has no end, a file can be larger than memory, and deeply nested JSON
crashes the parser. Each of them is an error here, as is a link that leads to itself.

A new file replaces the old one atomically and survives a crash of the machine. A writer holds a lock on its temporary
file, which the system releases when the process ends in any way: a file that can be locked belongs to nobody any more,
and the next writer in the folder removes it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import secrets
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


if sys.platform != "win32":
    import fcntl

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
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # filesystems without this need
            raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY | getattr(os, "O_CLOEXEC", 0)
_LOOK = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | BINARY
_ATTEMPTS = 8
_ABANDONED_S = 3600.0
"""Seconds after which a temporary file counts as abandoned, if files cannot be locked."""

# Names of today, and those that `tempfile` made earlier.
_TOKEN = r"\.(?:[0-9a-f]{16}|[a-z0-9_]{8})\.part"  # noqa: S105 - of a name


@contextlib.contextmanager
def written_aside(target: Path, mode: int = 0o666) -> Iterator[tuple[Path, int]]:
    """Create a temporary file beside a target; remove it at the end, unless it was renamed.

    Parameters
    ----------
    target : Path
        The file it will replace.
    mode : int
        The file's permissions.

    Yields
    ------
    (Path, int)
        The temporary file, and a descriptor for writing, which is closed at the end.
    """
    path, descriptor = _begun(target, mode)
    try:
        yield path, descriptor
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # while it is locked
        os.close(descriptor)


def remove_abandoned(folder: Path, names: str) -> None:
    """Remove what killed writers have left in a folder; what cannot be removed is kept.

    Parameters
    ----------
    folder : Path
        The folder that they wrote to.
    names : str
        A regular expression for the files that they were to replace.
    """
    pattern = re.compile(f"(?:{names}){_TOKEN}")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def _begun(target: Path, mode: int) -> tuple[Path, int]:
    for _ in range(_ATTEMPTS):
        path = target.with_name(f"{target.name}.{secrets.token_hex(8)}.part")
        descriptor = os.open(path, _NEW, mode)
        try:
            if _locked(descriptor) is not False and _is_there(path, descriptor):
                return path, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # taken for abandoned before it was locked
    raise FileExistsError(
        f"{_ATTEMPTS} files beside {target} were removed by another program as they were made"
    )


def _remove_if_abandoned(path: Path) -> None:
    descriptor = os.open(path, _LOOK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return
        locked = _locked(descriptor)
        if locked or (locked is None and time.time() - found.st_mtime > _ABANDONED_S):
            path.unlink()
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool | None:
    """Lock a file; return False if another process has it locked, None if the system cannot lock."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a filesystem without
        return None
    return True


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


LIMIT = 1 << 28
"""The default limit in bytes for a file that is read in one piece."""

# Flags that not every system has: they open a pipe at once, and do not make a terminal ours.
_FLAGS = (
    os.O_RDONLY
    | BINARY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)


def open_regular(path: str | os.PathLike[str]) -> io.FileIO:
    """Open a regular file for reading, without waiting.

    Raises
    ------
    OSError
        It cannot be opened, or is not a regular file; with the path.
    """
    # An opener's descriptor is the file's at once: no interrupt can make it leak.
    file = io.FileIO(path, "rb", opener=lambda name, _: os.open(name, _FLAGS))
    try:
        _check_regular(os.fstat(file.fileno()).st_mode, path)
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(mode: int, path: str | os.PathLike[str]) -> None:
    if not stat.S_ISREG(mode):
        kind = "pipe" if stat.S_ISFIFO(mode) else "device"  # a socket cannot be opened
        raise OSError(errno.EINVAL, f"is a {kind}, not a file", os.fspath(path))


def read_regular(path: str | os.PathLike[str], limit: int = LIMIT) -> bytes:
    """Read all bytes of a regular file.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    limit : int
        The largest size; a larger file is not read.

    Raises
    ------
    OSError
        It cannot be read, is not a regular file, or is too large (``EFBIG``); with the path.
    """
    with open_regular(path) as file:
        return read_all(file, limit)


def read_all(file: io.FileIO, limit: int = LIMIT) -> bytes:
    """Read all bytes of a file from `open_regular`, like `read_regular`."""
    size, path = os.fstat(file.fileno()).st_size, os.fspath(file.name)
    if size > limit:
        raise OSError(errno.EFBIG, f"has {size:,} bytes; {limit:,} at most were expected", path)
    try:
        return file.readall() or b""
    except OSError as error:  # it has no path
        raise OSError(error.errno, error.strerror, path) from None


def parse_json(data: bytes | str) -> Any:
    """Parse JSON.

    Raises
    ------
    ValueError
        It is not JSON, not text, nested too deeply, or has a number with too many digits.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
