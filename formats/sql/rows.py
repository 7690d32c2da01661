"""The format of a database query: its records are the result's rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tundish.errors import RecordCorruptError
from tundish.formats.format import RUN_BYTES, ColumnRun, Format, RecordReader, RecordRun, Run
from tundish.formats.sql.source import Connect, DataSource, query_result
from tundish.formats.sql.values import Bad, as_given, converted
from tundish.spec import ArraySpec

_FEWEST, _MOST = 64, 1 << 15  # rows that are fetched at once


@dataclass(frozen=True)
class SqlFormat(Format):
    """The rows of a query. Its "file" is the data source's public name; a place is a row's number.

    A result cannot be entered in the middle: to continue, the query is run again and rows are skipped.

    Parameters
    ----------
    driver : str or callable
        "sqlite", "duckdb", "postgresql"; or a function that makes a connection from the source's name.
    source : DataSource
        The database.
    query : str
        The query, in the database's own language.
    output_types : tuple of str, or str, optional
        The dtypes of the columns; a single one, not in a tuple, gives bare values as records. None: the
        driver's types.
    """

    driver: str | Connect = "sqlite"
    source: DataSource = field(default_factory=DataSource)
    query: str = ""
    output_types: tuple[str, ...] | str | None = None

    name: ClassVar[str] = "SqlDataset"
    unit: ClassVar[str] = "row"
    seekable = False
    tuning: ClassVar[frozenset[str]] = frozenset({"source"})  # the path names it

    @property
    def spec(self) -> Any:
        types = self.output_types
        if types is None:
            return None
        return _leaf_spec(types) if isinstance(types, str) else tuple(map(_leaf_spec, types))

    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> RecordReader:
        return _SqlReader(self, path, place)


def _leaf_spec(dtype: str) -> ArraySpec:
    return ArraySpec((), {"str": str, "bytes": bytes}.get(dtype, dtype))


class _SqlReader(RecordReader):
    """Reads the rows in sequence, and keeps those that were fetched together."""

    def __init__(self, form: SqlFormat, path: str, place: int) -> None:
        self.path, self.place = path, place
        self._form = form
        self._result = query_result(form.driver, form.source, form.query)
        self.identity = self._result.identity
        self._count = _FEWEST
        self._held: list[Any] = [[]]  # columns, of which rows before `_at` have been given
        self._bad: Bad = {}
        self._at = 0
        self._late: Exception | None = None
        try:
            self._check_width()
            self._result.skip(place)
        except BaseException as problem:
            self.close()
            form.source.hide(problem)
            raise

    def read(self, most: int) -> Run:
        if self._at == len(self._held[0]):
            self._fetch()
        first, have = self._at, len(self._held[0])
        if first in self._bad:
            self._at += 1
            self.place += 1
            raise RecordCorruptError(self.path, self.place - 1, self._bad[first], self._form.unit)
        stop = min(first + most, have, *(row for row in self._bad if row > first))
        places = range(self.place, self.place + stop - first)
        self._at, self.place = stop, places.stop
        columns = [column[first:stop] for column in self._held]
        alone = isinstance(self._form.output_types, str)
        if all(isinstance(column, np.ndarray) for column in columns):
            return ColumnRun(places, places.stop, columns[0] if alone else tuple(columns))
        return RecordRun(
            places, places.stop, columns[0] if alone else list(zip(*columns, strict=True))
        )

    def _fetch(self) -> None:
        """Fetch the next rows, about `RUN_BYTES` of them."""
        if self._late is not None:
            raise self._late
        try:
            columns = self._result.fetch(self._count)
        except Exception as problem:
            self._form.source.hide(problem)
            self._late = problem
            raise
        size = sum(_bytes_of(column) for column in columns)
        if len(columns[0]):
            self._count = max(1, min(4 * self._count, _MOST, self._count * RUN_BYTES // (size + 1)))
        types = self._form.output_types
        kinds = [types] * len(columns) if isinstance(types, str) or types is None else types
        self._held, self._bad, self._at = [], {}, 0
        if not len(columns[0]):
            self._held = [np.zeros(0, np.int64)] * len(self._result.columns)
            return
        for k, (column, dtype) in enumerate(zip(columns, kinds, strict=True)):
            values, bad = as_given(column) if dtype is None else converted(column, dtype)
            self._held.append(values)
            where = f"column {k} ({self._result.columns[k]})"
            for row, text in bad.items():
                self._bad.setdefault(row, f"{where} {text}")

    def _check_width(self) -> None:
        types, names = self._form.output_types, self._result.columns
        wanted = 1 if isinstance(types, str) else len(names) if types is None else len(types)
        if wanted != len(names):
            raise ValueError(
                f"the query gives {len(names)} columns ({', '.join(names)}), and output_types has "
                f"{wanted} ({types if isinstance(types, str) else ', '.join(types or ())})"
            )

    def close(self) -> None:
        self._result.close()


def _bytes_of(column: Any) -> int:
    """Return the approximate size of a column."""
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column.nbytes
    return sum(8 + (len(value) if isinstance(value, (str, bytes)) else 0) for value in column)
