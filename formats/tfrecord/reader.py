"""Reading TFRecord files, and walking from record to record by their lengths alone."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tundish.errors import RecordCorruptError
from tundish.formats.bytes.decompressing import looks_like
from tundish.formats.bytes.file import ByteFile, open_file
from tundish.formats.bytes.stream import PIECE, ByteStream, open_stream
from tundish.formats.format import RUN_BYTES, Format, Identity, RecordReader, RecordRun
from tundish.formats.tfrecord.crc import masked_crc, masked_crcs

HEADER = 12
"""Bytes before a record: its length, and the checksum of that."""

FOOTER = 4
"""Bytes after a record: its checksum."""

_MOST_KNOWN = 1 << 16
_ALIKE = 8  # records of one length in a row, after which the next ones are compared with it at once
_AT_ONCE = 1024  # records that are compared


class Lengths:
    """Decodes lengths in headers; each is checked once, since most files have few different lengths."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def of(self, header: bytes) -> int | None:
        """Return the length in a header; None if it is damaged, or truncated."""
        length = self._known.get(header)
        if length is None and len(header) == HEADER:
            length, expected = struct.unpack("<QI", header)
            if masked_crc(header[:8]) != expected:
                return None
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[header] = length
        return length

    def walk(self, data: bytes, at: int, limit: int, most: int) -> tuple[list[int], int]:
        """Return the offsets of consecutive records.

        Parameters
        ----------
        data : bytes
            A piece of a file.
        at : int
            The offset of the first record in it.
        limit : int
            The largest end of the last record: the end of `data`, or of the file after it.
        most : int
            The largest number of records.

        Returns
        -------
        list of int, int
            The offset of each record in `data`; and the offset after the last.
        """
        places: list[int] = []
        known = self._known
        before, alike = b"", 0
        left = most
        while left > 0:
            header = data[at : at + HEADER]
            length = known.get(header)
            if length is None:
                length = self.of(header)
                if length is None:
                    break
            after = at + length + (HEADER + FOOTER)
            if after > limit:
                break
            places.append(at)
            left -= 1
            at = after
            if header != before:
                before, alike = header, 0
            elif (alike := alike + 1) >= _ALIKE:
                stride = length + (HEADER + FOOTER)
                count = _repeats(data, at, header, stride, min(left, (limit - at) // stride))
                places.extend(range(at, at + count * stride, stride))
                at += count * stride
                left -= count
        return places, at


def _repeats(data: bytes, at: int, header: bytes, stride: int, most: int) -> int:
    """Return how many consecutive records with the same header follow, comparing all at once."""
    count = min(most, (len(data) - at - HEADER) // stride + 1, _AT_ONCE)
    if count <= 0:
        return 0
    length, crc = struct.unpack("<QI", header)
    same = np.ndarray(count, "<u8", data, at, (stride,)) == length
    same &= np.ndarray(count, "<u4", data, at + 8, (stride,)) == crc
    return count if same.all() else int(same.argmin())


def places_of(file: ByteFile) -> np.ndarray:
    """Return the offsets of all records of a file; if it is visibly damaged, the last is that of the damage.

    Only headers are checked; if records are large, only headers are read.
    """
    lengths = Lengths()
    found = [np.zeros(0, np.int64)]
    place, count = 0, file.block
    while place < file.size:
        data = file.pread(place, count)
        starts, after = lengths.walk(data, 0, file.size - place, sys.maxsize)
        found.append(np.array(starts or [0], np.int64) + place)
        if not starts:
            break
        place += after
        count = HEADER if after > file.hop * len(starts) else file.block
    return np.concatenate(found)


_LARGE = 1 << 15
"""The size in bytes from which a record is read on its own, straight to its final place."""


@dataclass(frozen=True)
class TFRecordFormat(Format):
    """The format of TFRecord files: records of bytes with checksums, as tensorflow writes them.

    Attributes
    ----------
    compression : {"", "GZIP", "ZLIB", "ZSTD"}
        The compression of the whole file.
    buffer_size : int or None
        The number of bytes to read at once; None: chosen by the reader. 0: no more than needed.
    storage_options : tuple of pairs, optional
        Options of a URL's filesystem.
    """

    name: ClassVar[str] = "TFRecordDataset"
    leaf = bytes
    tuning: ClassVar[frozenset[str]] = frozenset({"buffer_size", "storage_options"})

    compression: str = ""
    buffer_size: int | None = None
    storage_options: tuple[tuple[str, Any], ...] | None = None

    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> TFRecordReader:
        if self.compression:
            stream = open_stream(path, self.compression, self.storage_options, place)
            return TFRecordReader(path, place, stream.identity, _StreamWindow(stream, place))
        file = open_file(path, self.storage_options)
        if place > file.size:
            file.close()
            raise RecordCorruptError(
                path, file.size, f"the file has {file.size:,} bytes, no record begins at {place:,}"
            )
        block = file.block if self.buffer_size is None else self.buffer_size
        if not ahead:  # a record, or a few: 4 KiB of a local file
            block = min(block, file.hop >> 5)
        return TFRecordReader(path, place, file.identity, _FileWindow(file, block))

    def places(self, path: str) -> np.ndarray:
        if self.compression:
            raise NotImplementedError("the offsets of records in a compressed file are unknown")
        with open_file(path, self.storage_options) as file:
            return places_of(file)


class TFRecordReader(RecordReader):
    """The records of a file.

    Parameters
    ----------
    path : str
        The file.
    place : int
        The offset of the first record.
    identity : Identity
        The file's identity.
    window : _FileWindow or _StreamWindow
        The source of its bytes.
    """

    def __init__(
        self, path: str, place: int, identity: Identity, window: _FileWindow | _StreamWindow
    ) -> None:
        self.path, self.place, self.identity = path, place, identity
        self._window = window
        self._lengths = Lengths()
        self._peeked: tuple[int, bytes] = (-1, b"")  # a place, and the header there

    def read(self, most: int) -> RecordRun:
        header = self._header()
        if not header:
            return RecordRun((), self.place, [])
        length = self._lengths.of(header)
        if length is None:
            raise self._no_header(header)
        size = HEADER + length + FOOTER
        self._expect(length, self._window.left(self.place))
        if length >= _LARGE and self._window.file:
            return self._large(self._window.file, length, most)
        data, at = self._window.around(self.place, size)
        self._expect(length, len(data) - at)
        if most == 1:
            return self._one(data, at, length)
        starts, after = self._lengths.walk(
            data, at, min(len(data), at + max(size, RUN_BYTES)), most
        )
        ends = [*starts[1:], after]
        values = [
            data[start + HEADER : end - FOOTER] for start, end in zip(starts, ends, strict=True)
        ]
        behind = np.array(ends)
        expected = np.ndarray(len(data) - FOOTER + 1, "<u4", data, 0, (1,))[behind - FOOTER]
        found = masked_crcs(values)
        base = self.place - at
        wrong = np.flatnonzero(found != expected)
        if wrong.size:
            good = int(wrong[0])
            if good == 0:
                raise self._damaged(length, int(found[0]), int(expected[0]))
            values, starts, after = values[:good], starts[:good], starts[good]
        self.place = base + after
        return RecordRun(np.array(starts, np.int64) + base, self.place, values)

    def _one(self, data: bytes, at: int, length: int) -> RecordRun:
        """Read a single record, without preparations that pay off only for many."""
        end = at + HEADER + length
        value = data[at + HEADER : end]
        found, expected = masked_crc(value), int.from_bytes(data[end : end + FOOTER], "little")
        if found != expected:
            raise self._damaged(length, found, expected)
        place, self.place = self.place, self.place + HEADER + length + FOOTER
        return RecordRun((place,), self.place, [value])

    def _large(self, file: ByteFile, length: int, most: int) -> RecordRun:
        """Read large records one by one, each with the header of the next."""
        places: list[int] = []
        values: list[bytes] = []
        total = 0
        while True:
            value = file.pread(self.place + HEADER, length)
            tail = file.pread(self.place + HEADER + length, FOOTER + HEADER)
            complete = len(value) == length and len(tail) >= FOOTER
            found, expected = masked_crc(value), int.from_bytes(tail[:FOOTER], "little")
            if not complete or found != expected:
                if values:
                    break
                self._expect(length, HEADER + len(value) + len(tail))
                raise self._damaged(length, found, expected)
            places.append(self.place)
            values.append(value)
            total += length
            self.place += HEADER + length + FOOTER
            self._peeked = self.place, tail[FOOTER:]
            following = self._lengths.of(tail[FOOTER:])
            if (
                following is None
                or following < _LARGE
                or HEADER + following + FOOTER > self._window.left(self.place)
                or len(values) >= most
                or total >= RUN_BYTES
            ):
                break
            length = following
        return RecordRun(places, self.place, values)

    def _header(self) -> bytes:
        """Return the header of the next record: shorter if the file is truncated, empty at its end."""
        place, header = self._peeked
        if place != self.place:
            data, at = self._window.around(self.place, HEADER)
            header = data[at : at + HEADER]
        return header

    # -- what may be wrong -------------------------------------------------------------------------

    def _expect(self, length: int, there: int) -> None:
        """Check that a record is complete."""
        if HEADER + length + FOOTER > there:
            raise RecordCorruptError(
                self.path,
                self.place,
                f"the file is cut off: of this record of {length:,} bytes, which takes "
                f"{HEADER + length + FOOTER:,} in the file, there are {there:,}",
            )

    def _no_header(self, header: bytes) -> RecordCorruptError:
        if len(header) < HEADER:
            problem = f"the file is cut off: it ends {len(header)} bytes into the {HEADER} before a record"
        else:
            length, expected = struct.unpack("<QI", header)
            problem = (
                f"the length of a record is damaged: its checksum is {masked_crc(header[:8]):#010x}, "
                f"but the file has {expected:#010x} (the length would be {length:,})"
            )
        hint = looks_like(header) if self.place == 0 else ""
        return RecordCorruptError(self.path, self.place, problem + hint)

    def _damaged(self, length: int, found: int, expected: int) -> RecordCorruptError:
        """Return the error of the next record; reading continues after it."""
        place, self.place = self.place, self.place + HEADER + length + FOOTER
        return RecordCorruptError(
            self.path,
            place,
            f"the data of a record of {length:,} bytes are damaged: their checksum is {found:#010x}, "
            f"but the file has {expected:#010x}",
        )

    def close(self) -> None:
        self._window.close()


class _FileWindow:
    """A piece of a file in memory."""

    def __init__(self, file: ByteFile, block: int) -> None:
        self.file = file
        self._block = block
        self._data, self._base = b"", 0

    def around(self, place: int, need: int) -> tuple[bytes, int]:
        """Return a buffer and a place's offset in it, with at least `need` bytes from there on if the file has them."""
        at = place - self._base
        if at < 0 or at + need > len(self._data):
            self._data = self.file.pread(place, max(need, self._block))
            self._base, at = place, 0
        return self._data, at

    def left(self, place: int) -> int:
        """Return the largest possible number of bytes after a place."""
        return self.file.size - place

    def close(self) -> None:
        self.file.close()


class _StreamWindow:
    """A piece of a stream in memory, which only goes forward."""

    file = None

    def __init__(self, stream: ByteStream, place: int) -> None:
        self._stream = stream
        self._data, self._base = b"", place

    def around(self, place: int, need: int) -> tuple[bytes, int]:
        at = place - self._base
        while at + need > len(self._data):
            more = self._stream.read(max(PIECE, at + need - len(self._data)))
            if not more:
                break
            self._data, self._base, at = self._data[at:] + more, place, 0
        return self._data, at

    def left(self, place: int) -> int:
        return sys.maxsize

    def close(self) -> None:
        self._stream.close()
