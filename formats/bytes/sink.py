"""New files: compressed on the way, and invisible until they are complete."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import zlib
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Protocol, Self

from tundish.formats.bytes.decompressing import zstd_module
from tundish.formats.bytes.file import (
    StorageOptions,
    filesystem_of,
    is_remote,
    local_path,
    named_error,
)
from tundish.formats.bytes.regular import BINARY, sync_file, sync_folder

if TYPE_CHECKING:
    from typing_extensions import Buffer

_WINDOW_BITS = {"GZIP": 16 + zlib.MAX_WBITS, "ZLIB": zlib.MAX_WBITS}


def open_sink(
    path: str,
    compression: str = "",
    level: int | None = None,
    storage_options: StorageOptions = None,
) -> FileSink:
    """Begin a new file, which will replace an existing one.

    Parameters
    ----------
    path : str
        A local path or a URL. The folder must exist.
    compression : {"", "GZIP", "ZLIB", "ZSTD"}
        The compression of the whole file.
    level : int, optional
        The compression level.
    storage_options : mapping or tuple of pairs, optional
        Options of a URL's filesystem.

    Raises
    ------
    OSError
        The file cannot be written.
    ImportError
        fsspec, its driver for this protocol, or the compressor is not installed.
    """
    compressor = _compressor(compression, level)
    if is_remote(path):
        return _RemoteSink(path, compressor, storage_options)
    return _LocalSink(path, compressor)


class _Compressor(Protocol):
    def compress(self, data: Buffer, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _compressor(compression: str, level: int | None) -> _Compressor | None:
    if not compression:
        return None
    if compression == "ZSTD":
        zstd = zstd_module()
        # With a checksum of the content, as the others have.
        options = {zstd.CompressionParameter.checksum_flag: 1}
        if level is not None:
            options[zstd.CompressionParameter.compression_level] = level
        return zstd.ZstdCompressor(options=options)  # type: ignore[no-any-return]  # no types
    level = zlib.Z_DEFAULT_COMPRESSION if level is None else level
    return zlib.compressobj(level, wbits=_WINDOW_BITS[compression])


class FileSink(ABC):
    """A file that is being written; an exception in its ``with`` block abandons it.

    Attributes
    ----------
    path : str
        Its final name.
    """

    _open = False  # for a sink that could not be opened

    def __init__(self, path: str, compressor: _Compressor | None) -> None:
        self.path = path
        self._compressor = compressor
        self._open = True
        self._owner = os.getpid()

    def write(self, data: Buffer) -> None:
        """Append bytes: all of them, or raise an error."""
        if not self._open:
            raise ValueError(f"{self.path} is closed")
        self._append(data if self._compressor is None else self._compressor.compress(data))

    def close(self) -> None:
        """Complete the file under its final name; may be called again."""
        if not self._open:
            return
        try:
            if self._compressor is not None:
                self._append(self._compressor.flush())
            self._publish()
        except BaseException:
            self.abandon()
            raise
        self._open = False

    def abandon(self) -> None:
        """Remove the file, unless it has its final name; may be called again."""
        if self._open:
            self._open = False
            self._discard()

    def __del__(self) -> None:
        if self._open and self._owner == os.getpid():  # not in a fork of the writer
            self.abandon()

    @abstractmethod
    def _append(self, data: Buffer) -> None: ...

    @abstractmethod
    def _publish(self) -> None: ...

    @abstractmethod
    def _discard(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


class _LocalSink(FileSink):
    """A local file, written under a temporary name, made durable, then renamed."""

    def __init__(self, path: str, compressor: _Compressor | None) -> None:
        self._target = Path(os.path.realpath(local_path(path)))  # a link stays one
        with suppress(FileNotFoundError):
            mode = self._target.stat().st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not stat.S_ISREG(mode):  # a rename would take the place of the device
                raise OSError(errno.EINVAL, "Not a regular file", path)
        # Not called after the target: a pattern that finds that must not find this.
        self._aside = self._target.with_name(f".tundish-{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY
        try:
            self._file = os.fdopen(os.open(self._aside, flags, 0o666), "wb")
        except OSError as error:
            raise named_error(error, path) from None
        super().__init__(path, compressor)

    def _append(self, data: Buffer) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise named_error(error, self.path) from None

    def _publish(self) -> None:
        try:
            self._file.flush()
            sync_file(self._file.fileno())
            self._file.close()
            self._aside.replace(self._target)
        except OSError as error:
            raise named_error(error, self.path) from None
        sync_folder(self._target.parent)

    def _discard(self) -> None:
        with suppress(OSError):  # an error of flushing, on a full disk
            self._file.close()
        with suppress(FileNotFoundError):
            self._aside.unlink()


class _RemoteSink(FileSink):
    """A remote file, written to a temporary local file, then uploaded: stores show a file when it is complete.

    Many of fsspec's filesystems write in place, and would show an incomplete file.
    """

    def __init__(
        self, path: str, compressor: _Compressor | None, storage_options: StorageOptions
    ) -> None:
        self._filesystem, self._inner = filesystem_of(path, storage_options)
        self._file = NamedTemporaryFile(prefix="tundish-", suffix=".tmp")  # noqa: SIM115 - till closed
        super().__init__(path, compressor)

    def _append(self, data: Buffer) -> None:
        self._file.write(data)

    def _publish(self) -> None:
        self._file.flush()
        try:
            self._filesystem.put_file(self._file.name, self._inner)
        except Exception as error:  # each filesystem has its own
            raise named_error(error, self.path) from error
        self._file.close()

    def _discard(self) -> None:
        self._file.close()
