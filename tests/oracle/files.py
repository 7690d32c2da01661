"""Files that cases read: written without either library."""

from __future__ import annotations

import gzip
import sqlite3
import struct
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


class Files:
    """Writes files into a case's own folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.count = 0

    def write(self, contents: list[bytes]) -> list[str]:
        """One file of each content; their paths."""
        paths = [Path(self.folder, f"f{self.count + n}") for n in range(len(contents))]
        self.count += len(paths)
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return [str(path) for path in paths]

    def write_records(self, records: list[list[bytes]]) -> list[str]:
        """One TFRecord file of each list of records."""
        return self.write([b"".join(map(framed, file)) for file in records])

    def gzipped(self, content: bytes) -> bytes:
        """Return data as a gzip file holds them."""
        return gzip.compress(content, mtime=0)

    def zlibbed(self, content: bytes) -> bytes:
        """Return data as a zlib stream holds them."""
        return zlib.compress(content)

    def records(self, *records: bytes) -> bytes:
        """The content of a TFRecord file."""
        return b"".join(map(framed, records))

    def flipped(self, content: bytes, at: int) -> bytes:
        """The content with a bit changed in one of its bytes."""
        return content[:at] + bytes([content[at] ^ 4]) + content[at:][1:]

    def length(self, size: int) -> bytes:
        """Return the bytes that stand before a record of this size."""
        packed = struct.pack("<Q", size)
        return packed + masked(packed)

    def content(self, path: str) -> bytes:
        """Return the content of a file, as it is on disk."""
        return Path(path).read_bytes()

    def sqlite(self, *statements: str) -> str:
        """The path of a database in which statements were run."""
        path = str(Path(self.folder, "database"))
        with closing(sqlite3.connect(path)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        return path

    def write_truncated(self) -> list[str]:
        """A file whose second record lacks its last three bytes."""
        return self.write([(framed(b"aaaa") + framed(b"bbbb"))[:-3]])

    def write_corrupt(self) -> list[str]:
        """A file with a changed byte in its first record."""
        content = bytearray(framed(b"aaaa") + framed(b"bbbb"))
        content[13] ^= 1
        return self.write([bytes(content)])

    def match(self, made: list[str], pattern: Any) -> Any:
        """Make empty files; the pattern, or patterns, within the folder."""
        for name in made:
            Path(self.folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(self.folder, name).touch()
        if isinstance(pattern, str):
            return f"{self.folder}/{pattern}"
        return [f"{self.folder}/{each}" for each in pattern]


def framed(record: bytes) -> bytes:
    """A record as TFRecord files hold it: length, its checksum, data, its checksum."""
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def masked(data: bytes) -> bytes:
    """TFRecord's checksum of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    rotated = ((crc >> 15) | (crc << 17)) + 0xA282EAD8
    return struct.pack("<I", rotated & 0xFFFFFFFF)
