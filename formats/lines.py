r"""Lines of text, at the offset of their first byte.

A line ends with the byte ``\n``, which is removed, with one ``\r`` before it; the last line needs none.
"""

from __future__ import annotations

import codecs
from array import array
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tundish.calls import check_is
from tundish.errors import RecordCorruptError
from tundish.formats.bytes.decompressing import looks_like
from tundish.formats.bytes.file import ByteFile, is_remote, open_file
from tundish.formats.bytes.stream import ByteStream, open_stream
from tundish.formats.format import Format, Places, RecordReader, RecordRun

_NEWLINE = ord("\n")
_PIECE_BYTES = 1 << 18  # taken apart at once: what fits into the processor's cache
_LINE_BYTES = 128  # guessed of a line, where a few are read here and there
_OTHERS = ("utf-7", "iso2022", "hz", "idna", "punycode", "unicode_escape", "unicode-escape", "raw")
"""Beginnings of the names of encodings whose lines cannot be decoded one by one, or would contain newlines."""


@dataclass(frozen=True)
class LinesFormat(Format):
    r"""The format of a text file of lines.

    Parameters
    ----------
    compression : str
        The file's compression.
    encoding : str, optional
        The text's encoding: lines are `str`. None: they are `bytes`.
    buffer_size : int, optional
        The number of bytes to read at once.
    storage_options : tuple of pairs, optional
        Options of a URL's filesystem.

    Raises
    ------
    TypeError, ValueError
        `encoding` is not the name of an encoding in which lines end with the byte ``\n``.
    """

    compression: str = ""
    encoding: str | None = None
    buffer_size: int | None = None
    storage_options: tuple[tuple[str, Any], ...] | None = None

    name: ClassVar[str] = "TextLineDataset"
    tuning: ClassVar[frozenset[str]] = frozenset({"buffer_size", "storage_options"})

    def __post_init__(self) -> None:
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _checked_encoding(self.encoding))

    @property
    def leaf(self) -> type:
        return bytes if self.encoding is None else str

    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> RecordReader:
        return _LinesReader(self, path, place, ahead)

    def places(self, path: str) -> Places:
        if self.compression:
            return super().places(path)
        found = array("q", [0])  # grows in place: 8 bytes a line, never twice
        with open_file(path, self.storage_options) as file:
            size = _block(file)
            at = 0
            while piece := file.pread(at, size):
                if not at and _is_compressed(piece):
                    return np.zeros(1, np.int64)
                ends = _newlines(piece)
                ends += at + 1
                found.frombytes(ends.data.cast("B"))
                at += len(piece)
        places = np.frombuffer(found, np.int64)
        return places[:-1] if places[-1] == at else places  # no line begins after the last newline


def _is_compressed(head: bytes) -> bool:
    """Return True if no text begins like this, but GZIP or ZSTD does; ZLIB begins with an x."""
    return head.startswith((b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"))


class _LinesReader(RecordReader):
    """A reader that splits a piece of the file into lines as soon as it has read it."""

    def __init__(self, form: LinesFormat, path: str, place: int, ahead: bool) -> None:
        self.path, self.place = path, place
        self._form, self._ahead = form, ahead
        self._lines: list[Any] = []
        self._starts = np.zeros(1, np.int64)  # the offset of each line, and the one after the last
        self._next = 0  # the index of the next line
        self._raw = False  # whether the lines are to be decoded one by one
        self._file: ByteFile | None = None  # one of the two is open
        self._stream: ByteStream | None = None
        if form.compression:
            self._stream = open_stream(
                path, form.compression, form.storage_options, max(0, place - 1)
            )
            self.identity, self._block = self._stream.identity, _PIECE_BYTES
        else:
            self._file = open_file(path, form.storage_options)
            self.identity, self._block = self._file.identity, _block(self._file)
        self._forget()
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def seek(self, place: int) -> None:
        if place == self.place:
            return
        self.place = place
        self._next = int(np.searchsorted(self._starts, place))
        if self._next >= len(self._lines) or self._starts[self._next] != place:
            self._forget()

    def read(self, most: int) -> RecordRun:
        if self._next >= len(self._lines):
            self._fill(most)
        first, stop = self._next, min(self._next + most, len(self._lines))
        values = self._lines[first:stop]
        if self._raw:
            values = self._decoded(values)
            stop = first + len(values)
        self._next, self.place = stop, int(self._starts[stop])
        if stop == len(self._lines):
            self._lines = []  # the caller's now
        return RecordRun(self._starts[first:stop], self.place, values)

    def close(self) -> None:
        for each in (self._file, self._stream):
            if each is not None:
                each.close()

    # -- pieces ------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Restart at `place`."""
        self._lines, self._next = [], 0
        self._pieces: list[bytes] = []  # pieces of a line whose end has not been read yet
        # The bytes that were read, and how many of them were searched.
        self._buffer, self._at = b"", 0
        self._offset = self.place  # the offset after the buffer
        self._checked = not self.place

    def _fill(self, most: int) -> None:
        """Read the next lines, at least one if there is any."""
        if not self._checked:
            self._check(most)
        while True:
            piece = self._piece(most)
            cut = piece.rfind(b"\n") + 1
            if cut or not piece:
                break
            self._pieces.append(piece)
        if not piece and not self._pieces:
            self._lines, self._starts, self._next = [], np.array([self.place]), 0
            return
        head = b""
        # A line that began in an earlier piece: split separately, so that it is moved only once.
        if self._pieces:
            first = piece.find(b"\n") + 1
            head = b"".join([*self._pieces, piece[:first]])
            piece, cut = piece[first:], cut - first
        self._pieces = [piece[cut:]] if cut < len(piece) else []
        body = piece[:cut]
        starts = _newlines(body) + (self.place + len(head) + 1)
        before = [self.place, self.place + len(head)] if head else [self.place]
        self._starts, self._next = np.concatenate([before, starts]), 0
        self._raw = False
        self._lines = self._taken_apart(body)
        self._lines[:0] = self._taken_apart(head)

    def _taken_apart(self, data: bytes) -> list[Any]:
        if not data:
            return []
        whole = data.endswith(b"\n")  # except for the last line of a file
        if b"\r" in data:  # looking for one byte is much faster than for two
            data = data.replace(b"\r\n", b"\n")
        text = self._text(data)
        lines: list[Any] = text.split(b"\n") if isinstance(text, bytes) else text.split("\n")
        if whole:
            lines.pop()
        return lines

    def _text(self, data: bytes) -> bytes | str:
        if self._form.encoding is not None:
            try:
                return data.decode(self._form.encoding)
            except UnicodeDecodeError:
                self._raw = True
        return data

    def _decoded(self, lines: list[Any]) -> list[str]:
        """Decode lines up to the first invalid one; if that is the first of all, raise its error."""
        encoding = self._form.encoding or ""
        values: list[str] = []
        for line in lines:
            try:
                values.append(line if isinstance(line, str) else line.decode(encoding))
            except UnicodeDecodeError as error:
                if values:
                    break
                bad, place = error.object[error.start : error.end], self.place
                self._next += 1
                self.place = int(self._starts[self._next])
                problem = f"this line is not {encoding}: {bad!r} at byte {error.start:,} of it: {error.reason}"
                hint = "" if place else looks_like(error.object)
                raise RecordCorruptError(self.path, place, problem + hint) from None
        return values

    # -- bytes -------------------------------------------------------------------------------------

    def _check(self, most: int = 1) -> None:
        """Check that a line begins at `place`: after a newline, or at the end of the file."""
        self._checked = True
        if not self.place:
            return
        self._offset = self.place - 1
        data = self._fetch(self._size(most) + 1)
        if data[:1] == b"\n" or len(data) == 1:
            self._buffer, self._at = data, 1
            return
        self._checked = False
        found = f"{data[:1]!r} is before it" if data else "the file ends before it"
        raise RecordCorruptError(
            self.path, self.place, f"no line begins here: {found}; was the file changed?"
        )

    def _piece(self, most: int) -> bytes:
        """Return the next bytes; none at the end of the file."""
        if self._at >= len(self._buffer):
            first = not self._offset and not self._form.compression
            self._buffer, self._at = self._fetch(self._size(most)), 0
            if first and _is_compressed(self._buffer):
                head = self._buffer
                self._forget()
                problem = f"this is not text: the file begins with {head[:4]!r}"
                raise RecordCorruptError(self.path, 0, problem + looks_like(head))
        piece = self._buffer[self._at : self._at + _PIECE_BYTES]
        self._at += _PIECE_BYTES
        return piece

    def _fetch(self, count: int) -> bytes:
        if self._file is not None:
            data = self._file.pread(self._offset, count)
        else:
            assert self._stream is not None
            data = self._stream.read(count)
        self._offset += len(data)
        return data

    def _size(self, most: int) -> int:
        """Return how many bytes to read next."""
        if self._ahead:
            return max(self._form.buffer_size or self._block, 1 << 12)
        least = 1 << 16 if is_remote(self.path) else 1 << 12
        return min(max(_LINE_BYTES * most, least), self._block)


def _block(file: ByteFile) -> int:
    """Return how many bytes to read at once; more for a remote file, where requests are slow."""
    return file.block if is_remote(file.path) else _PIECE_BYTES


def _newlines(data: bytes) -> np.ndarray:
    """Return the offsets of the newlines."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)


def _checked_encoding(encoding: Any) -> str:
    """Return the canonical name of an encoding in which the byte of a newline is always a newline."""
    check_is(encoding, str, "encoding must be a str or None")
    try:
        name = codecs.lookup(encoding).name
        newline = "\n".encode(encoding)
    except LookupError:
        raise ValueError(
            f"encoding must be one of Python's text encodings, not {encoding!r}"
        ) from None
    if newline != b"\n" or name.startswith(_OTHERS):
        hint = (
            "; 'utf-8' reads it, with '\\ufeff' at the start of a file's first line"
            if name == "utf-8-sig"
            else "; convert the files, for example to 'utf-8'"
        )
        raise ValueError(
            f"encoding={encoding!r}: lines can be separated only if the byte 0x0a always ends a line, as in "
            f"'utf-8', 'ascii', 'latin-1', 'cp1252'{hint}"
        )
    return name
