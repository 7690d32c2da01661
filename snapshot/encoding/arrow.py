"""Arrow arrays made from numpy arrays and Python values, without a copy if they are contiguous.

Arrow has no complex numbers, structures, big-endian numbers, bfloat16 and so on. It stores a *carrier* in their place:
an Arrow type of the same size, reached by a view and never by a conversion, so that every bit is restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tundish.gaps import copied, has_gaps

Piece = np.ndarray | list[Any]
"""A leaf of consecutive elements: an array of rows, or a list of leaf values."""

_FIRST_OF_OTHERS = 256  # below it are numpy's own; `isbuiltin` is not said of one that was pickled
_UNSIGNED = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}


def carrier(dtype: np.dtype) -> tuple[pa.DataType, int]:
    """Return the carrier of a dtype: the Arrow type, and how many of its values an item takes.

    Returns
    -------
    pyarrow.DataType
        Null if items have no bytes.
    int
        1 if an item is a single value of it.

    Examples
    --------
    >>> carrier(np.dtype("complex64")), carrier(np.dtype(">i4")), carrier(np.dtype("S5"))
    ((DataType(float), 2), (DataType(uint32), 1), (DataType(uint8), 5))
    """
    size = dtype.itemsize
    if size == 0:
        return pa.null(), 1
    if dtype.isnative and dtype.num < _FIRST_OF_OTHERS and dtype.names is None:
        if dtype.kind in "iuf" and size <= 8:
            return pa.from_numpy_dtype(dtype), 1
        if dtype.kind == "c" and size <= 16:
            return pa.from_numpy_dtype(np.dtype(f"f{size // 2}")), 2
    if dtype.kind in "mM" and dtype.isnative:
        return pa.int64(), 1
    if size in _UNSIGNED:
        return _UNSIGNED[size], 1
    return pa.uint8(), size


# -- numbers -------------------------------------------------------------------------------------


def values_array(array: np.ndarray) -> Any:
    """Return the Arrow array that carries the items of a contiguous one-dimensional array, without a copy."""
    item = item_type(array.dtype)
    if pa.types.is_null(item):
        return pa.nulls(array.size)
    if has_gaps(array.dtype):
        array = copied(array)
    buffer = pa.py_buffer(array.view(np.uint8)) if array.size else pa.py_buffer(b"")
    if not pa.types.is_fixed_size_list(item):
        return pa.Array.from_buffers(item, array.size, [None, buffer])
    carried, width = carrier(array.dtype)
    values = pa.Array.from_buffers(carried, array.size * width, [None, buffer])
    return pa.Array.from_buffers(item, array.size, [None], children=[values])


def item_type(dtype: np.dtype) -> Any:
    """Return the Arrow type of one item: its carrier, or a fixed-size list of carriers."""
    carried, width = carrier(dtype)
    if width == 1:
        return carried
    return pa.list_(pa.field("item", carried, nullable=False), width)


def inner(values: Any) -> Any:
    """Return the carriers of items that take several."""
    return values.values if isinstance(values, pa.FixedSizeListArray) else values


def join_rows(pieces: Sequence[Piece], dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Concatenate pieces to one contiguous array; a single piece is returned as it is."""
    if len(pieces) == 1 and isinstance(pieces[0], np.ndarray) and pieces[0].flags.c_contiguous:
        return pieces[0]
    array = _new((sum(map(len, pieces)), *shape), dtype)
    target, k = bits(array), 0
    for piece in pieces:
        rows = piece if isinstance(piece, np.ndarray) else stack(piece, dtype, shape)
        target[k : k + len(piece)] = bits(rows)
        k += len(piece)
    return array


def stack(values: Sequence[Any], dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Stack values of one dtype and shape, preserving every byte."""
    array = _new((len(values), *shape), dtype)
    target = bits(array)
    for k, value in enumerate(values):
        target[k] = value if target is array else bits(np.asarray(value))
    return array


def _new(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    # np.empty would make an "S0" an "S1".
    return np.empty(shape, dtype) if dtype.itemsize else np.ndarray(shape, dtype, bytearray())


def join_items(
    pieces: Sequence[Piece], dtype: np.dtype, ndim: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shapes of all rows, and their items concatenated."""
    rows = [np.asarray(value) for piece in pieces for value in piece]
    shapes = np.array([row.shape for row in rows], np.int64).reshape(len(rows), ndim)
    flat = _new((int(shapes.prod(axis=1).sum()),), dtype)
    parts = [bits(row).reshape(-1) for row in rows]
    if parts:
        np.concatenate(parts, out=bits(flat), casting="no")
    return shapes, flat


def bits(array: np.ndarray) -> np.ndarray:
    """Return a view with items that numpy copies whole: of a structure it copies only the fields."""
    return array.view(f"V{array.dtype.itemsize}") if array.dtype.names is not None else array


# -- lists ---------------------------------------------------------------------------------------


def list_type(item: Any, ndim: int) -> Any:
    """Return the Arrow type of rows of different shapes."""
    data = pa.large_list(pa.field("item", item, nullable=pa.types.is_null(item)))
    if ndim == 1:
        return data
    shape = pa.list_(pa.field("item", pa.int64(), nullable=False), ndim)
    return pa.struct(
        [pa.field("data", data, nullable=False), pa.field("shape", shape, nullable=False)]
    )


def list_array(arrow: Any, shapes: np.ndarray, values: Any) -> Any:
    """Return the Arrow array of rows with shapes (rows, ndim) over their items."""
    rows, ndim = shapes.shape
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(shapes.prod(axis=1), out=offsets[1:])
    data_type = arrow if ndim == 1 else arrow.field(0).type
    buffers = [None, pa.py_buffer(offsets)]
    data = pa.Array.from_buffers(data_type, rows, buffers, children=[values])
    if ndim == 1:
        return data
    sizes = pa.Array.from_buffers(
        arrow.field(1).type, rows, [None], children=[values_array(shapes.reshape(-1))]
    )
    return pa.StructArray.from_arrays([data, sizes], fields=list(arrow))


# -- text ----------------------------------------------------------------------------------------


def text_type(name: str | None, *, surrogates: bool) -> Any:
    """Return the Arrow type of ``str`` or ``bytes``; text with lone surrogates has no UTF-8 and is binary."""
    return pa.large_binary() if name == "bytes" or surrogates else pa.large_string()


def text_array(values: list[Any], name: str | None, *, surrogates: bool) -> Any:
    """Return the Arrow array of strings."""
    if surrogates:
        values = [value.encode("utf-8", "surrogatepass") for value in values]
    return pa.array(values, text_type(name, surrogates=surrogates))
