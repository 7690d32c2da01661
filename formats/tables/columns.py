"""Conversion of Arrow arrays to numpy arrays.

==========================================  =======================================================
Arrow                                       a row's value
==========================================  =======================================================
ints, floats, float16, bool                 numpy scalar of that dtype (ints, floats: no copy)
string, large_string, string_view           str
binary, large_binary, fixed_size_binary     bytes
date32, date64                              datetime64[D], datetime64[ms]
timestamp                                   datetime64 of its unit; with a time zone: the UTC instant
time32, time64, duration                    timedelta64 of its unit
list of one of these                        array, (k,)
list of lists                               array, if the inner ones are of one length
fixed_size_list                             array of its shape (of ints, floats: no copy)
struct                                      dict
dictionary, run_end_encoded                 as the type of its values
fixed_shape_tensor                          array of its shape
other extension types                       as their storage type
decimal, map, union, interval, list of      none: a SpecError that names the column
structs
==========================================  =======================================================

A null becomes NaN in a column of floats, and NaT in a column of times. In any other column it makes its row fail,
unless the column has a default; a default replaces nulls of floats and times as well. The same
holds for the items of a list, except that they have no defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tundish.errors import SpecError
from tundish.formats.tables import views
from tundish.formats.tables.casting import cast_whole
from tundish.normalising import normalise

Bad = dict[int, str]
"""Rows that have no value, and why."""


def to_numpy(array: Any, name: str, defaults: Mapping[str, Any], bad: Bad) -> Any:
    """Convert a column.

    Parameters
    ----------
    array : pyarrow.Array
        A valid array, of a type that `check_type` accepts.
    name : str
        The column's name, for messages, and to find its default.
    defaults : mapping
        The values in place of nulls, by the column's name; a struct's fields are ``"column.field"``.
    bad : dict of int to str
        Receives the rows without a value, with the problem.

    Returns
    -------
    nest of (n, ...) arrays
        Read-only arrays; dicts for structs. The values of rows without a value are arbitrary.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _extension(array, name, defaults, bad)
    if pa.types.is_struct(kind):
        fields = zip(kind, array.flatten(), strict=True)
        return {f.name: to_numpy(x, f"{name}.{f.name}", defaults, bad) for f, x in fields}
    if pa.types.is_run_end_encoded(kind):
        array = pc.run_end_decode(array)
    elif pa.types.is_dictionary(kind) and (
        array.dictionary.null_count or not len(array.dictionary) or not _is_text(kind.value_type)
    ):
        array = array.dictionary_decode()
    values = _values(array, name, bad)
    if array.null_count:
        values = _without_nulls(values, array, name, defaults, bad)
    values.flags.writeable = False
    return values


def check_type(kind: Any, name: str) -> None:
    """Check that a type can be converted to numpy arrays.

    Raises
    ------
    SpecError
        It cannot; the message has the column's name, and what to do.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        check_type(kind.storage_type, name)
    elif types.is_struct(kind):
        for field in kind:
            check_type(field.type, f"{name}.{field.name}")
    elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        check_type(kind.value_type, name)
    elif _is_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
        if types.is_struct(inner):
            raise _unfit(name, kind, "")
        check_type(inner, name)
    elif types.is_decimal(kind):
        raise _unfit(name, kind, f"schema={{{name!r}: 'float64'}} converts it to floats, or ")
    elif types.is_map(kind) or types.is_union(kind) or types.is_interval(kind):
        raise _unfit(name, kind, "")


def _unfit(name: str, kind: Any, remedy: str) -> SpecError:
    return SpecError(
        f"column {name!r} is of Arrow's type {kind}, which numpy lacks; {remedy}"
        "exclude it with columns=[...]"
    )


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or views.is_list_view(kind)
        or views.is_large_list_view(kind)
    )


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or views.is_string_view(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or views.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _extension(array: Any, name: str, defaults: Mapping[str, Any], bad: Bad) -> Any:
    kind = array.type
    values = to_numpy(array.storage, name, defaults, bad)
    if isinstance(kind, pa.FixedShapeTensorType):
        shape, order = list(kind.shape), kind.permutation
        values = values.reshape(len(array), *shape)
        if order is not None:
            values = values.transpose(0, *(1 + axis for axis in order))
    return values


# -- values, with anything in the places of nulls ---------------------------------------------------


def _values(array: Any, name: str, bad: Bad) -> np.ndarray:
    kind = array.type
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind):
        return np.asarray(_unmasked(array).to_numpy(zero_copy_only=True))
    if types.is_boolean(kind):
        return np.asarray(_unmasked(array).to_numpy(zero_copy_only=False))
    if types.is_temporal(kind):
        return _times(array)
    if types.is_dictionary(kind):
        words = _values(array.dictionary, name, bad)
        return np.asarray(words[array.indices.fill_null(0).to_numpy(zero_copy_only=False)])
    if types.is_fixed_size_list(kind):
        return _fixed(array, name, bad)
    if _is_list(kind):
        return _lists(array, name, bad)
    if types.is_null(kind):
        return np.full(len(array), None)
    return _texts(array, name, bad)


def _unmasked(array: Any) -> Any:
    """Return the values of an array without nulls."""
    if not array.null_count:
        return array
    buffers = [None, *array.buffers()[1:]]
    return pa.Array.from_buffers(array.type, len(array), buffers, 0, array.offset)


def _times(array: Any) -> np.ndarray:
    kind = array.type
    if kind.bit_width == 32:
        numbers = _unmasked(array.view(pa.int32())).to_numpy().astype(np.int64)
    else:
        numbers = _unmasked(array.view(pa.int64())).to_numpy()
    if pa.types.is_date(kind):
        return np.asarray(numbers.view("M8[D]" if kind.bit_width == 32 else "M8[ms]"))
    return np.asarray(numbers.view(f"{'M8' if pa.types.is_timestamp(kind) else 'm8'}[{kind.unit}]"))


def _texts(array: Any, name: str, bad: Bad) -> np.ndarray:
    """Return strings as objects, None for a null."""
    kind = array.type
    if views.is_string_view(kind) or views.is_binary_view(kind):
        array = array.cast(pa.large_string() if views.is_string_view(kind) else pa.large_binary())
    try:
        return np.asarray(array.to_numpy(zero_copy_only=False), object)
    except (UnicodeDecodeError, pa.ArrowException):
        pass
    raw = array.view(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
    values = np.asarray(raw.to_numpy(zero_copy_only=False), object)
    for k, value in enumerate(values):
        if value is not None:
            try:
                values[k] = value.decode()
            except UnicodeDecodeError as problem:
                bad.setdefault(
                    k, f"column {name!r} is not UTF-8: {problem.reason} at {problem.start}"
                )
    return values


def _fixed(array: Any, name: str, bad: Bad) -> np.ndarray:
    width, count = array.type.list_size, len(array)
    items = array.values.slice(array.offset * width, count * width)
    flat = _items(items, name, _Rows(array, lambda k: k // width if width else 0), bad)
    return flat.reshape(count, width, *flat.shape[1:])


def _lists(array: Any, name: str, bad: Bad) -> np.ndarray:
    kind = array.type
    if views.is_list_view(kind) or views.is_large_list_view(kind):
        array = pa.array(array.to_pylist(), pa.large_list(kind.value_type))
    values = np.empty(len(array), object)
    if not len(array):
        return values
    bounds = array.offsets.to_numpy()
    items = array.values.slice(bounds[0], bounds[-1] - bounds[0])
    bounds = bounds - bounds[0]
    rows = _Rows(array, lambda k: int(np.searchsorted(bounds, k, "right")) - 1)
    flat = _items(items, name, rows, bad)
    deep = flat.dtype == object and not _is_text(_innermost(items.type))
    ends = bounds.tolist()
    for k in range(len(array)):
        row = flat[ends[k] : ends[k + 1]]
        values[k] = _stacked(row, items.type, name, k, bad) if deep else row
    return values


def _items(items: Any, name: str, rows: _Rows, bad: Bad) -> np.ndarray:
    """Convert the items of lists; a problem of an item is its row's."""
    wrong: Bad = {}
    flat = np.asarray(to_numpy(items, name, {}, wrong))
    for k, problem in wrong.items():
        row = rows.of(k)
        if row is not None:
            bad.setdefault(row, f"an item of {problem}")
    return flat


class _Rows:
    """The rows of lists' items; None for the items of a null list."""

    def __init__(self, array: Any, number: Callable[[int], int]) -> None:
        self._null = np.asarray(array.is_null()) if array.null_count else None
        self._number = number

    def of(self, item: int) -> int | None:
        row = self._number(item)
        return None if self._null is not None and self._null[row] else row


def _innermost(kind: Any) -> Any:
    while _is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind


def _stacked(row: np.ndarray, kind: Any, name: str, k: int, bad: Bad) -> np.ndarray:
    """Convert a list of lists to one array."""
    if not len(row):
        inner = to_numpy(pa.array([], _innermost(kind)), name, {}, {})
        return np.empty((0,) * (1 + _depth(kind)), inner.dtype)
    if any(each is None or each.shape != row[0].shape for each in row):
        bad.setdefault(k, f"column {name!r} has lists of several lengths in one row")
        return row
    return np.stack(row.tolist())


def _depth(kind: Any) -> int:
    listed = _is_list(kind) or pa.types.is_fixed_size_list(kind)
    return 1 + _depth(kind.value_type) if listed else 0


# -- nulls ------------------------------------------------------------------------------------------


def _without_nulls(
    values: np.ndarray, array: Any, name: str, defaults: Mapping[str, Any], bad: Bad
) -> np.ndarray:
    null = np.asarray(array.is_null())
    if name in defaults:
        default = default_of(array.type, name, defaults[name])
        if pa.types.is_null(array.type):
            return np.repeat(default, len(array), axis=0)
        values = values if values.flags.writeable else values.copy()
        for k in np.flatnonzero(null).tolist() if values.dtype == object else ():
            values[k] = default[0]  # which may be an array
        if values.dtype != object:
            values[null] = default[0]
        return values
    if values.ndim == 1 and values.dtype.kind in "fmM":
        values = values if values.flags.writeable else values.copy()
        values[null] = np.nan if values.dtype.kind == "f" else "NaT"
        return values
    note_nulls(array, name, bad)
    return values


class Null(str):
    """The problem of a row with nulls; it names all columns that need a default.

    Parameters
    ----------
    kinds : dict of str to pyarrow.DataType
        The columns that are null in this row.
    others : dict of str to pyarrow.DataType
        The columns that are null in other rows.
    """

    __slots__ = ("kinds",)
    kinds: dict[str, Any]

    def __new__(cls, kinds: dict[str, Any], others: Mapping[str, Any] = {}) -> Self:
        others = {name: kind for name, kind in others.items() if name not in kinds}
        one = len(kinds) == 1
        defaults = ", ".join(f"{name!r}: ..." for name in (*kinds, *others))
        text = f"column{'s' * (not one)} {_named(kinds)} {'is' if one else 'are'} null"
        if others:
            text += f", {_named(others)} in other rows"
        them = "it" if one and not others else "them"
        made = super().__new__(cls, f"{text}; defaults={{{defaults}}} sets a value for {them}")
        made.kinds = kinds
        return made


def _named(kinds: Mapping[str, Any]) -> str:
    return ", ".join(f"{name!r} ({kind})" for name, kind in kinds.items())


def note_nulls(array: Any, name: str, bad: Bad) -> None:
    """Add the rows in which a column has a forbidden null to those of other columns."""
    if not array.null_count:
        return
    for k in np.flatnonzero(array.is_null()).tolist():
        found = bad.get(k)
        if found is None:
            bad[k] = Null({name: array.type})
        elif isinstance(found, Null):
            bad[k] = Null({**found.kinds, name: array.type})


def default_of(kind: Any, name: str, default: Any) -> np.ndarray:
    """Return the default of a column as a column of one row.

    Raises
    ------
    SpecError
        It is not a value of the column's type.
    """
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    wrong: Bad = {}
    try:
        value = normalise(default)
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind not in "mM":
            value = value.tolist()
        if isinstance(value, (int, float, list)) and not pa.types.is_null(kind):
            array = cast_whole(pa.array([value]), kind)  # pa.array(..., kind) cuts off fractions
        else:
            array = pa.array([value], None if pa.types.is_null(kind) else kind)
        made = to_numpy(array, name, {}, wrong)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise SpecError(f"defaults[{name!r}] = {default!r} is not a {kind}: {problem}") from None
    if wrong or default is None:
        raise SpecError(f"defaults[{name!r}] = {default!r} is not a {kind}")
    return np.asarray(made)
