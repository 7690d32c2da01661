"""Conversion of rows of Python values to Arrow tables, to write files that the table readers read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tundish.errors import SpecError
from tundish.normalising import normalise

_TEXTS, _BYTES = pa.large_list(pa.large_string()), pa.large_list(pa.large_binary())
_EMPTY = pa.large_list(pa.null())
"""The type of an empty array of objects, which may be of texts or of bytes."""


def table_of(elements: Sequence[Any], first: int, schema: Any = None) -> Any:
    """Return elements as a table.

    Parameters
    ----------
    elements : sequence of dict
        At least one; values are numbers, texts, times, arrays, or dicts of such.
    first : int
        The number of the first, for messages.
    schema : pyarrow.Schema, optional
        The types of the rows that were written before. None: the types of these elements.

    Raises
    ------
    SpecError
        An element is not a dict, has other keys or types than the first one, or a value that no column can hold.
    """
    rows = [_row(normalise(element), first + k) for k, element in enumerate(elements)]
    names = list(rows[0]) if schema is None else schema.names
    for k, row in enumerate(rows):
        if row.keys() != set(names):
            raise SpecError(
                f"element {first + k} has the keys {sorted(row)}, and those before it {sorted(names)}: "
                "rows of a table have the same columns"
            )
    columns = [
        _column([row[name] for row in rows], name, first, schema and schema.field(name).type)
        for name in names
    ]
    return pa.table(dict(zip(names, columns, strict=True)))


def _row(element: Any, number: int) -> dict[str, Any]:
    if not isinstance(element, dict) or not element:
        what = type(element).__name__
        raise SpecError(
            f"element {number} is a {what}, and a row is a dict of columns: map(lambda x: {{'x': x}}) makes one"
        )
    for name in element:
        if not isinstance(name, str):
            raise SpecError(f"element {number} has the key {name!r}; names of columns are str")
    return element


def _column(values: list[Any], name: str, first: int, kind: Any) -> Any:
    if all(isinstance(value, dict) for value in values):
        return _struct(values, first, kind)
    found = [_type_of(value, name, first + k) for k, value in enumerate(values)]
    kind = kind or next((each for each in found if each != _EMPTY), _TEXTS)
    for k, each in enumerate(found):
        if each != kind and not (each == _EMPTY and kind in (_TEXTS, _BYTES)):
            raise SpecError(
                f"column {name!r} is {each} in element {first + k}, and {kind} before it: "
                "map to one dtype, and to one shape where arrays have several dimensions"
            )
    if isinstance(kind, pa.FixedShapeTensorType):
        width = int(np.prod(kind.shape))
        flat = pa.array(np.stack(values).ravel())
        return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(flat, width))
    if isinstance(values[0], np.ndarray) and values[0].dtype.kind != "O":
        ends = np.cumsum([0, *map(len, values)])
        flat = pa.array(np.concatenate(values), kind.value_type)
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), flat)
    if isinstance(values[0], np.generic):
        return pa.array(np.array(values), kind)
    return pa.array([x.tolist() if isinstance(x, np.ndarray) else x for x in values], kind)


def _struct(values: list[Any], first: int, kind: Any) -> Any:
    fields = None if kind is None else pa.schema(list(kind))
    table = table_of(values, first, fields).combine_chunks()
    arrays = [column.chunk(0) for column in table.columns]
    return pa.StructArray.from_arrays(arrays, names=table.schema.names)


def _type_of(value: Any, name: str, number: int) -> Any:
    """Return the Arrow type of a value.

    Raises
    ------
    SpecError
        There is none that the readers of tables would give back as it is.
    """
    if isinstance(value, str):
        return pa.large_string()
    if isinstance(value, bytes):
        return pa.large_binary()
    if isinstance(value, (np.generic, np.ndarray)):
        kind = _type_of_dtype(value)
        if kind is not None:
            shape = np.shape(value)
            if len(shape) < 2:
                return pa.large_list(kind) if shape else kind
            if value.dtype.kind in "iuf" and value.size:
                return pa.fixed_shape_tensor(kind, shape)
    what = f"{value.dtype} of shape {np.shape(value)}" if hasattr(value, "dtype") else repr(value)
    raise SpecError(
        f"column {name!r} of element {number} is {what}, which a table cannot hold; map it to numbers, text, bytes, "
        "times, or arrays of numbers, or use save, which writes any element"
    )


def _type_of_dtype(value: Any) -> Any:
    dtype = value.dtype
    if dtype.kind == "O":
        kinds = set(map(type, value.tolist())) if value.ndim == 1 else {object}
        if not kinds:
            return pa.null()
        if kinds == {str}:
            return pa.large_string()
        return pa.large_binary() if kinds == {bytes} else None
    if dtype.kind in "mM":
        unit = np.datetime_data(dtype)[0]
        if unit == "D" and dtype.kind == "M":
            return pa.date32()
        plain = unit in ("s", "ms", "us", "ns") and np.datetime_data(dtype)[1] == 1
        made = pa.timestamp if dtype.kind == "M" else pa.duration
        return made(unit) if plain and dtype.isnative else None
    return (
        pa.from_numpy_dtype(dtype)
        if dtype.kind in "iufb" and dtype.isnative and dtype.itemsize <= 8
        else None
    )
