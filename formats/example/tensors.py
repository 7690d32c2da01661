"""Serialized ``TensorProto``: an array as bytes, in tensorflow's format."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from tundish.errors import SpecError
from tundish.formats.example.features import array_of
from tundish.formats.example.plain import FLOAT, bytes_of, floats_of, int64s_of
from tundish.formats.example.wire import MalformedError, delimited, fields, varint, varint_bytes

_NAMES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64",
    9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16",
    22: "uint32", 23: "uint64", 24: "float8_e5m2", 25: "float8_e4m3fn", 26: "float8_e4m3fnuz",
    27: "float8_e4m3b11fnuz", 28: "float8_e5m2fnuz",
}  # fmt: skip
_STRING = 7
_NUMBERS = {name: number for number, name in _NAMES.items()}
# The most bytes of a message, and of an array that a shape may make from a few values.
_MOST = 1 << 31
_DTYPE, _SHAPE, _VERSION, _CONTENT = 0x08, 0x12, 0x18, 0x22

# The field of each dtype's values if they are not one piece of bytes: its number and its contents.
_VALUES = {
    "float32": (5, "f4"), "complex64": (9, "f4"), "float64": (6, "f8"), "complex128": (12, "f8"),
    "int64": (10, "varint"), "uint64": (17, "varint"), "uint32": (16, "varint"),
    "bool": (11, "varint"), "float16": (13, "half"), "bfloat16": (13, "half"),
    **dict.fromkeys(("int32", "uint8", "int16", "int8", "uint16"), (7, "varint")),
}  # fmt: skip


def serialize_tensor(tensor: Any, name: Any = None) -> bytes:  # noqa: ARG001 - tf.io has it
    """Serialize an array as a ``TensorProto``, byte for byte as TensorFlow does.

    Parameters
    ----------
    tensor : array_like
        Numbers, bools, str or bytes; also the dtypes of `ml_dtypes` that TensorFlow has.
    name : str, optional
        Accepted as in tf.io, and ignored.

    Returns
    -------
    bytes
        The ``TensorProto``, with dtype and shape.

    Raises
    ------
    SpecError
        A ``TensorProto`` cannot have this dtype.

    Notes
    -----
    Python's ints become int64 and its floats float64, as in all of tundish. In TensorFlow they become
    int32 and float32.

    Examples
    --------
    >>> import tundish as td
    >>> data = td.io.serialize_tensor(np.eye(2, dtype=np.int8))
    >>> td.io.parse_tensor(data, np.int8)
    array([[1, 0],
           [0, 1]], dtype=int8)
    """
    array = np.asarray(tensor)
    sizes = [b"".join(delimited(2, _number(1, size))) for size in array.shape]
    if array.dtype.kind in "SUO":
        try:
            values = array_of(tensor if array.dtype.kind != "O" else array, bytes, "tensor")
        except ValueError as error:
            raise SpecError(str(error)) from None
        number = _STRING
        content = b"".join(b"".join(delimited(8, value)) for value in values.ravel().tolist())
    else:
        number = _NUMBERS.get(array.dtype.name, 0)
        if not number:
            raise SpecError(f"an array of {array.dtype} has no place in a TensorProto")
        data = np.ascontiguousarray(
            array.astype(array.dtype.newbyteorder("<"), copy=False)
        ).tobytes()
        content = b"".join(delimited(4, data)) if data else b""
    return b"".join([_number(1, number), *delimited(2, *sizes), content])


def _number(field: int, value: int) -> bytes:
    return varint_bytes(field << 3) + varint_bytes(value) if value else b""


def parse_tensor(serialized: Any, out_type: Any, name: Any = None) -> Any:  # noqa: ARG001 - tf.io has it
    """Parse the bytes of `serialize_tensor`, ours or TensorFlow's, to an array.

    Parameters
    ----------
    serialized : bytes
        A ``TensorProto``.
    out_type : dtype
        The dtype of the array: a NumPy dtype, a name or a Python type; `bytes` or ``"string"`` for strings.
    name : str, optional
        Accepted as in tf.io, and ignored.

    Returns
    -------
    numpy.ndarray
        The array, which the caller owns; bytes are in an array of objects. Without dimensions it is a scalar or
        `bytes`.

    Raises
    ------
    SpecError
        The array is of another dtype.
    ValueError
        The bytes are not a ``TensorProto``, or the number of values does not fit the shape.
    TypeError
        `serialized` is not `bytes`.

    Examples
    --------
    >>> import tundish as td
    >>> td.io.parse_tensor(td.io.serialize_tensor(["a", b"b"]), bytes)
    array([b'a', b'b'], dtype=object)
    """
    value = serialized.item() if isinstance(serialized, np.ndarray) else serialized
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"serialized must be bytes, not {type(serialized).__name__}")
    data = bytes(value)
    try:
        array = _parse(data, _name_of(out_type))
    except MalformedError as error:
        raise ValueError(f"these {len(data):,} bytes are not a TensorProto: {error}") from None
    return array[()] if not array.ndim else array


def _name_of(out_type: Any) -> str:
    if out_type in (bytes, str, object, np.object_, "string", "bytes", "str", "object"):
        return "string"
    name = getattr(out_type, "name", out_type)
    if name == "string":
        return "string"
    found = name if isinstance(name, str) and name in _NUMBERS else np.dtype(name).name
    if found not in _NUMBERS:
        raise ValueError(f"out_type={out_type!r} has no place in a TensorProto")
    return found


@cache
def _dtype_of(name: str) -> np.dtype:
    """Return a numpy dtype, or one of ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes  # noqa: PLC0415 - an optional package, for these dtypes alone
    except ImportError:
        raise ImportError(
            f"an array of {name} needs the package ml_dtypes: pip install ml_dtypes"
        ) from None
    found: np.dtype = np.dtype(getattr(ml_dtypes, name))
    return found


def _parse(data: bytes, wanted: str) -> np.ndarray:
    number, content = 0, None
    shape: tuple[int, ...] = ()
    pieces: list[tuple[int, int, int]] = []
    for tag, at, stop in fields(data, 0, len(data)):
        if tag == _DTYPE:
            number = varint(data, at, stop)[0]
        elif tag == _SHAPE:
            shape = _shape_of(data, at, stop)
        elif tag == _CONTENT:
            content = (at, stop)
        elif tag != _VERSION:
            pieces.append((tag, at, stop))
    name = "string" if number == _STRING else _NAMES.get(number, f"dtype {number}")
    if name != wanted:
        raise SpecError(f"the array is of {name}, not of {wanted}")
    count = math.prod(shape)
    if name == "string":
        return _strings(data, pieces, content, count).reshape(shape)
    dtype = _dtype_of(name)
    if content is None or content[0] == content[1]:
        return _spread(_values(data, pieces, name, dtype), count).reshape(shape)
    at, stop = content
    if stop - at != count * dtype.itemsize:
        raise MalformedError(
            f"{stop - at:,} bytes for {count:,} values of {dtype.itemsize} (shape {shape})", at
        )
    little = np.dtype(dtype).newbyteorder("<")
    array = np.frombuffer(bytearray(data[at:stop]), little).astype(dtype, copy=False)
    return array.reshape(shape)


def _shape_of(data: bytes, at: int, stop: int) -> tuple[int, ...]:
    sizes = []
    for tag, begin, end in fields(data, at, stop):
        if tag == 0x12:
            size = 0
            for part, first, last in fields(data, begin, end):
                if part == 0x08:
                    size = varint(data, first, last)[0]
            if size >= 1 << 63:
                raise MalformedError("a size that is not known, or negative", begin)
            sizes.append(size)
        elif tag == 0x18 and data[begin]:
            raise MalformedError("a shape of unknown rank", begin)
    if len(sizes) > 32 or math.prod(size for size in sizes if size) >= 1 << 63:
        raise MalformedError(f"a shape that no array has: {tuple(sizes)}", at)
    return tuple(sizes)


def _spread(values: np.ndarray, count: int) -> np.ndarray:
    """Repeat the last value as often as the shape requires; zeros if there are no values."""
    if len(values) > count:
        raise MalformedError(f"{len(values):,} values, the shape has {count:,}", 0)
    if len(values) == count:
        return values
    if count * values.itemsize > _MOST:
        raise MalformedError(f"{len(values):,} values in a shape of {count:,}, more than 2 GiB", 0)
    spread = np.zeros(count, values.dtype)
    if len(values):
        spread[: len(values)], spread[len(values) :] = values, values[-1]
    elif values.dtype == object:
        spread[:] = b""
    return spread


def _values(
    data: bytes, pieces: list[tuple[int, int, int]], name: str, dtype: np.dtype
) -> np.ndarray:
    """Return the values in a field of their own, packed or not."""
    field, form = _VALUES.get(name, (0, ""))
    found: list[np.ndarray] = []
    for tag, at, stop in pieces:
        if tag >> 3 != field:
            continue
        if form == "f4":
            found.append(floats_of(data, at, stop))
        elif form == "f8":
            if stop - at & 7:
                raise MalformedError(f"float64 of {stop - at} bytes, which 8 does not divide", at)
            found.append(np.frombuffer(data, "<f8", (stop - at) // 8, at))
        else:
            found.append(int64s_of(data, at, stop))
    values = np.concatenate(found) if found else np.empty(0, np.int64)
    if form == "half":
        return values.astype(np.uint16).view(dtype)
    if form in {"f4", "f8"} and dtype.kind == "c":
        part = FLOAT if form == "f4" else np.dtype(np.float64)
        if len(values) % 2:
            raise MalformedError(f"{len(values)} numbers for complex ones, which take two each", 0)
        return values.astype(part).view(dtype)
    return values.astype(dtype)


def _strings(
    data: bytes, pieces: list[tuple[int, int, int]], content: tuple[int, int] | None, count: int
) -> np.ndarray:
    if content is not None and content[0] < content[1]:
        return _strings_in_one(data, *content, count)
    together = b"".join(
        b"".join(delimited(1, data[at:stop])) for tag, at, stop in pieces if tag == 0x42
    )
    return _spread(bytes_of(together, 0, len(together)), count)


def _strings_in_one(data: bytes, at: int, stop: int, count: int) -> np.ndarray:
    """Decode strings in one buffer: first all lengths, then all strings."""
    if count > stop - at:
        raise MalformedError(f"{stop - at:,} bytes for {count:,} strings", at)
    sizes = []
    for _ in range(count):
        size, at = varint(data, at, stop)
        sizes.append(size)
    if sum(sizes) != stop - at:
        raise MalformedError(f"strings of {sum(sizes):,} bytes, {stop - at:,} are there", at)
    values = np.empty(count, object)
    for k, size in enumerate(sizes):
        values[k], at = data[at : at + size], at + size
    return values


def decode_raw(
    input_bytes: Any,
    out_type: Any,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: Any = None,  # noqa: ARG001 - tf.io has it
) -> np.ndarray:
    """Interpret bytes as numbers.

    Parameters
    ----------
    input_bytes : bytes or array of bytes
        The bytes, all of one length.
    out_type : dtype
        The dtype of the numbers.
    little_endian : bool
        True if the least significant byte of a number comes first.
    fixed_length : int, optional
        Cut the bytes, or pad them with zeros, to this length first: a multiple of a number's size.
    name : str, optional
        Accepted as in tf.io, and ignored.

    Returns
    -------
    numpy.ndarray
        The numbers, with one dimension more than `input_bytes`. The caller owns the array.

    Raises
    ------
    ValueError
        The lengths differ, or are not a multiple of a number's size.

    Examples
    --------
    >>> import tundish as td
    >>> td.io.decode_raw([b"abcd", b"efgh"], np.uint16).tolist()
    [[25185, 25699], [26213, 26727]]
    """
    dtype = np.dtype(getattr(out_type, "as_numpy_dtype", out_type))
    if dtype.kind not in "biufc":
        raise ValueError(f"out_type={out_type!r} must be of numbers")
    items = array_of(input_bytes, bytes, "input_bytes")
    rows = items.ravel().tolist()
    if fixed_length is not None:
        rows = [row[:fixed_length].ljust(fixed_length, b"\0") for row in rows]
    size = len(rows[0]) if rows else 0
    for k, row in enumerate(rows):
        if len(row) != size:
            raise ValueError(
                f"bytes of one length are needed; of number {k} it is {len(row)}, not {size}"
            )
    if size % dtype.itemsize:
        raise ValueError(
            f"{size} bytes are not a multiple of {dtype.itemsize}, the size of {dtype}"
        )
    order = dtype.newbyteorder("<" if little_endian else ">")
    numbers = np.frombuffer(bytearray().join(rows), order).astype(dtype, copy=False)
    return numbers.reshape(*items.shape, size // dtype.itemsize)
