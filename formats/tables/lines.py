"""Blocks of whole lines, and the offsets of records in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tundish.errors import RecordCorruptError
from tundish.formats.bytes.file import open_file
from tundish.formats.bytes.stream import open_stream
from tundish.formats.tables.splitting import Splitter, at_newlines

if TYPE_CHECKING:
    from tundish.formats.format import Identity

_LONGEST = 1 << 30  # pyarrow's offsets have 32 bits
_HOP = 1 << 12  # bytes that take less time to read than another call
_BOM_END = b"\xbf"


class Lines:
    """Reads blocks of whole lines.

    Parameters
    ----------
    path : str
        The file.
    compression : str
        As for `open_stream`.
    storage_options : tuple of pairs, optional
        Options of a URL's filesystem.
    splitter : Splitter
        Says where rows end; they are called lines below.

    Attributes
    ----------
    place : int
        The offset of the next block.
    """

    def __init__(
        self,
        path: str,
        compression: str,
        storage_options: tuple[tuple[str, object], ...] | None,
        splitter: Splitter = at_newlines,
    ) -> None:
        self.path, self.place, self._splitter = path, 0, splitter
        options = dict(storage_options or ())
        self._file = None if compression else open_file(path, options)
        self._stream = open_stream(path, compression, options) if compression else None
        self._rest = b""
        self._ended = False
        self._near = 0, b""  # the offset and the bytes that `cut` read last

    @property
    def identity(self) -> Identity:
        """The identity of the file when it was opened."""
        assert self._file or self._stream
        return self._file.identity if self._file else self._stream.identity  # type: ignore[union-attr]  # one is there

    def seek(self, place: int) -> None:
        """Continue at another offset, backwards only if the file is not compressed.

        Raises
        ------
        RecordCorruptError
            No line begins at that offset.
        """
        if place == self.place:
            return
        if self._file is None:
            self._skip(place - self.place)
            return
        if place and self._file.pread(place - 1, 1) != b"\n":
            raise RecordCorruptError(
                self.path, place, f"no line begins here; the file has {self._file.size:,} bytes"
            )
        self.place, self._rest, self._ended = place, b"", False

    def _skip(self, count: int) -> None:
        assert self._stream is not None
        if count < 0:
            raise RecordCorruptError(
                self.path, self.place + count, "a compressed file is not read backwards"
            )
        kept = min(count, len(self._rest))
        self._rest = self._rest[kept:]
        skipped = kept + self._stream.skip(count - kept)
        self.place += skipped
        if skipped < count:
            self._stream.read(1)  # says what is wrong, if anything is
            raise RecordCorruptError(
                self.path,
                self.place,
                f"ends here, but reading must continue {count - skipped:,} bytes later",
            )

    def read(self, size: int) -> bytes:
        """Return about `size` bytes of whole lines, at least one; only the file's last may lack its newline.

        Raises
        ------
        RecordCorruptError, OSError
            Nothing can be read at `place`; earlier lines have been returned.
        """
        pieces, total, want = [self._rest], len(self._rest), size
        while not self._ended:
            try:
                piece = self._read(self.place + total, max(1, want - total))
            except (RecordCorruptError, OSError):
                self._rest = b"".join(pieces)
                cut = self._cut(self._rest)
                if not cut:
                    raise
                return self._give(self._rest, cut)  # the next call raises the error
            self._ended = not piece
            pieces.append(piece)
            total += len(piece)
            if total < size and piece:
                continue
            data = b"".join(pieces)
            pieces = [data]
            cut = len(data) if self._ended else self._cut(data)
            if cut:
                return self._give(data, cut)
            if total > _LONGEST:
                self._rest = data
                raise RecordCorruptError(
                    self.path, self.place, f"a line is longer than {_LONGEST:,} bytes"
                )
            want = 2 * total
        data = b"".join(pieces)
        return self._give(data, len(data))

    def cut(self, place: int, stop: int) -> bytes:
        """Return the line at an offset and everything up to another one, of an uncompressed file.

        Raises
        ------
        RecordCorruptError, OSError
            It cannot be read, or is not a line.
        """
        assert self._file is not None
        before = min(1, place)  # a byte that says whether a line begins there
        count = min(stop, self._file.size) - place
        if count > _LONGEST:
            raise RecordCorruptError(self.path, place, f"a line is longer than {_LONGEST:,} bytes")
        begin, data = self._near
        at = place - before - begin
        if at < 0 or at + before + count > len(data):
            at, data = 0, self._file.pread(place - before, max(before + count, _HOP))
            self._near = place - before, data
        line = data[at + before : at + before + count]
        if len(line) < count or data[at : at + before] not in (b"", b"\n", _BOM_END):
            raise RecordCorruptError(self.path, place, "no line begins here")
        return line if line.endswith(b"\n") else line + b"\n"

    def _read(self, offset: int, count: int) -> bytes:
        if self._file is not None:
            return self._file.pread(offset, count)
        assert self._stream is not None
        return self._stream.read(count)

    def _give(self, data: bytes, cut: int) -> bytes:
        self._rest = data[cut:]
        self.place += cut
        return data if cut == len(data) else data[:cut]

    def _cut(self, data: bytes) -> int:
        """Return the end of the last complete line."""
        if self._splitter is at_newlines:
            return data.rfind(b"\n") + 1
        return int(self._splitter(data, False)[-1])

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._file is not None:
            self._file.close()
        if self._stream is not None:
            self._stream.close()


def starts_of(data: bytes, blanks: bytes = b"", splitter: Splitter = at_newlines) -> np.ndarray:
    """Return the offsets of all lines that are not blank.

    Parameters
    ----------
    data : bytes
        Complete lines.
    blanks : bytes
        The characters that a blank line may have before its end.
    splitter : Splitter
        As for `Lines`.
    """
    numbers = np.frombuffer(data, np.uint8)
    bounds = splitter(data, True)
    starts = bounds[:-1]
    white = np.zeros(256, bool)
    white[list(b"\r\n" + blanks)] = True
    doubtful = np.flatnonzero(white[numbers[starts]]).tolist()
    blank = [k for k in doubtful if is_blank(data[bounds[k] : bounds[k + 1]], blanks)]
    return np.delete(starts, blank) if blank else starts


def is_blank(line: bytes, blanks: bytes) -> bool:
    """Return True if a line has nothing but some characters before its end."""
    return not line.removesuffix(b"\n").removesuffix(b"\r").strip(blanks)
