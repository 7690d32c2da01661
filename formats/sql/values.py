"""Conversion of a database's values to numpy's, exact or with the problem of each row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.errors import SpecError
from tundish.normalising import normalise

Bad = dict[int, str]
"""Rows that have no value, and why."""

_PLAIN: dict[type, Any] = {
    int: np.int64,
    float: np.float64,
    bool: np.bool_,
    str: object,
    bytes: object,
}


@dataclass(frozen=True)
class Unreadable:
    """Stands for a value that the driver could not read, with its bytes and the reason."""

    raw: bytes
    problem: str


class _UnfitError(Exception):
    """A value is not of the requested type."""


def check_types(output_types: Any) -> tuple[str, ...] | str | None:
    """Check the argument `output_types` of `SqlDataset`; return names of dtypes.

    Raises
    ------
    TypeError
        It is not a dtype, and not a sequence of dtypes.
    ValueError
        It is empty.
    """
    if output_types is None:
        return None
    if isinstance(output_types, (tuple, list)):
        if not output_types:
            raise ValueError("output_types must have a dtype for each column, not none")
        return tuple([_type_name(each) for each in output_types])
    return _type_name(output_types)


def _type_name(dtype: Any) -> str:
    try:
        found = np.dtype(dtype) if dtype is not None else None
    except TypeError:
        found = None
    if found is None or found.kind not in "biufSUOMm":
        raise TypeError(
            "output_types must be numpy dtypes of numbers, bool, times, str, bytes or object, one for "
            f"each column, not {dtype!r}"
        )
    if found.kind in "mM" and np.datetime_data(found)[0] == "generic":
        raise TypeError(
            f"output_types has {found} without a unit: write {found}[us], or another unit"
        )
    return {"S": "bytes", "U": "str"}.get(found.kind) or str(found)


def as_given(values: Any) -> tuple[Any, Bad]:
    """Convert a column as the driver gives it: to an array if all values are of one plain type, else to a list."""
    if isinstance(values, np.ndarray):
        return values, {}
    kinds = set(map(type, values))
    dtype = _PLAIN.get(next(iter(kinds))) if len(kinds) == 1 else None
    if dtype is not None:
        try:
            return _array(values, dtype), {}
        except OverflowError:  # an int that does not fit 64 bits
            pass
    bad: Bad = {}
    found = []
    for row, value in enumerate(values):
        kept = bytes(value) if isinstance(value, (memoryview, bytearray)) else value
        try:
            found.append(normalise(kept))
        except SpecError as problem:
            bad[row] = str(problem)
            found.append(None)
        if isinstance(value, Unreadable):
            bad[row] = value.problem
    return found, bad


def converted(values: Any, dtype: str) -> tuple[Any, Bad]:
    """Convert a column to the requested dtype: to an array, or a list if its values are arrays.

    The values of bad rows are arbitrary.
    """
    found = _at_once(values, dtype)
    if found is not None:
        return found, {}
    bad: Bad = {}
    rows = []
    one = _CONVERTERS[_kind(dtype)]
    for row, value in enumerate(values):
        try:
            rows.append(_one(value, dtype, one))
        except _UnfitError as problem:
            bad[row] = str(problem)
            rows.append(None)
    if any(isinstance(value, np.ndarray) for value in rows):
        return rows, bad
    filler = np.zeros(1, _dtype(dtype))[0]
    return _array(
        [filler if row in bad else value for row, value in enumerate(rows)], _dtype(dtype)
    ), bad


def _at_once(values: Any, dtype: str) -> Any:
    """Convert a column whose values are all of the requested type; None if each has to be inspected."""
    kind, want = _kind(dtype), _dtype(dtype)
    if isinstance(values, np.ndarray):
        if values.dtype == want and want.kind != "O":
            return values
        if kind in {"f", "i"} and values.dtype.kind in "iu":
            found = values.astype(want)
            return found if kind == "f" or bool((found == values).all()) else None
        if kind == "b" and values.dtype.kind == "b":
            return values
        if kind not in {"str", "bytes"} or values.dtype.kind != "O":
            return None
    kinds = set(map(type, values))
    if kind == "i" and kinds == {int}:
        return _within(values, want)
    if kind == "b" and kinds == {bool}:
        return np.array(values, np.bool_)
    if (kind, kinds) in (("f", {float}), ("str", {str}), ("bytes", {bytes})):
        found = _array(values, np.float64 if kind == "f" else object)
        return found if want in (np.float64, object) else _narrowed(found, want)
    return None


def _within(values: Sequence[int], want: Any) -> np.ndarray | None:
    if want == np.uint64 and min(values) < 0:  # numpy 1 would wrap it
        return None
    try:
        found = np.array(values, np.uint64 if want == np.uint64 else np.int64)
    except OverflowError:
        return None
    bounds = np.iinfo(want)
    fit = not len(found) or (found.min() >= bounds.min and found.max() <= bounds.max)
    return found.astype(want) if fit else None


def _narrowed(values: np.ndarray, want: Any) -> np.ndarray | None:
    """Convert floats to a smaller dtype; None if one would become infinite."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0)
    return values.astype(want) if largest <= np.finfo(want).max else None


def _array(values: Any, dtype: Any) -> np.ndarray:
    if np.dtype(dtype).kind != "O":
        return np.array(values, dtype)
    found = np.empty(len(values), object)
    found[:] = values
    return found


# -- one value ---------------------------------------------------------------------------------------


def _one(value: Any, dtype: str, one: Callable[[Any, Any], Any]) -> Any:
    if isinstance(value, (list, np.ndarray)) and dtype != "object":
        return np.array([_one(item, dtype, one) for item in value], _dtype(dtype))
    if isinstance(value, Unreadable):
        if dtype == "bytes":
            return value.raw
        raise _UnfitError(value.problem)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        value = value.item()
    if value is None and dtype != "object" and _kind(dtype) not in {"f", "M"}:
        raise _UnfitError(
            f"is NULL, which {dtype} cannot hold: use coalesce(..., 0) or similar in the query"
        )
    try:
        return one(value, _dtype(dtype))
    except (ValueError, TypeError, OverflowError, ArithmeticError):
        shown = repr(value) if len(repr(value)) < 60 else f"{repr(value)[:60]}..."
        raise _UnfitError(f"is {shown} ({type(value).__name__}), which is not {dtype}") from None


def _int(value: Any, want: Any) -> Any:
    if isinstance(value, str):
        value = _number(value, int)
    number = int(value)
    bounds = np.iinfo(want)
    if number != value or not bounds.min <= number <= bounds.max:
        raise ValueError
    return want.type(number)


def _float(value: Any, want: Any) -> Any:
    if value is None:
        return want.type("nan")
    number = _number(value, float) if isinstance(value, str) else float(value)
    if np.isfinite(number) and abs(number) > float(np.finfo(want).max):
        raise OverflowError
    return want.type(number)


def _bool(value: Any, _want: Any) -> Any:
    number = _number(value, float) if isinstance(value, str) else float(value)
    return np.bool_(number != 0)


def _str(value: Any, _want: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode()
    return value if isinstance(value, str) else str(value)


def _bytes(value: Any, _want: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return str(value).encode()


def _time(value: Any, want: Any) -> Any:
    if value is None:
        return want.type("NaT")
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, str) and value.strip().lower() in {"now", "today"}:
        raise ValueError  # words that numpy reads as the present time
    made = want.type(value, np.datetime_data(want)[0])
    whole = made if isinstance(value, int) else want.type(value)
    made = made.astype(want)
    if not np.isnat(made) and made.astype(whole.dtype) != whole:
        raise ValueError
    return made


def _number(text: str, kind: type) -> Any:
    if "_" in text:  # which Python's ints may have, and no database's
        raise ValueError
    return kind(text)


def _as_it_is(value: Any, _want: Any) -> Any:
    return normalise(value)


def _kind(dtype: str) -> str:
    if dtype in {"str", "bytes", "object"}:
        return dtype
    return {"u": "i", "m": "M"}.get(np.dtype(dtype).kind, np.dtype(dtype).kind)


def _dtype(dtype: str) -> np.dtype:
    return np.dtype(object if dtype in {"str", "bytes"} else dtype)


_CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
    "i": _int,
    "f": _float,
    "b": _bool,
    "M": _time,
    "str": _str,
    "bytes": _bytes,
    "object": _as_it_is,
}
