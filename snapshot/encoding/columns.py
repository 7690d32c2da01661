"""Decoded leaves: views of mapped or decompressed Arrow buffers.

There is a class for each kind of leaf (`tundish.snapshot.encoding.kinds`), which gives `one` row, `many` rows as a list,
or rows `stacked` in one array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tundish.gaps import copied

_SHORT = 4096
_SMALL = 1024  # bytes of a row that is copied together with its neighbours
_INT64 = np.dtype(np.int64)


class Column(ABC):
    """One leaf of the rows of a batch.

    Attributes
    ----------
    array : numpy.ndarray or None
        All rows in one read-only array, if that is a view.
    cost : int
        The bytes of memory that it takes in addition to the buffers.
    """

    __slots__ = ("array", "cost")

    def __init__(self, cost: int, array: np.ndarray | None = None) -> None:
        self.cost, self.array = cost, array

    @abstractmethod
    def one(self, k: int, /) -> Any:
        """Return the leaf of row k."""

    def many(self, first: int, stop: int) -> list[Any]:
        """Return the leaf of several rows; short ones as copies, which cost less than watching their file."""
        return [self.one(k) for k in range(first, stop)]

    def views(self, first: int, stop: int) -> bool:
        """Return True if `many` gives views of the buffers."""
        return False

    def stacked(self, first: int, stop: int) -> np.ndarray | None:
        """Return several rows as one array; None if their shapes differ."""
        return as_objects(self.many(first, stop))


def as_objects(values: Sequence[Any]) -> np.ndarray:
    """Return a one-dimensional object array of ``str``, ``bytes`` and None, which numpy would treat as scalars."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


class BufferMemory:
    """Makes arrays over the memory of a batch's buffers.

    Parameters
    ----------
    mapping : object, optional
        The mapped file, with the buffer protocol; the ``base`` of arrays that lie in it.
    """

    def __init__(self, mapping: Any = None) -> None:
        self._mapping = mapping
        self._first = self._end = 0
        if mapping is not None and len(mapping):
            self._first = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
            self._end = self._first + len(mapping)

    def array(self, buffer: Any, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return a read-only array over a part of a buffer.

        Raises
        ------
        ValueError
            The buffer is too short.
        """
        needed = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if needed == 0:
            return _nothing(dtype, shape)
        have = 0 if buffer is None else buffer.size
        if start < 0 or start + needed > have:
            raise ValueError(f"a buffer has {have} bytes, {start + needed} are needed")
        at = buffer.address + start
        if self._first <= at < self._end:
            array = np.ndarray(shape, dtype, self._mapping, at - self._first)
        else:
            array = np.ndarray(shape, dtype, buffer, start)
        if not array.flags.aligned:  # only of types that want more than the 8 bytes of Arrow
            array = copied(array)
        array.flags.writeable = False
        return array

    def values(self, array: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return the numbers of an Arrow array inside any lists and extensions."""
        start = 0
        while True:
            if isinstance(array, pa.ExtensionArray):
                array = array.storage
            elif isinstance(array, pa.FixedSizeListArray):
                start = (start + array.offset) * array.type.list_size
                array = array.values
            else:
                break
        if pa.types.is_null(array.type):
            return self.array(None, 0, dtype, shape)
        width = array.type.bit_width // 8
        return self.array(array.buffers()[1], (start + array.offset) * width, dtype, shape)

    def offsets(self, array: Any, limit: int | None = None) -> list[int]:
        """Return the bounds of the rows of a list, string or binary array.

        Raises
        ------
        ValueError
            They do not ascend, or exceed `limit`.
        """
        rows = len(array)
        if rows == 0:
            return [0]
        found = self.array(array.buffers()[1], array.offset * 8, _INT64, (rows + 1,))
        if found[0] < 0 or (np.diff(found) < 0).any() or (limit is not None and found[-1] > limit):
            raise ValueError("the offsets of the rows do not ascend within their values")
        told: list[int] = found.tolist()
        return told

    def lists(self, array: Any, ndim: int) -> tuple[Any, list[int], list[tuple[int, ...]] | None]:
        """Return rows of different shapes: the Arrow array of all items, the bounds of rows, and shapes.

        Raises
        ------
        ValueError
            Shapes and sizes contradict each other.
        """
        data = array if ndim == 1 else array.field(0)
        offsets = self.offsets(data, len(data.values))
        if ndim == 1:
            return data.values, offsets, None
        shapes = self.values(array.field(1), _INT64, (len(array), ndim))
        if (shapes < 0).any() or (shapes.prod(axis=1) != np.diff(offsets)).any():
            raise ValueError("the shapes of the rows are not those of their items")
        return data.values, offsets, [tuple(shape) for shape in shapes.tolist()]


def _nothing(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    # np.empty would make an "S0" an "S1".
    array = np.empty(shape, dtype) if dtype.itemsize else np.ndarray(shape, dtype, b"")
    array.flags.writeable = False
    return array


def is_simple(dtype: np.dtype) -> bool:
    """Return True if numpy copies each byte of a dtype's items; of records it omits the padding."""
    return dtype.kind in "biufcmMSU"


def _copied(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


class FixedColumn(Column):
    """Rows of one dtype and shape."""

    __slots__ = ("one",)
    array: np.ndarray

    def __init__(self, array: np.ndarray) -> None:
        super().__init__(256, array)
        self.one: Any = array.__getitem__

    def many(self, first: int, stop: int) -> list[Any]:
        rows = self.array[first:stop]
        return list(rows if self.views(first, stop) else _copied(rows))

    def views(self, first: int, stop: int) -> bool:
        return self.array.strides[0] > _SMALL or not is_simple(self.array.dtype)

    def stacked(self, first: int, stop: int) -> np.ndarray | None:
        return self.array[first:stop]


class VaryingColumn(Column):
    """Rows of one dtype and rank whose shapes differ."""

    __slots__ = ("_offsets", "_shapes", "_values")

    def __init__(
        self, values: np.ndarray, offsets: list[int], shapes: list[tuple[int, ...]] | None
    ) -> None:
        super().__init__(256 + 40 * len(offsets) * (1 if shapes is None else 4))
        self._values, self._offsets, self._shapes = values, offsets, shapes

    def one(self, k: int, /) -> Any:
        offsets = self._offsets
        row = self._values[offsets[k] : offsets[k + 1]]
        return row if self._shapes is None else row.reshape(self._shapes[k])

    def many(self, first: int, stop: int) -> list[Any]:
        values, offsets = self._values, self._offsets[first : stop + 1]
        if not self.views(first, stop):
            values = _copied(values[offsets[0] : offsets[-1]])
            offsets = [offset - offsets[0] for offset in offsets]
        rows = [values[a:b] for a, b in pairwise(offsets)]
        if self._shapes is None:
            return rows
        return [r.reshape(s) for r, s in zip(rows, self._shapes[first:stop], strict=True)]

    def views(self, first: int, stop: int) -> bool:
        items = self._offsets[stop] - self._offsets[first]
        nbytes = items * self._values.itemsize
        return nbytes > _SMALL * (stop - first) or not is_simple(self._values.dtype)

    def stacked(self, first: int, stop: int) -> np.ndarray | None:
        offsets = self._offsets
        if self._shapes is None:
            size = offsets[first + 1] - offsets[first]
            if any(offsets[k + 1] - offsets[k] != size for k in range(first + 1, stop)):
                return None
            shape: tuple[int, ...] = (size,)
        else:
            shape = self._shapes[first]
            if any(other != shape for other in self._shapes[first + 1 : stop]):
                return None
        return self._values[offsets[first] : offsets[stop]].reshape(stop - first, *shape)


class TextColumn(Column):
    """Rows that are ``str`` or ``bytes``."""

    __slots__ = ("_data", "_errors", "_offsets", "_str")

    def __init__(
        self, data: np.ndarray, offsets: list[int], *, text: bool, surrogates: bool
    ) -> None:
        super().__init__(256 + 40 * len(offsets))
        self._data: Any = memoryview(data)  # type: ignore[arg-type]  # it has the buffer protocol
        self._offsets = offsets
        self._str, self._errors = text, "surrogatepass" if surrogates else "strict"

    def one(self, k: int, /) -> Any:
        row = self._data[self._offsets[k] : self._offsets[k + 1]]
        return str(row, "utf-8", self._errors) if self._str else bytes(row)

    def many(self, first: int, stop: int) -> list[Any]:
        offsets = self._offsets[first : stop + 1]
        pairs = pairwise(offsets)
        total = offsets[-1] - offsets[0]
        if total > _SHORT * len(offsets):  # large rows: each is copied once
            return [self.one(k) for k in range(first, stop)]
        start = offsets[0]
        whole = bytes(self._data[start : start + total])
        if self._str and whole.isascii():  # then characters are bytes
            ascii_text = whole.decode("ascii")
            return [ascii_text[a - start : b - start] for a, b in pairs]
        rows = [whole[a - start : b - start] for a, b in pairs]
        return [row.decode("utf-8", self._errors) for row in rows] if self._str else rows


class ObjectsColumn(Column):
    """Rows that are object arrays of ``str`` or ``bytes``."""

    __slots__ = ("_items", "_offsets", "_shapes")

    def __init__(
        self, items: TextColumn, offsets: list[int], shapes: list[tuple[int, ...]]
    ) -> None:
        super().__init__(items.cost + 160 * len(offsets))
        self._items, self._offsets, self._shapes = items, offsets, shapes

    def one(self, k: int, /) -> Any:
        items = self._items.many(self._offsets[k], self._offsets[k + 1])
        return as_objects(items).reshape(self._shapes[k])

    def stacked(self, first: int, stop: int) -> np.ndarray | None:
        shape = self._shapes[first]
        if any(other != shape for other in self._shapes[first + 1 : stop]):
            return None
        items = self._items.many(self._offsets[first], self._offsets[stop])
        return as_objects(items).reshape(stop - first, *shape)


class Constant(Column):
    """Rows that are all None."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(64)

    def one(self, k: int, /) -> Any:
        return None

    def many(self, first: int, stop: int) -> list[Any]:
        return [None] * (stop - first)
