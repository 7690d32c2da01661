"""Bytes at rising offsets, read some at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.formats.bytes.file import ByteFile
    from tundish.formats.bytes.stream import ByteStream

__all__ = ["Window", "over_file", "over_stream"]


class Window:
    """A piece of a file that is held, and moves on with what is asked for.

    Parameters
    ----------
    fetch : callable
        Gives bytes at an offset: fewer at the end, none behind it.
    size : int or None
        Of the file, where it is known.
    ahead, hop : int
        How much to fetch at least: where reading goes on, and after bytes were left out.
    """

    def __init__(
        self, fetch: Callable[[int, int], bytes], size: int | None, ahead: int, hop: int
    ) -> None:
        self.size = size
        self._fetch, self._ahead, self._hop = fetch, ahead, hop
        self._held, self._start = b"", 0

    def at(self, offset: int, count: int) -> bytes:
        """So many bytes at an offset; fewer only where the file ends.

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
        """These bytes and those behind them, until there are enough or the file ends."""
        pieces, have = [rest], len(rest)
        while have < count:
            piece = self._fetch(offset + have, max(count - have, least))
            if not piece:
                break
            pieces.append(piece)
            have += len(piece)
        return pieces[-1] if not rest and len(pieces) == 2 else b"".join(pieces)


def over_file(file: ByteFile, *, ahead: bool) -> Window:
    """A window over a file in which reading may begin anywhere."""
    hop = file.hop >> 3
    return Window(file.pread, file.size, file.block if ahead else hop, hop)


def over_stream(stream: ByteStream) -> Window:
    """A window over a decompressed stream, which only goes on."""

    def fetch(offset: int, count: int) -> bytes:
        missing = offset - stream.tell()
        return stream.read(count) if stream.skip(missing) == missing else b""

    return Window(fetch, None, 1 << 18, 1 << 18)
