"""Careful reading of our own files, since anything may have been put in their place.

A pipe would wait for a writer for ever, a device has no end, a file can be larger than memory, and deeply nested JSON
crashes the parser. Each of them is an error here, as is a link that leads to itself.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from typing import Any

from tundish.formats.bytes.durable import BINARY

LIMIT = 1 << 28
"""Bytes of a file that is read in one piece, unless more is said."""

# Of the flags that not every system has: a pipe is opened at once, a terminal does not become ours.
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
