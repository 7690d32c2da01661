"""Serialized ``tf.train.Example`` and ``SequenceExample`` of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tundish.errors import SpecError
from tundish.formats.example.wire import delimited, varint_bytes


def encode_example(values: Mapping[str, Any]) -> bytes:
    r"""Make a serialized ``tf.train.Example`` of values.

    Parameters
    ----------
    values : dict
        By name: numbers, str, bytes, arrays or lists of them. Ints and bools become int64, floats
        float32 (an Example has no other), str and bytes become bytes. An array is written flat, in C
        order: its shape is what `parse_example` is told. An empty list has no kind: a feature of a fixed
        length finds it missing, the others find no values.

    Returns
    -------
    bytes
        Names in their order and numbers packed, so that equal values are equal bytes.

    Raises
    ------
    SpecError
        A value is of no kind that an Example has, or does not fit int64.
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
    """Make a serialized ``tf.train.SequenceExample`` of values.

    Parameters
    ----------
    context : dict, optional
        What belongs to the whole, as `encode_example` takes it.
    feature_lists : dict, optional
        What belongs to the steps: by name, a sequence with a value for each step, again as
        `encode_example` takes it.

    Returns
    -------
    bytes
        In the same order as `encode_example`.

    Raises
    ------
    SpecError, TypeError
        As `encode_example`.

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
