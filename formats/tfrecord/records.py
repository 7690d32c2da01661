"""Writing TFRecord files record by record, like tensorflow's ``tf.io.TFRecordWriter``."""

from __future__ import annotations

import os
import reprlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.formats.bytes.sink import open_sink
from tundish.formats.bytes.stream import check_compression
from tundish.formats.tfrecord.crc import masked_crcs

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tundish.formats.bytes.file import StorageOptions

_GATHERED = 1 << 17  # bytes of records that are checksummed and written at once


@dataclass(frozen=True)
class TFRecordOptions:
    """The compression of a TFRecord file.

    Parameters
    ----------
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        The compression of the whole file.
    compression_level : int, optional
        The compression level; None: the default.

    Raises
    ------
    TypeError, ValueError
        An argument is not one of these.

    Notes
    -----
    tensorflow has further options for zlib.
    """

    compression_type: str | None = None
    compression_level: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_compression(self.compression_type)
        level = self.compression_level
        if level is not None and (isinstance(level, bool) or not isinstance(level, int)):
            raise TypeError(
                f"compression_level must be an int, not {type(level).__name__} ({level!r})"
            )
        if level is not None and self.compression_type in ("GZIP", "ZLIB") and level not in _LEVELS:
            raise ValueError(f"compression_level must be from -1 to 9, not {level}")


class TFRecordWriter:
    """Writes records of bytes to a new TFRecord file, one by one.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The file, which replaces an existing one; or a URL that fsspec knows.
    options : str or TFRecordOptions, optional
        The compression.
    storage_options : dict, optional
        Options of a URL's filesystem.

    Raises
    ------
    OSError
        The file cannot be written.

    Notes
    -----
    The file exists once it is closed. After an exception nothing of it remains, and an existing file
    is unchanged. tensorflow writes in place, and its `flush` shows what was written so far.

    Examples
    --------
    >>> import tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with td.io.TFRecordWriter(Path(folder, "some.tfrecord")) as writer:
    ...         writer.write(b"one")
    ...         writer.write(b"two")
    ...     Path(folder, "some.tfrecord").stat().st_size
    38
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike[str],
        options: str | TFRecordOptions | None = None,
        *,
        storage_options: StorageOptions = None,
    ) -> None:
        if not isinstance(options, TFRecordOptions):
            options = TFRecordOptions(options)
        self._sink = open_sink(
            os.fsdecode(path),
            options.compression_type or "",
            options.compression_level,
            storage_options,
        )
        self._waiting: list[bytes] = []
        self._size = 0

    def write(self, record: Buffer) -> None:
        """Append a record.

        Parameters
        ----------
        record : bytes
            Bytes, a bytearray, a `numpy.bytes_`, ...

        Raises
        ------
        TypeError
            `record` is not bytes-like.
        """
        data = _as_bytes(record)
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= _GATHERED or len(self._waiting) >= _GATHERED // 16:
            self.flush()

    def flush(self) -> None:
        """Write buffered records to the temporary file; the file itself exists only once it is closed."""
        records, self._waiting, self._size = self._waiting, [], 0
        if not records:
            return
        headers = np.fromiter(map(len, records), "<u8", len(records)).tobytes()
        lengths = [headers[at : at + 8] for at in range(0, len(headers), 8)]
        pieces = [b""] * (4 * len(records))
        pieces[0::4] = lengths
        pieces[1::4] = map(_PACK, masked_crcs(lengths).tolist())
        pieces[2::4] = records
        pieces[3::4] = map(_PACK, masked_crcs(records).tolist())
        self._sink.write(b"".join(pieces))

    def close(self) -> None:
        """Write the rest, make the file durable, and give it its name; may be called again."""
        try:
            self.flush()
        except BaseException:
            self.abandon()
            raise
        self._sink.close()

    def abandon(self) -> None:
        """Remove the file, unless it was closed."""
        self._waiting = []
        self._sink.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


_PACK = struct.Struct("<I").pack
_LEVELS = range(-1, 10)


def _as_bytes(record: Any) -> bytes:
    """Return the bytes of a record, which may be a zero-dimensional numpy array."""
    if type(record) is bytes:
        return record
    if isinstance(record, np.ndarray) and record.shape == () and record.dtype.kind in "SO":
        record = record.item()
    if isinstance(record, (bytes, bytearray, memoryview)):
        return bytes(record)
    hint = ", which must be encoded first" if isinstance(record, str) else ""
    raise TypeError(
        f"a record is bytes, not {type(record).__name__}{hint} ({reprlib.repr(record)})"
    )
