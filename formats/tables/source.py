"""The bytes of a file as pyarrow reads them.

pyarrow could map a local file. Here it reads through `ByteFile`, for local and remote files
alike: if another process truncates a mapped file, a signal kills this one.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from tundish.formats.bytes.file import ByteFile

ARROW_ERRORS = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    MemoryError,
    IndexError,
)
"""The errors of pyarrow about bytes that are not as they should be."""


def in_short(problem: BaseException) -> str:
    """Return the first line of pyarrow's message."""
    return (str(problem).splitlines() or [type(problem).__name__])[0]


def check_names(schema: Any) -> None:
    """Check that the names in a file's schema are valid text.

    Raises
    ------
    UnicodeDecodeError
        A name is not valid UTF-8.
    """
    for field in schema:
        _check_field(field)


def _check_field(field: Any) -> None:
    kind = field.type
    _ = field.name, getattr(kind, "tz", None)  # both are decoded on access
    for k in range(kind.num_fields):
        _check_field(kind.field(k))


def check_kind(field: Any) -> None:
    """Check that pyarrow has arrays of a field's type: of some Arrow types it only knows the name.

    Raises
    ------
    TypeError
        It has none of the type, or of one inside it.
    """
    kind = field.type
    try:
        pa.nulls(0, kind)
    except KeyError:
        raise TypeError(f"{field.name!r} has the type {kind}, which pyarrow cannot read") from None
    except pa.ArrowException:
        pass  # some types have no arrays without a value
    for k in range(kind.num_fields):
        check_kind(kind.field(k))


class Spliced(io.RawIOBase):
    """Ranges of a `ByteFile`, concatenated, as a file object.

    Parameters
    ----------
    file : ByteFile
        The file, which stays open.
    spans : list of (int, int), optional
        The bounds of each range. None: the whole file.

    Attributes
    ----------
    error : OSError or None
        The error of a failed read, since pyarrow raises similar errors of its own.
    """

    def __init__(self, file: ByteFile, spans: list[tuple[int, int]] | None = None) -> None:
        super().__init__()
        self.error: OSError | None = None
        self._file = file
        self._spans = [(0, file.size)] if spans is None else spans
        self._starts = list(accumulate((end - begin for begin, end in self._spans), initial=0))
        self._place = 0

    def size(self) -> int:
        """Return the number of bytes."""
        return self._starts[-1]

    def read(self, count: int | None = -1, /) -> bytes:
        left = max(0, self.size() - self._place)
        count = left if count is None or count < 0 else min(count, left)
        pieces = []
        while count:
            number = bisect_right(self._starts, self._place) - 1
            begin, end = self._spans[number]
            at = begin + self._place - self._starts[number]
            try:
                data = self._file.pread(at, min(count, end - at))
            except OSError as error:
                self.error = error
                raise
            if not data:
                break  # the file was cut off since it was opened
            pieces.append(data)
            self._place += len(data)
            count -= len(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._place = (0, self._place, self.size())[whence] + offset
        return self._place

    def tell(self) -> int:
        return self._place

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def arrow(self) -> Any:
        """Return the file object for pyarrow."""
        return pa.PythonFile(self, mode="r")
