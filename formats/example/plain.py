"""A simple parser of one serialized example, which defines what is correct."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tundish.errors import SpecError
from tundish.formats.example.features import name_of
from tundish.formats.example.partitions import WantedList  # noqa: TC001 - so that signatures can be resolved
from tundish.formats.example.wire import MalformedError, fields, varint

# A feature that was pickled for a worker has dtypes that are equal to these, but not the same objects.
FLOAT, INT64 = np.dtype(np.float32), np.dtype(np.int64)
KIND_OF: dict[int, Any] = {0x0A: bytes, 0x12: FLOAT, 0x1A: INT64}
FIELD_OF = {kind: tag for tag, kind in KIND_OF.items()}
"""The tag of the list of each kind within a Feature."""

_FIELD_1, _FIELD_2 = 0x0A, 0x12  # of bytes or a message
_LITTLE_FLOAT = np.dtype("<f4")


def find(data: bytes, wanted: Sequence[WantedList]) -> list[np.ndarray | None]:
    """Return the values of the wanted features of an Example; None for a missing one.

    Raises
    ------
    MalformedError
        It is not an Example.
    SpecError
        A feature is of another kind.
    """
    found: dict[bytes, list[tuple[int, int]]] = {}
    for tag, at, stop in fields(data, 0, len(data)):
        if tag == _FIELD_1:
            for key, begin, end in entries(data, at, stop):
                found.setdefault(key, []).append((begin, end))
    values: list[np.ndarray | None] = []
    for key, kind, dense in wanted:
        places = found.get(key)
        if places and dense:  # the last one with a value
            places = [place for place in places if place[0] < place[1]]
        values.append(feature_values(data, *places[-1], kind, key) if places else None)
    return values


def entries(data: bytes, at: int, stop: int) -> list[tuple[bytes, int, int]]:
    """Return the entries of a map of messages: (key, start, end of the message)."""
    found = []
    for tag, begin, end in fields(data, at, stop):
        if tag != _FIELD_1:
            raise MalformedError(f"tag {tag} where an entry of a map (10) should be", begin)
        key, place, count = b"", (end, end), 0
        for part, first, last in fields(data, begin, end):
            count += 1
            if part == _FIELD_1:
                key = data[first:last]
            elif part == _FIELD_2:
                place = (first, last)
            else:
                raise MalformedError(f"tag {part} in an entry of a map, not 10 or 18", first)
        if count != 2:
            raise MalformedError(f"an entry of a map with {count} fields, not 2", begin)
        found.append((key, *place))
    return found


def feature_values(data: bytes, at: int, stop: int, kind: Any, key: bytes) -> np.ndarray | None:
    """Return the values of a Feature; None for an empty one."""
    found: tuple[Any, int, int] | None = None
    for tag, begin, end in fields(data, at, stop):
        if tag in KIND_OF:
            if found:
                raise MalformedError("a second list in one feature", begin)
            found = (KIND_OF[tag], begin, end)
        elif not found:
            raise MalformedError(f"tag {tag} in a feature, not that of a list", begin)
    if found is None:
        return None
    if found[0] != kind:
        name = key.decode(errors="replace")
        raise SpecError(f"feature {name!r} is of {name_of(found[0])}, not of {name_of(kind)}")
    return values_of(data, found[1], found[2], kind)


def values_of(data: bytes, at: int, stop: int, kind: Any) -> np.ndarray:
    """Return the values of a BytesList, a FloatList or an Int64List."""
    if kind is bytes:
        return bytes_of(data, at, stop)
    if at == stop:
        return np.empty(0, kind)
    if data[at] == _FIELD_1:  # packed, as everybody writes it
        size, begin = varint(data, at + 1, stop)
        if size != stop - begin:
            raise MalformedError(
                f"packed values of {size:,} bytes in a list that has {stop - begin:,} left", at
            )
        return floats_of(data, begin, stop) if kind == FLOAT else int64s_of(data, begin, stop)
    values = []
    for tag, begin, end in fields(data, at, stop):
        if tag != (0x0D if kind == FLOAT else 0x08):
            raise MalformedError(f"tag {tag} in a list of {name_of(kind)}", begin)
        values.append(data[begin:end])
    together = b"".join(values)
    return (floats_of if kind == FLOAT else int64s_of)(together, 0, len(together))


def bytes_of(data: bytes, at: int, stop: int) -> np.ndarray:
    """Return the values of a BytesList."""
    values = []
    for tag, begin, end in fields(data, at, stop):
        if tag != _FIELD_1:
            raise MalformedError(f"tag {tag} in a list of bytes, not 10", begin)
        values.append(data[begin:end])
    array = np.empty(len(values), object)
    array[:] = values
    return array


def floats_of(data: bytes, at: int, stop: int) -> np.ndarray:
    """Return packed float32 values."""
    if (stop - at) % 4:
        raise MalformedError(f"packed float32 of {stop - at} bytes, which 4 does not divide", at)
    return np.frombuffer(data, _LITTLE_FLOAT, (stop - at) // 4, at).astype(FLOAT)


def int64s_of(data: bytes, at: int, stop: int) -> np.ndarray:
    """Return packed int64 values."""
    values = []
    while at < stop:
        value = data[at]
        if value < 0x80:
            at += 1
        else:
            value, at = varint(data, at, stop)
        values.append(value)
    return np.array(values, np.uint64).view(INT64)
