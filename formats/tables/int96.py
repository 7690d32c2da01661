"""Times in 96 bits, which Spark and Impala write to Parquet files.

They are of any year, and pyarrow makes them nanoseconds of 64 bits, which are of the years 1677 to 2262: another year,
such as the 9999 that stands for never, wraps around. In microseconds all of them fit. Spark writes no more digits; where
a file has nanoseconds and such years side by side, in one piece of a row group, those nanoseconds are cut off.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def int96_paths(schema: Any) -> list[str]:
    """Return the paths of the columns of such times, ``"a.b"`` for the field b of the struct a.

    Parameters
    ----------
    schema : pyarrow.parquet.ParquetSchema
        The file's schema.
    """
    columns = [schema.column(k) for k in range(len(schema))]
    return [column.path for column in columns if column.physical_type == "INT96"]


def unwrapped(rows: Any, wide: Any) -> Any:
    """Return rows with times in microseconds in each column in which nanoseconds have wrapped around.

    Parameters
    ----------
    rows : pyarrow.RecordBatch
        Rows with the times in nanoseconds.
    wide : pyarrow.RecordBatch
        The columns of the same rows that have such times, in microseconds.
    """
    for name in wide.schema.names:
        column, at = wide.column(name), rows.schema.get_field_index(name)
        if not _fits(column, rows.column(at).type):
            rows = rows.set_column(at, name, column)
    return rows


def _fits(column: Any, kind: Any) -> bool:
    try:
        column.cast(kind, safe=True)
    except pa.ArrowInvalid:
        return False
    return True
