"""Results of queries, fetched in pieces in the driver's own form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from tundish.errors import SpecError
from tundish.formats.sql.values import Unreadable

if TYPE_CHECKING:
    from tundish.formats.format import Identity

_SKIPPED = 1 << 14  # rows that are fetched at once to be left out


class Result(ABC):
    """The rows of a query, in order.

    Attributes
    ----------
    columns : list of str
        The names of the columns.
    identity : Identity or None
        The identity of the database's file, if it is one.
    """

    columns: list[str]
    identity: Identity | None = None

    @abstractmethod
    def fetch(self, count: int) -> list[Any]:
        """Return the next rows, as columns: lists, or arrays of equal length; empty ones at the end."""

    def skip(self, count: int) -> None:
        """Skip rows."""
        while count > 0:
            columns = self.fetch(min(count, _SKIPPED))
            if not columns or not len(columns[0]):
                return
            count -= len(columns[0])

    @abstractmethod
    def close(self) -> None:
        """Close the connection; may be called again."""


class Cursor(Result):
    """The rows of a DB-API cursor, as tuples."""

    def __init__(self, connection: Any, cursor: Any) -> None:
        self._connection, self._cursor = connection, cursor
        self.columns = [str(column[0]) for column in cursor.description]

    def fetch(self, count: int) -> list[Any]:
        rows = self._cursor.fetchmany(count)
        if rows and isinstance(rows[0], Mapping):  # as row factories make them
            rows = [tuple(row.values()) for row in rows]
        return [list(column) for column in zip(*rows, strict=True)] or [[]]

    def close(self) -> None:
        with suppress(Exception):  # of a connection that is lost, nothing is left to close
            self._cursor.close()
        with suppress(Exception):
            self._connection.close()


class SqliteCursor(Cursor):
    """A cursor of sqlite3 that reads row by row: `fetchmany` would lose the rows before one that fails."""

    def __init__(self, connection: Any, cursor: Any) -> None:
        super().__init__(connection, cursor)
        self._late: Exception | None = None

    def fetch(self, count: int) -> list[Any]:
        if self._late is not None:
            raise self._late
        rows: list[Any] = []
        try:
            rows.extend(islice(self._cursor, count))
        except Exception as problem:
            if not rows:
                raise
            self._late = problem
        return [list(column) for column in zip(*rows, strict=True)] or [[]]


class ServerCursor(Cursor):
    """A cursor of psycopg that leaves the rows on the server until they are fetched."""

    def skip(self, count: int) -> None:
        if count:
            self._cursor.scroll(count)


class ArrowResult(Result):
    """The rows of a reader of Arrow batches: arrays, or lists if numpy cannot represent the values."""

    def __init__(self, connection: Any, cursor: Any, reader: Any) -> None:
        self._connection, self._cursor, self._reader = connection, cursor, reader
        self.columns = list(reader.schema.names)
        self._batch: Any = None
        self._at = 0

    def fetch(self, count: int) -> list[Any]:
        while self._batch is None or self._at == self._batch.num_rows:
            self._batch, self._at = next(self._reader, None), 0
            if self._batch is None:
                return [[]]
        piece = self._batch.slice(self._at, count)
        self._at += piece.num_rows
        return [
            _column(array, name) for array, name in zip(piece.columns, self.columns, strict=True)
        ]

    def close(self) -> None:
        self._batch = None
        for each in (self._reader, self._cursor, self._connection):
            with suppress(Exception):
                each.close()


def _column(array: Any, name: str) -> Any:
    """Return a column of an Arrow batch; a list if it has nulls, or numpy has no such type."""
    # Here, since they import pyarrow.
    from tundish.formats.tables.columns import check_type, to_numpy  # noqa: PLC0415

    try:
        check_type(array.type, name)
    except SpecError:  # decimals, maps
        return array.to_pylist()
    bad: dict[int, str] = {}
    values = to_numpy(array, name, {}, bad)
    if isinstance(values, dict):  # a struct
        return array.to_pylist()
    if not array.null_count and not bad:
        return values
    found = list(values)
    for row, problem in bad.items():
        found[row] = Unreadable(b"", problem)
    for row in array.is_null().to_numpy(zero_copy_only=False).nonzero()[0]:
        found[row] = None
    return found
