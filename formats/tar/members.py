"""The members of a tar archive, from their headers.

A member is one or more headers of 512 bytes, then data that fills blocks of 512 bytes. A header that
extends the next one contains a long name or pax records: a path, a size. The archive ends with two
blocks of zeros; one is enough here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tundish.formats.bytes.decompressing import compression_of, looks_like

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.formats.bytes.file import ByteFile
    from tundish.formats.bytes.stream import ByteStream


class ByteWindow:
    """A window over a file that moves forward with the requested offsets.

    Parameters
    ----------
    fetch : callable
        Returns bytes at an offset: fewer at the end, none after it.
    size : int or None
        The file's size, if known.
    ahead, hop : int
        The least number of bytes to fetch: when reading continues, and after skipped bytes.
    """

    def __init__(
        self, fetch: Callable[[int, int], bytes], size: int | None, ahead: int, hop: int
    ) -> None:
        self.size = size
        self._fetch, self._ahead, self._hop = fetch, ahead, hop
        self._held, self._start = b"", 0

    def at(self, offset: int, count: int) -> bytes:
        """Return `count` bytes at an offset; fewer only at the end of the file.

        Raises
        ------
        RecordCorruptError, OSError
            They cannot be read, or decompressed.
        """
        first = offset - self._start
        if first >= 0 and first + count <= len(self._held):
            return self._held[first : first + count]
        goes_on = 0 <= first <= len(self._held)
        rest = self._held[first:] if goes_on else b""
        least = self._ahead if goes_on else self._hop
        self._held, self._start = self._filled(rest, offset, count, least), offset
        found = self._held[:count]
        if len(self._held) > 2 * self._ahead:  # one large member is not kept
            self._held, self._start = self._held[count:], offset + count
        return found

    def _filled(self, rest: bytes, offset: int, count: int, least: int) -> bytes:
        """Return these bytes and those after them, until there are enough or the file ends."""
        pieces, have = [rest], len(rest)
        while have < count:
            piece = self._fetch(offset + have, max(count - have, least))
            if not piece:
                break
            pieces.append(piece)
            have += len(piece)
        return pieces[-1] if not rest and len(pieces) == 2 else b"".join(pieces)


def over_file(file: ByteFile, *, ahead: bool) -> ByteWindow:
    """Return a window over a file, in which reading may begin anywhere."""
    hop = file.hop >> 3
    return ByteWindow(file.pread, file.size, file.block if ahead else hop, hop)


def over_stream(stream: ByteStream) -> ByteWindow:
    """Return a window over a decompressed stream, which only goes forward."""

    def fetch(offset: int, count: int) -> bytes:
        missing = offset - stream.tell()
        return stream.read(count) if stream.skip(missing) == missing else b""

    return ByteWindow(fetch, None, 1 << 18, 1 << 18)


BLOCK = 512
_ZEROS = bytes(BLOCK)
_MOST_EXTENDED = 1 << 20  # bytes of a long name or of pax records; a path has 4,096 at most
_DIGITS = 24  # of a file's size; parsing a million digits takes seconds

_REGULAR = (b"0", b"\0", b"7", b"S")
_SPARSE = b"S"
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders, pipes
_EXTENDING = (b"x", b"X", b"g", b"L", b"K")
_OCTAL = re.compile(rb" *([0-7]*) *(?:\0.*)?", re.DOTALL)


class DamageError(Exception):
    """There is no member at an offset; has the offset where reading can continue, if known."""

    def __init__(self, offset: int, problem: str, on: int | None = None) -> None:
        super().__init__(offset, problem, on)
        self.offset, self.problem, self.on = offset, problem, on


@dataclass(slots=True)
class Member:
    """One member of an archive.

    Attributes
    ----------
    start : int
        The offset of its first header.
    name : bytes
        The name, including folders.
    regular : bool
        True for a file; False for a folder, link or device.
    data, size, there, after : int
        The offset of its data, the data's expected size and the available size (as far as
        known), and the offset of the next member.
    sparse : bool
        True if the data is only pieces of the file's.
    """

    start: int
    name: bytes
    regular: bool
    data: int
    size: int
    there: int
    after: int
    sparse: bool = False


@dataclass(slots=True)
class _Extended:
    """The extended headers of a member, and the offset of the first of them."""

    start: int
    name: bytes | None = None
    size: int | None = None
    sparse: bool = False


def next_member(window: ByteWindow, start: int) -> Member | None:
    """Parse the headers of the member at an offset.

    Returns
    -------
    Member
        None if a block of zeros ends the archive.

    Raises
    ------
    DamageError
        There is neither.
    """
    extended = _Extended(start)
    offset = start
    while True:
        block = window.at(offset, BLOCK)
        if not offset:
            _check_magic(block)
        if len(block) < BLOCK:
            raise _cut_off(block, offset)
        if block == _ZEROS:
            if offset != start:
                raise DamageError(offset, "the archive ends where a member's last header should be")
            return None
        size = _checked_size(block, offset)
        kind = block[156:157]
        if kind not in _EXTENDING:
            return _member(window, offset, block, size, extended)
        if size > _MOST_EXTENDED:
            problem = (
                f"a name or pax records of {size:,} bytes; at most {_MOST_EXTENDED:,} are read"
            )
            raise DamageError(offset, problem)
        data = window.at(offset + BLOCK, size)
        if len(data) < size:
            raise cut_off_data(offset, len(data), size)
        _extend(extended, kind, data, offset)
        offset += BLOCK + _padded(size)


def _member(
    window: ByteWindow, offset: int, block: bytes, size: int, extended: _Extended
) -> Member:
    """Make a member from its own header and the extending ones."""
    kind, start, name = block[156:157], extended.start, extended.name
    if name is None:
        name = block[:100].split(b"\0", 1)[0]
        if block[345] and block[257:263] == b"ustar\0":
            name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    if extended.size is not None:
        size = extended.size
    data = offset + BLOCK if kind != _SPARSE else _behind_map(block, window, offset + BLOCK)
    if kind in _WITHOUT_DATA or (kind == b"\0" and name.endswith(b"/")):  # as folders once were
        return Member(start, name, False, data, 0, 0, data)
    there = size if window.size is None else min(size, max(0, window.size - data))
    sparse = extended.sparse or kind == _SPARSE
    return Member(start, name, kind in _REGULAR, data, size, there, data + _padded(size), sparse)


def _checked_size(block: bytes, offset: int) -> int:
    """Return the size in a header, after checking its checksum."""
    said, found = _number(block[148:156]), sum(block) - sum(block[148:156]) + 8 * 0x20
    if said != found and said != found - 256 * _negative(block):
        problem = f"no tar header: its checksum should be {found}, and is {block[148:156]!r}"
        raise DamageError(offset, problem)
    size = _number(block[124:136])
    if size is None:
        raise DamageError(offset, f"a size should be a number >= 0, and is {block[124:136]!r}")
    return size


def _check_magic(block: bytes) -> None:
    """Raise the right error for a file that is compressed."""
    if compression_of(block) in {"GZIP", "ZSTD"}:  # the two bytes of ZLIB's header may begin a name
        raise DamageError(0, f"no tar header{looks_like(block)}")


def _negative(block: bytes) -> int:
    """Return the number of bytes that old programs, which added signed bytes, took for negative."""
    return sum(byte > 127 for byte in block[:148] + block[156:])


def _number(field: bytes) -> int | None:
    """Parse octal digits, or binary after the byte 0x80; None if it is not a number, or negative."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    found = _OCTAL.fullmatch(field)
    return None if found is None else int(found[1] or b"0", 8)


def _extend(extended: _Extended, kind: bytes, data: bytes, offset: int) -> None:
    """Store what an extending header says about the next member."""
    if kind == b"L":
        extended.name = data.split(b"\0", 1)[0]
    elif kind != b"K":  # K is where a link leads to
        for key, value in _pax_records(data, offset):
            if key in {b"path", b"size"} and kind == b"g":
                problem = f"a header gives all members after it the {key.decode()} {value!r}"
                raise DamageError(offset, problem)
            if key == b"path":
                extended.name = value
            elif key == b"size":
                if not value.isdigit() or len(value) > _DIGITS:
                    problem = f"a size should be a number >= 0, and is {value[:40]!r}"
                    raise DamageError(offset, problem)
                extended.size = int(value)
            elif key.startswith(b"GNU.sparse."):
                extended.sparse = True


def _pax_records(data: bytes, offset: int) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of records of the form ``length key=value`` and a line feed."""
    found = []
    at = 0
    while at < len(data) and data[at]:
        digits, space, _ = data[at : at + 20].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        record = data[at : at + length]
        key, equals, value = record[len(digits) + 1 :].partition(b"=")
        if len(record) < length or not equals or not value.endswith(b"\n"):
            problem = f"a pax record should be 'length key=value\\n', and is {data[at : at + 40]!r}"
            raise DamageError(offset, problem)
        found.append((key, value[:-1]))
        at += length
    return found


def _behind_map(block: bytes, window: ByteWindow, offset: int) -> int:
    """Return the offset of a sparse file's data: after the blocks that continue its map."""
    more = block[482]
    while more:
        block = window.at(offset, BLOCK)
        if len(block) < BLOCK:
            raise _cut_off(block, offset)
        more = block[504]
        offset += BLOCK
    return offset


def check_end(window: ByteWindow, end: int) -> None:
    """Check that only zeros follow the block of zeros that ends the archive.

    Raises
    ------
    DamageError
        There is more.
    """
    offset = end + BLOCK
    while piece := window.at(offset, 128 * BLOCK):
        if piece.count(0) < len(piece):
            on = offset + (len(piece) - len(piece.lstrip(b"\0"))) // BLOCK * BLOCK
            problem = f"the archive ends here, but data follow at {on:,}: are there several archives in one file?"
            raise DamageError(end, problem, on)
        offset += len(piece)


def _cut_off(block: bytes, offset: int) -> DamageError:
    if not offset and not block:
        problem = "the file is empty; the smallest tar archive is two blocks of zeros"
        return DamageError(0, problem)
    where = f"{len(block)} bytes into a header" if block else "without its end, two blocks of zeros"
    return DamageError(offset, f"the archive ends {where}: it was cut off")


def cut_off_data(offset: int, there: int, size: int) -> DamageError:
    """Return the error of a member whose data is incomplete."""
    problem = f"the archive ends after {there:,} of the {size:,} bytes that a header says follow it"
    return DamageError(offset, problem)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
