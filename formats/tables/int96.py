"""Times in 96 bits, which Spark and Impala write to Parquet files.

They are of any year, and pyarrow makes them nanoseconds of 64 bits, which are of the years 1677 to 2262: another year,
such as the 9999 that stands for never, wraps around. In microseconds all of them fit, but then nanoseconds are cut
off. Which of the two a row needs shows only when both are there, since such files have no statistics of these times:
their columns are decoded twice, and all of a struct that is read as one column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tundish.formats.tables.casting import cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.formats.tables.columns import Bad


def int96_paths(schema: Any) -> list[str]:
    """Return the paths of the columns of such times, ``"a.b"`` for the field b of the struct a.

    Parameters
    ----------
    schema : pyarrow.parquet.ParquetSchema
        The file's schema.
    """
    columns = [schema.column(k) for k in range(len(schema))]
    return [column.path for column in columns if column.physical_type == "INT96"]


def wrapped(ns: np.ndarray, us: np.ndarray) -> np.ndarray:
    """Return True where nanoseconds have wrapped around."""
    found: np.ndarray = ns // 1000 != us
    return found


def _cut(ns: np.ndarray, us: np.ndarray) -> np.ndarray:
    """Return True where microseconds lack digits."""
    found: np.ndarray = (ns % 1000 > 0) & (ns // 1000 == us)
    return found


def rows_where(
    test: Callable[[np.ndarray, np.ndarray], np.ndarray], near: Any, far: Any
) -> np.ndarray:
    """Return the rows in which a time passes a test, as a mask.

    Parameters
    ----------
    test : callable
        Gets the nanoseconds and the microseconds since 1970.
    near, far : pyarrow.Array
        A column with times in nanoseconds, and in microseconds; also lists and structs.
    """
    found = np.zeros(len(near), bool)
    if near.type == far.type:
        return found
    if pa.types.is_timestamp(near.type):
        return test(*[x.cast(pa.int64()).fill_null(0).to_numpy() for x in (near, far)])
    if pa.types.is_struct(near.type):
        fields = zip(near.flatten(), far.flatten(), strict=True)
        for pair in fields:
            found |= rows_where(test, *pair)
        return found
    rows = np.repeat(np.arange(len(near)), pc.list_value_length(near).fill_null(0))
    found[rows[rows_where(test, near.flatten(), far.flatten())]] = True
    return found


def cast_row_by_row(near: Any, far: Any, kind: Any, name: str, bad: Bad) -> Any:
    """Cast a column to a type, from microseconds in the rows in which nanoseconds have wrapped around.

    Parameters
    ----------
    near, far : pyarrow.Array
        The column with times in nanoseconds, and in microseconds.
    kind, name, bad
        As `cast` has them.
    """
    if near.type == far.type:
        return cast(near, kind, name, bad)
    if pa.types.is_struct(near.type) and pa.types.is_struct(kind):  # a field may need the other one
        fields = zip(near.type.names, near.flatten(), far.flatten(), strict=True)
        there = {field: pair for field, *pair in fields}
        columns = []
        for field in kind:
            ns, us = there.get(field.name, [pa.nulls(len(near), field.type)] * 2)
            columns.append(cast_row_by_row(ns, us, field.type, f"{name}.{field.name}", bad))
        names = [field.name for field in kind]
        return pa.StructArray.from_arrays(columns, names, mask=near.is_null())
    mask = rows_where(wrapped, near, far)
    parts = [pc.if_else(pa.array(~mask), near, None), pc.if_else(pa.array(mask), far, None)]
    made = pa.concat_arrays([cast(part, kind, name, bad) for part in parts])
    for k in np.flatnonzero(mask & rows_where(_cut, near, far)).tolist():
        bad.setdefault(k, f"column {name!r} has nanoseconds beside a year that they cannot have")
    return made.take(pa.array(np.arange(len(near)) + len(near) * mask))
