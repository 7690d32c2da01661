"""Files with reads at any offset: on a local disk, or at a URL through fsspec.

Local files are read by ``pread`` and never mapped: if another process truncates a mapped file, a signal
kills this one. A file has the size it had when it was opened; bytes added later
are not read, and truncated bytes are missing.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tundish.formats.format import Identity

StorageOptions = Mapping[str, Any] | tuple[tuple[str, Any], ...] | None
"""The options of a URL's filesystem; as pairs, where they must be hashable."""

_LOCAL_SCHEMES = ("file://", "local://")
_PROTOCOL = re.compile("[A-Za-z][A-Za-z0-9+.-]*(://|::)")  # "s3://...", "zip::file://..."
_PIECE = 1 << 30  # the most bytes that one system call reads
_TELLTALES = frozenset(
    {"etag", "generation", "md5", "md5hash", "crc32c", "version", "versionid", "mtime", "created",
     "updated", "last_modified", "lastmodified", "last-modified"}
)  # fmt: skip
"""The attributes of a file that change with its bytes, in different filesystems."""


def open_file(path: str, storage_options: StorageOptions = None) -> ByteFile:
    """Open a file for reading.

    Parameters
    ----------
    path : str
        A local path, or a URL that fsspec knows (``file://`` is local).
    storage_options : mapping or tuple of pairs, optional
        Options of a URL's filesystem.

    Raises
    ------
    OSError
        It cannot be opened, with the path: `FileNotFoundError`, `IsADirectoryError`,
        `PermissionError`, ...
    ImportError
        fsspec, or its driver for this protocol, is not installed.
    """
    if is_remote(path):
        return _RemoteFile(path, storage_options)
    return _LocalFile(path)


def is_remote(path: str) -> bool:
    """Return True if a path is a URL that is not local: it begins with a protocol, as no absolute path does."""
    return _PROTOCOL.match(path) is not None and not path.startswith(_LOCAL_SCHEMES)


def local_path(path: str) -> str:
    """Return a local path without a scheme."""
    for scheme in _LOCAL_SCHEMES:
        if path.startswith(scheme):
            return path.removeprefix(scheme)
    return path


def filesystem_of(path: str, storage_options: StorageOptions = None) -> tuple[Any, str]:
    """Return the fsspec filesystem of a URL, and the path in it.

    Raises
    ------
    ImportError
        fsspec, or its driver for this protocol, is not installed.
    ValueError
        The protocol does not exist.
    OSError
        The filesystem cannot be reached; with the path.
    """
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra, needed for URLs only
    except ImportError:
        raise ImportError(
            f"{path} is not a local path, and fsspec is not installed: pip install fsspec"
        ) from None
    try:
        filesystem, inner = url_to_fs(path, **dict(storage_options or ()))
    except (ImportError, ValueError) as problem:
        protocol = path.split("://", 1)[0]
        raise type(problem)(
            f"{path} cannot be opened: {problem} (for s3:// install s3fs, for gs:// gcsfs, "
            f"for az:// adlfs; {protocol}:// may need another)"
        ) from problem
    except Exception as problem:  # each filesystem has its own
        raise named_error(problem, path) from problem
    return filesystem, inner


def remote_size(path: str, storage_options: StorageOptions = None) -> int | None:
    """Return the size of a file at a URL; None if it is not available."""
    try:
        filesystem, inner = filesystem_of(path, storage_options)
        return int(filesystem.size(inner))
    except Exception:  # noqa: BLE001 - each filesystem has its own; reading raises it
        return None


class ByteFile(ABC):
    """A file open for reading, for one thread at a time.

    Attributes
    ----------
    path : str
        The path as given.
    size : int
        Its size in bytes when it was opened.
    identity : Identity
        Its identity when it was opened.
    block : int
        The recommended size of one read, if much is to be read.
    hop : int
        The approximate number of bytes from which skipping is faster than reading.
    """

    path: str
    size: int
    identity: Identity
    block: int
    hop: int

    def pread(self, offset: int, count: int) -> bytes:
        """Return bytes at an offset: fewer at the end of the file, none after it.

        Raises
        ------
        OSError
            They cannot be read; the error has the path.
        """
        count = min(count, self.size - offset)
        if count <= 0:
            return b""
        data = self._read(offset, count)
        if len(data) == count or not data:
            return data
        return b"".join(self._pieces(data, offset, count))

    def _pieces(self, data: bytes, offset: int, count: int) -> list[bytes]:
        """Return data in pieces, reading on if one call returned too little."""
        pieces = []
        while data:
            pieces.append(data)
            offset, count = offset + len(data), count - len(data)
            data = self._read(offset, count) if count else b""
        return pieces

    def readinto(self, offset: int, buffer: Buffer) -> int:
        """Fill a buffer with the bytes at an offset; return their number, which is smaller at the end of the file."""
        view = memoryview(buffer).cast("B")
        data = self.pread(offset, view.nbytes)
        view[: len(data)] = data
        return len(data)

    @abstractmethod
    def _read(self, offset: int, count: int) -> bytes:
        """Return at least one of the bytes, if the file is still that long."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; may be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _LocalFile(ByteFile):
    """A regular local file."""

    block = 1 << 18  # larger ones are new memory each time, at more cost than the calls it saves
    hop = 1 << 17

    def __init__(self, path: str) -> None:
        self.path = path
        name = local_path(path)
        try:
            found = os.stat(name)  # noqa: PTH116 - a `Path` would cost ten times the call
            if stat.S_ISREG(found.st_mode):  # a pipe would wait for its writer
                # The only way to hold a descriptor so that no interrupt can make it leak.
                self._file = io.FileIO(name)
                self._descriptor = self._file.fileno()
                found = os.fstat(self._descriptor)
        except OSError as error:
            raise named_error(error, path) from None
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(found.st_mode):
            # a pipe or a device has no offsets to read at
            raise OSError(errno.ESPIPE, "Not a regular file", path)
        self.size = found.st_size
        self.identity = (found.st_size, found.st_mtime_ns)

    def _read(self, offset: int, count: int) -> bytes:
        try:
            return _pread(self._descriptor, min(count, _PIECE), offset)
        except OSError as error:
            raise named_error(error, self.path) from None

    def readinto(self, offset: int, buffer: Buffer) -> int:
        if not hasattr(os, "preadv"):
            return super().readinto(offset, buffer)
        view = memoryview(buffer).cast("B")[: max(0, self.size - offset)]
        done = 0
        try:
            while done < view.nbytes:
                piece = view[done : done + _PIECE]
                came = os.preadv(self._descriptor, [piece], offset + done)
                if not came:
                    break
                done += came
        except OSError as error:
            raise named_error(error, self.path) from None
        return done

    def close(self) -> None:
        self._descriptor = -1
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


class _RemoteFile(ByteFile):
    """A file of an fsspec filesystem; every read is a request of its own."""

    block = 8 << 20
    hop = 4 << 20

    def __init__(self, path: str, storage_options: StorageOptions) -> None:
        self.path = path
        self._filesystem, self._inner = filesystem_of(path, storage_options)
        self._filesystem.invalidate_cache(self._inner)  # of what a listing said some time ago
        info = self._ask(self._filesystem.info, self._inner)
        if info.get("type") == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if info.get("size") is None:
            raise OSError(errno.ESPIPE, "The filesystem does not say how large it is", path)
        self.size = int(info["size"])
        told = sorted((key, str(info[key])) for key in info if key.lower() in _TELLTALES)
        digest = blake2b(repr(told).encode(), digest_size=8).digest()
        self.identity = (self.size, int.from_bytes(digest, "little") >> 1)

    def _read(self, offset: int, count: int) -> bytes:
        asked = {"start": offset, "end": offset + count}
        data = bytes(self._ask(self._filesystem.cat_file, self._inner, **asked))
        if len(data) > count:
            raise OSError(
                errno.ESPIPE,
                f"{len(data):,} bytes came where {count:,} from byte {offset:,} on were asked for, so the server does not "
                "send parts of a file. Download it, or let fsspec do so: simplecache:: before the URL",
                self.path,
            )
        return data

    def _ask(self, function: Any, *args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except Exception as error:  # each filesystem has its own
            raise named_error(error, self.path) from error

    def close(self) -> None:
        """Do nothing: the filesystem is shared by the process."""


def named_error(error: Exception, path: str) -> OSError:
    """Return an error as the system would make it, with the file's path.

    Reads by descriptor do not report the path; fsspec has errors without errno, and classes of its own.
    """
    number = getattr(error, "errno", None)
    if isinstance(number, int):
        return OSError(number, os.strerror(number), path)  # which is of the class of the number
    number = next((n for kind, n in _NUMBERS.items() if isinstance(error, kind)), errno.EIO)
    text = os.strerror(number)
    if number == errno.EIO:
        text += f" ({type(error).__name__}: {error})"
    return OSError(number, text, path)


_NUMBERS: dict[type[Exception], int] = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    TimeoutError: errno.ETIMEDOUT,
}


def _pread(descriptor: int, count: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)  # Windows; a file is used by one thread at a time
    return os.read(descriptor, count)
