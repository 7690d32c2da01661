"""Descriptions of values that hold no others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from tundish.snapshot.fingerprint.digests import digest_of
from tundish.snapshot.fingerprint.keys import JSON, text_of

_LONG = 256
_MANY = 64
_SIMPLE = {int, str, bool, bytes, type(None)}


def shortened(kind: str, items: list[JSON]) -> JSON:
    """A container's description; of many items, their number and a digest."""
    if len(items) > _MANY:
        return {kind: len(items), "digest": digest_of(text_of(items))}
    return items if kind == "list" else {kind: items}


def many_atoms(kind: str, values: list[Any] | tuple[Any, ...]) -> JSON:
    """The same at the speed of ``repr``, where all are plain; None for others, and for a few."""
    if len(values) <= _MANY or not set(map(type, values)) <= _SIMPLE:
        return None
    return {kind: len(values), "digest": digest_of(repr(list(values)))}


def dtype_text(dtype: np.dtype) -> str:
    """A dtype with all that changes bytes: byte order, and the places of fields."""
    if dtype.names is not None and dtype.fields is not None:
        fields = [f"{name}: {_field_text(*dtype.fields[name][:2])}" for name in dtype.names]
        return f"{{{', '.join(fields)}; {dtype.itemsize}}}"
    if dtype.subdtype is not None:
        return f"{dtype_text(dtype.subdtype[0])} {list(dtype.subdtype[1])}"
    return f"{dtype.name} big-endian" if dtype.byteorder == ">" else dtype.name


def _field_text(dtype: np.dtype, offset: int) -> str:
    return f"{dtype_text(dtype)} at {offset}"


def _string(value: str) -> JSON:
    if len(value) <= _LONG:
        return value
    return {"text": len(value), "digest": digest_of(value)}


def _bytes(value: bytes | bytearray) -> JSON:
    kind = type(value).__name__
    if len(value) <= _MANY:
        return {kind: value.hex()}
    return {kind: len(value), "digest": digest_of(bytes(value))}


def _float(value: float) -> JSON:
    if np.isfinite(value):
        return value
    return {"float": struct.pack(">d", value).hex() if value != value else str(value)}  # noqa: PLR0124 - a NaN, whose bits count


def _itself(value: Any) -> JSON:
    return value


ATOMS: dict[type, Callable[[Any], JSON]] = {
    type(None): _itself,
    bool: _itself,
    int: _itself,
    float: _float,
    str: _string,
    bytes: _bytes,
    bytearray: _bytes,
    complex: lambda value: {"complex": [_float(value.real), _float(value.imag)]},
    type(...): lambda _: {"constant": "..."},
    type(NotImplemented): lambda _: {"constant": "NotImplemented"},
    range: lambda value: {"range": [value.start, value.stop, value.step]},
}
