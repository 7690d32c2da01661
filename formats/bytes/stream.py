"""The bytes of a file as a stream, decompressed on the way.

A compressed stream has its checksum at the end, so damage may be found long after wrong bytes came out.
Output of the step in which damage is found is withheld: of a member of up to a MiB nothing is returned
that its checksum does not confirm. A file that is merely truncated is returned up to the cut.
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
"""The compressions that `open_stream` reads."""

PIECE = 1 << 20
"""So many decompressed bytes are made, held and skipped at once, at most."""


def check_compression(compression_type: Any) -> str:
    """Check the argument `compression_type`; None becomes "".

    Raises
    ------
    TypeError, ValueError
        It is not a str, or not a known compression.
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
    """Open a stream of a file's decompressed bytes.

    Parameters
    ----------
    path : str
        A local path or a URL.
    compression : str
        One of `COMPRESSIONS`.
    storage_options : mapping or tuple of pairs, optional
        Options of a URL's filesystem.
    at : int
        The offset to begin at. A compressed file is decompressed up to there.

    Raises
    ------
    OSError, ImportError
        As from `open_file`.
    RecordCorruptError
        The file is damaged, or ends, before `at`.
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
            path, came, f"ends after {came:,} bytes, but reading must continue at {at:,}"
        )
    return stream


class ByteStream(io.RawIOBase):
    """The bytes of a file as a stream; it is a binary file object.

    Attributes
    ----------
    path : str
        The file.
    identity : Identity
        The file's identity when it was opened.
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
            Their number: fewer are returned only at the end of the stream, or before damage, which the next call raises.

        Returns
        -------
        bytes
            Empty at the end.

        Raises
        ------
        RecordCorruptError, OSError
            The stream is damaged here; every later call raises as well.
        """
        if size is None or size < 0:
            return self.readall()
        data = self._file.pread(self._place, size)
        self._place += len(data)
        return data

    def readall(self) -> bytes:
        """Return all remaining bytes."""
        pieces = []
        while piece := self.read(PIECE):
            pieces.append(piece)
        return b"".join(pieces)

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill a buffer with the next bytes; return their number, as from `read`."""
        came = self._file.readinto(self._place, buffer)
        self._place += came
        return came

    def skip(self, count: int) -> int:
        """Skip bytes; return their number, as from `read`."""
        came = max(0, min(count, self._file.size - self._place))
        self._place += came
        return came

    def tell(self) -> int:
        """Return how many (decompressed) bytes were read or skipped so far."""
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
        """Decompress more; return False at the end, or at damage that the next call raises."""
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
    """The compressed bytes are damaged."""


def _pieces(file: ByteFile, compression: str) -> Iterator[bytes]:
    """Decompress a file, member by member.

    Raises
    ------
    _DamageError
        Raised after everything that can be trusted.
    """
    place = 0  # the offset of `data` in the file
    data = memoryview(b"")
    engine: Decompressor | None = None  # decompresses the current member
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
                raise _DamageError("there are bytes after the end of the ZLIB data")
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
    """Describe a problem; before any output, also that the file may be of another kind."""
    head = file.pread(0, 4)
    other = compression_of(head)
    if came or other == compression:
        return f"the {compression} data {problem}"
    hint = f" as of {other}" if other else ""
    return f"this is not {compression}: it begins with {head!r}{hint}"
