"""Walking from record to record by their lengths alone."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import numpy as np

from tundish.formats.tfrecord.crc import masked_crc

if TYPE_CHECKING:
    from tundish.formats.bytes.file import ByteFile

HEADER = 12
"""Bytes before a record: its length, and the checksum of that."""

FOOTER = 4
"""Bytes behind it: its checksum."""

_MOST_KNOWN = 1 << 16
_ALIKE = 8  # after so many records of one length in a row, it is worth looking whether the next
_AT_ONCE = 1024  # are of it too


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
