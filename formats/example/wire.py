"""The wire format of protocol buffers, field by field.

A message is a sequence of fields: a *tag* (number and wire type), then the value: a varint (0), 8 bytes
(1), a length and as many bytes (2), or 4 bytes (5). ``tf.train.Example`` and ``SequenceExample`` are
encoded here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tundish.errors import SpecError

VARINT_BYTES = 10
"""A varint has no more."""


class MalformedError(ValueError):
    """The bytes are not a valid message; callers add which record they are from.

    Parameters
    ----------
    problem : str
        What was found and what was expected.
    byte : int
        The offset of the problem.
    """

    def __init__(self, problem: str, byte: int) -> None:
        super().__init__(problem, byte)
        self.problem, self.byte = problem, byte

    def __str__(self) -> str:
        return f"byte {self.byte}: {self.problem}"


def varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """Decode an unsigned 64-bit number; return it and the offset after it."""
    value = shift = 0
    for k in range(at, min(at + VARINT_BYTES, stop)):
        byte = data[k]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, k + 1
        shift += 7
    if stop - at < VARINT_BYTES:
        raise MalformedError("the message ends within a number", at)
    raise MalformedError("a number of more than 10 bytes", at)


def fields(data: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of a message: tag, start of the value (after its length), end."""
    while at < stop:
        first = at
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = varint(data, first, stop)
        if not tag >> 3:
            raise MalformedError(f"a field with the number 0 (tag {tag})", first)
        form = tag & 7
        if form == 2:
            if at < stop and data[at] < 0x80:
                size, at = data[at], at + 1
            else:
                size, at = varint(data, at, stop)
        elif form == 0:
            begin = at
            _, at = varint(data, at, stop)
            yield tag, begin, at
            continue
        elif form == 5:
            size = 4
        elif form == 1:
            size = 8
        else:
            raise MalformedError(
                f"wire type {form}, not a number, 4 or 8 bytes, or a length", first
            )
        if size > stop - at:
            raise MalformedError(
                f"field {tag >> 3} has {size:,} bytes, but {stop - at:,} are left", first
            )
        yield tag, at, at + size
        at += size


def varint_bytes(value: int) -> bytes:
    """Encode a number as a varint; a negative one as its 64 bits."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(number: int, *parts: bytes) -> Iterable[bytes]:
    """Return the parts of a field of bytes: tag, length, and contents."""
    return (varint_bytes(number << 3 | 2), varint_bytes(sum(map(len, parts))), *parts)


def encode_example(values: Mapping[str, Any]) -> bytes:
    r"""Serialize values as a ``tf.train.Example``.

    Parameters
    ----------
    values : dict
        Names with numbers, str, bytes, or arrays or lists of these. Ints and bools become int64, floats
        float32 (an Example has no other floats), str and bytes become bytes. An array is written flat, in C
        order; its shape is given to `parse_example` later. An empty list is written without a type: when parsed, a
        feature of fixed length counts it as missing, and the others as no values.

    Returns
    -------
    bytes
        The Example, with names in order and numbers packed, so that equal values give equal bytes.

    Raises
    ------
    SpecError
        A value has a type that an Example does not have, or does not fit int64.
    TypeError
        `values` is not a dict of names.

    Examples
    --------
    >>> import tundish as td
    >>> td.io.encode_example({"a": 1, "b": ["x", b"y"]})
    b'\n\x1b\n\n\n\x01a\x12\x05\x1a\x03\n\x01\x01\n\r\n\x01b\x12\x08\n\x06\n\x01x\n\x01y'
    """
    return b"".join(delimited(1, *_map_of(values, _feature)))


def encode_sequence_example(
    context: Mapping[str, Any] | None = None, feature_lists: Mapping[str, Any] | None = None
) -> bytes:
    """Serialize values as a ``tf.train.SequenceExample``.

    Parameters
    ----------
    context : dict, optional
        The values of the whole example, as for `encode_example`.
    feature_lists : dict, optional
        The values of its steps: names, each with a sequence of one value per step, as for
        `encode_example`.

    Returns
    -------
    bytes
        The SequenceExample, in the same order as `encode_example`.

    Raises
    ------
    SpecError, TypeError
        As for `encode_example`.

    Examples
    --------
    >>> import tundish as td
    >>> record = td.io.encode_sequence_example({"id": 7}, {"words": [["a", "b"], ["c"]]})
    >>> _, lists = td.io.parse_single_sequence_example(
    ...     record, sequence_features={"words": td.io.RaggedFeature(bytes)}
    ... )
    >>> lists["words"].to_list()
    [[b'a', b'b'], [b'c']]
    """
    parts: list[bytes] = []
    if context:
        parts += delimited(1, *_map_of(context, _feature))
    if feature_lists:
        parts += delimited(2, *_map_of(feature_lists, _feature_list))
    return b"".join(parts)


def _map_of(values: Any, message: Any) -> Iterable[bytes]:
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise TypeError(f"a dict of names and values is needed, not {values!r}")
    for key, name in sorted((name.encode(), name) for name in values):
        try:
            entry = [*delimited(1, key), *delimited(2, *message(values[name]))]
        except SpecError as error:
            raise SpecError(f"feature {name!r}: {error}") from None
        yield from delimited(1, *entry)


def _feature_list(steps: Any) -> Iterable[bytes]:
    if isinstance(steps, (str, bytes)) or not isinstance(steps, (Sequence, np.ndarray)):
        raise SpecError(f"a value for each step is needed, not {_show(steps)}")
    for step in steps:
        yield from delimited(1, *_feature(step))


def _feature(value: Any) -> Iterable[bytes]:
    if isinstance(value, (bytes, str)):
        return delimited(1, *_bytes_list([value]))
    if isinstance(value, (list, tuple)) and any(isinstance(v, (bytes, str)) for v in value):
        return delimited(1, *_bytes_list(value))
    if isinstance(value, (list, tuple)) and not len(value):
        return ()
    array = _array_of(value)
    if array.dtype.kind == "O":
        return delimited(1, *_bytes_list(array.ravel().tolist()))
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            data = array.astype("<f4", order="C").tobytes()
        return delimited(2, *(delimited(1, data) if data else ()))
    if array.size and array.dtype.kind == "u" and int(array.max()) >= 1 << 63:
        raise SpecError(f"{int(array.max())} does not fit int64")
    data = _packed(array.astype(np.int64).ravel())
    return delimited(3, *(delimited(1, data) if data else ()))


def _array_of(value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise SpecError(f"{_show(value)} is ragged; a feature is one list of values") from None
    if array.dtype.kind in "SU":  # of numpy: without the zeros at the end, as everywhere in it
        return array.astype(object)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if array.dtype.kind not in "biufO" or (array.dtype.kind == "O" and _odd(array)):
        raise SpecError(f"{_show(value)} ({array.dtype}) is not of ints, floats, str or bytes")
    return array


def _odd(array: np.ndarray) -> bool:
    return not all(isinstance(v, (bytes, str)) for v in array.ravel().tolist())


def _bytes_list(values: Iterable[Any]) -> Iterable[bytes]:
    for value in values:
        if not isinstance(value, (bytes, str)):
            raise SpecError(f"{_show(value)} among str or bytes")
        yield from delimited(1, value.encode() if isinstance(value, str) else value)


def _packed(values: np.ndarray) -> bytes:
    """Return varints, concatenated."""
    if len(values) < 16:
        return b"".join(map(varint_bytes, values.tolist()))
    if values.min() >= 0 and values.max() < 0x80:
        return values.astype(np.uint8).tobytes()
    bits = values.view(np.uint64)
    groups = (bits[:, None] >> (7 * np.arange(10, dtype=np.uint64))) & np.uint64(0x7F)
    widths = np.maximum(10 - np.argmax(groups[:, ::-1] != 0, axis=1), 1)
    widths[bits == 0] = 1
    places = np.arange(10)
    data = groups.astype(np.uint8) | np.where(places < widths[:, None] - 1, 0x80, 0).astype(
        np.uint8
    )
    packed: bytes = data[places < widths[:, None]].tobytes()
    return packed


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:80]}..."
