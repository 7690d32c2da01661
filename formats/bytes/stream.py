"""The bytes of a file one after another, decompressed on the way.

A compressed stream has its checksum at the end, so damage may show long after wrong bytes came out.
What comes out in one step with damage is not given: so of a member of up to a MiB nothing is given
that its checksum does not stand for. What is merely cut off is given up to there.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tundish.errors import RecordCorruptError
from tundish.formats.bytes.decompressing import DECOMPRESSORS, Decompressor, compression_of
from tundish.formats.bytes.file import ByteFile, StorageOptions, open_file

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tundish.formats.format import Identity

COMPRESSIONS = ("", *DECOMPRESSORS)
"""What `open_stream` can undo."""

PIECE = 1 << 20
"""So many decompressed bytes are made, held and skipped at once, at most."""


def check_compression(compression_type: Any) -> str:
    """The argument `compression_type`; None is "".

    Raises
    ------
    TypeError, ValueError
        It is no str, or no compression that is known.
    """
    if compression_type is None:
        return ""
    if compression_type in COMPRESSIONS:
        return str(compression_type)
    known = ", ".join(map(repr, COMPRESSIONS))
    kind = ValueError if isinstance(compression_type, str) else TypeError
    raise kind(f"compression_type must be one of {known}, not {compression_type!r}")


def open_stream(
    path: str,
    compression: str = "",
    storage_options: StorageOptions = None,
    at: int = 0,
) -> ByteStream:
    """Open the decompressed bytes of a file.

    Parameters
    ----------
    path : str
        A local path or a URL.
    compression : str
        One of `COMPRESSIONS`.
    storage_options : mapping or tuple of pairs, optional
        What the URL's filesystem is made with.
    at : int
        Where to begin. A compressed file is decompressed up to there.

    Raises
    ------
    OSError, ImportError
        As `open_file`.
    RecordCorruptError
        It is damaged, or ends, before `at`.
    """
    file = open_file(path, storage_options)
    stream = ByteStream(file) if not compression else _Decompressed(file, compression)
    try:
        came = stream.skip(at)
    except BaseException:
        stream.close()
        raise
    if came < at:
        stream.close()
        raise RecordCorruptError(
            path, came, f"ends after {came:,} bytes, where reading was to go on at {at:,}"
        )
    return stream


class ByteStream(io.RawIOBase):
    """Bytes of a file one after another; a binary file for whoever wants one.

    Attributes
    ----------
    path : str
        The file.
    identity : Identity
        Of it, as it was when it was opened.
    """

    def __init__(self, file: ByteFile) -> None:
        super().__init__()
        self.path = file.path
        self.identity: Identity = file.identity
        self._file = file
        self._place = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes.

        Parameters
        ----------
        size : int
            How many: fewer only where the stream ends, or is damaged, which the next call tells.

        Returns
        -------
        bytes
            Empty at the end.

        Raises
        ------
        RecordCorruptError, OSError
            The stream is damaged here, and so for every later call.
        """
        if size is None or size < 0:
            return self.readall()
        data = self._file.pread(self._place, size)
        self._place += len(data)
        return data

    def readall(self) -> bytes:
        """Return all that is left."""
        pieces = []
        while piece := self.read(PIECE):
            pieces.append(piece)
        return b"".join(pieces)

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill a buffer with the next bytes; return how many those were, as of `read`."""
        came = self._file.readinto(self._place, buffer)
        self._place += came
        return came

    def skip(self, count: int) -> int:
        """Leave bytes out; return how many those were, as of `read`."""
        came = max(0, min(count, self._file.size - self._place))
        self._place += came
        return came

    def tell(self) -> int:
        """Return how many (decompressed) bytes were read or left out so far."""
        return self._place

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Close the file; may be called again."""
        if not self.closed:
            self._file.close()
        super().close()


class _Decompressed(ByteStream):
    """The decompressed bytes of a file."""

    def __init__(self, file: ByteFile, compression: str) -> None:
        super().__init__(file)
        self._pieces = _pieces(file, compression)
        self._problem: Exception | None = None
        self._held = memoryview(b"")  # made, and not yet read

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        pieces: list[memoryview] = []
        left = size
        while left and self._fill(begun=left < size):
            piece = self._take(left)
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and self._fill(begun=done > 0):
            piece = self._take(len(view) - done)
            view[done : done + len(piece)] = piece
            done += len(piece)
        return done

    def skip(self, count: int) -> int:
        done = 0
        while done < count and self._fill(begun=done > 0):
            done += len(self._take(count - done))
        return done

    def _take(self, most: int) -> memoryview:
        piece, self._held = self._held[:most], self._held[most:]
        self._place += len(piece)
        return piece

    def _fill(self, *, begun: bool) -> bool:
        """Have bytes at hand; False at the end, or at damage that the next call is to tell."""
        while not self._held and self._problem is None:
            try:
                piece = next(self._pieces, None)
            except _DamageError as damage:
                self._problem = RecordCorruptError(self.path, self._place, str(damage))
            except OSError as error:
                self._problem = error
            else:
                if piece is None:
                    return False
                self._held = memoryview(piece)
        if self._problem is not None and not self._held and not begun:
            raise self._problem
        return bool(self._held)


class _DamageError(Exception):
    """The compressed bytes are not what they were."""


def _pieces(file: ByteFile, compression: str) -> Iterator[bytes]:
    """Decompress a file, member after member.

    Raises
    ------
    _DamageError
        After all that can be trusted was given.
    """
    place = 0  # in the file, of `data`
    data = memoryview(b"")
    engine: Decompressor | None = None  # of the member that is under way
    came = False
    while True:
        if not data:
            data = memoryview(file.pread(place, max(file.block, PIECE)))
        if not data:
            if engine is not None:
                raise _DamageError(_named(file, compression, came, "is cut off"))
            return
        if engine is None:
            if place and compression == "ZLIB":
                raise _DamageError("something stands behind the end of the ZLIB data")
            engine = DECOMPRESSORS[compression]()
        step = given = data[:PIECE]
        while True:
            try:
                piece = engine.decompress(given, PIECE)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - each library has its own
                text = f"is damaged at byte {place + len(step):,} of the file or before: {error}"
                raise _DamageError(_named(file, compression, came, text)) from None
            if piece:
                came = True
                yield piece
            if engine.eof or engine.needs_input:
                break
            given = data[:0]
        used = len(step)
        if engine.eof:
            used -= len(engine.unused_data)
            engine = None
        data = data[used:]
        place += used


def _named(file: ByteFile, compression: str, came: bool, problem: str) -> str:
    """Say what is wrong; before anything came out of it, perhaps that it is no such file at all."""
    head = file.pread(0, 4)
    other = compression_of(head)
    if came or other == compression:
        return f"the {compression} data {problem}"
    hint = f" as of {other}" if other else ""
    return f"this is not {compression}: it begins with {head!r}{hint}"
