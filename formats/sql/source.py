"""Data sources: names of databases whose secrets are never shown; queries, and their results in pieces."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tundish.errors import SpecError
from tundish.formats.bytes.file import open_file
from tundish.formats.sql.values import Unreadable

if TYPE_CHECKING:
    from tundish.formats.format import Identity


_SKIPPED = 1 << 14  # rows that are fetched at once in order to skip them


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
        with suppress(Exception):  # a lost connection cannot be closed
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


_HIDDEN = "***"
# Up to the last @, which a password may contain.
_IN_URL = re.compile(r"(?<=://)([^:@/?#\s]*):(.*)@", re.DOTALL)
_IN_PAIR = re.compile(
    r"""(?P<key>\b\w*(?:password|passwd|passphrase|pwd|secret|token|api_?key)\w*\s*=\s*)
        (?P<secret>'(?:[^'\\]|\\.)*'? | "(?:[^"\\]|\\.)*"? | \{[^}]*\}? | [^\s;&]*)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_WITHIN = re.compile(r"[/@:?#&\s'\"{}\\]+")


@dataclass(frozen=True)
class DataSource:
    """A database.

    Parameters
    ----------
    name : str
        The name for the driver. It may contain a password, which is in no text of this object; it is
        pickled with it, since workers connect.
    """

    name: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        """Return the name without secrets."""
        shown = _IN_URL.sub(rf"\1:{_HIDDEN}@", self.name)
        return _IN_PAIR.sub(rf"\g<key>{_HIDDEN}", shown)

    def __repr__(self) -> str:
        return self.shown

    def __tundish_fingerprint__(self) -> str:
        """Return the part of the name that counts in a fingerprint, in which a password may change."""
        return self.shown

    def hide(self, problem: BaseException) -> None:
        """Remove the secrets from the text of an error, since drivers quote what they cannot parse."""
        problem.args = tuple(
            self._without_secrets(arg) if isinstance(arg, str) else arg for arg in problem.args
        )

    def _without_secrets(self, text: str) -> str:
        text = text.replace(self.name, self.shown) if self.name else text
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    def _secrets(self) -> set[str]:
        """Return secrets whole, and in the pieces that a driver may see if one contains a '/' or '@'."""
        found = [match[2] for match in _IN_URL.finditer(self.name)]
        found += [match["secret"].strip("'\"{}") for match in _IN_PAIR.finditer(self.name)]
        pieces = {
            piece for secret in found for piece in (secret, unquote(secret), *_WITHIN.split(secret))
        }
        return {piece for piece in pieces if len(piece) > 1}


Connect = Callable[[str], Any]
"""Makes a connection (DB-API or ADBC) of the name of a data source."""

_BATCH = 1 << 14  # rows of a batch that DuckDB makes


def query_result(driver: str | Connect, source: DataSource, query: str) -> Result:
    """Connect, and run a query.

    Raises
    ------
    OSError
        The database is a file that cannot be opened.
    ImportError
        The driver is not installed.
    ValueError
        The query gives no rows.
    Exception
        The driver's error, without the source's secrets.
    """
    connect = DRIVERS[driver] if isinstance(driver, str) else driver
    connection: Any = None
    try:
        connection = connect(source.name)
        result = _run(connection, query)
        if driver == "sqlite":
            result.identity = _file(source.name)
    except BaseException as problem:
        with suppress(Exception):
            connection.close()
        source.hide(problem)
        raise
    return result


def _run(connection: Any, query: str) -> Result:
    """Run a query, in the fastest way that the connection supports."""
    module = type(connection).__module__.partition(".")[0]
    if module in {"duckdb", "_duckdb"}:
        relation = connection.sql(query)
        _check_rows(relation)
        make = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        return ArrowResult(connection, relation, make(_BATCH))
    named = module == "psycopg" and not connection.autocommit  # it lives in a transaction
    cursor = connection.cursor(name="tundish") if named else connection.cursor()
    try:
        cursor.execute(query)
        _check_rows(cursor.description)
        if hasattr(cursor, "adbc_statement"):
            return ArrowResult(connection, cursor, cursor.fetch_record_batch())
        kind = ServerCursor if named else SqliteCursor if module == "sqlite3" else Cursor
        return kind(connection, cursor)
    except BaseException:
        with suppress(Exception):
            cursor.close()
        raise


def _check_rows(found: Any) -> None:
    if found is None:
        raise ValueError("the query does not return rows: use one that selects")


def _sqlite(name: str) -> Any:
    """Open a read-only connection; by default connecting would create a database."""
    import sqlite3  # noqa: PLC0415 - some Pythons are built without

    if name.startswith("file:"):
        uri = name if "mode=" in name else f"{name}{'&' if '?' in name else '?'}mode=ro"
    else:
        _file(name)  # raises what sqlite would only call "unable to open"
        uri = f"{Path(name).absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
    connection.text_factory = _text
    return connection


def _file(name: str) -> Identity | None:
    if name.startswith("file:"):
        return None
    with open_file(name) as file:
        return file.identity


def _text(raw: bytes) -> str | Unreadable:
    """Decode a text of sqlite, which may be any bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError as problem:
        return Unreadable(raw, f"is not UTF-8 text: {problem.reason} at byte {problem.start}")


def _duckdb(name: str) -> Any:
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ImportError:
        raise ImportError("the driver 'duckdb' is not installed: pip install duckdb") from None
    return duckdb.connect(name, read_only=name not in {"", ":memory:"})


def _postgresql(name: str) -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError:
        return _postgresql_by_adbc(name)
    connection = psycopg.connect(name)
    connection.read_only = True
    return connection


def _postgresql_by_adbc(name: str) -> Any:
    try:
        from adbc_driver_postgresql import dbapi  # noqa: PLC0415 - an extra
    except ImportError:
        raise ImportError(
            "no driver for 'postgresql' is installed: pip install 'psycopg[binary]', or "
            "pip install adbc-driver-postgresql"
        ) from None
    connection = dbapi.connect(name)
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    connection.commit()  # it does not apply to the transaction in which it was set
    return connection


DRIVERS: dict[str, Connect] = {
    "sqlite": _sqlite,
    "duckdb": _duckdb,
    "postgresql": _postgresql,
}
"""Functions that connect to a database, by the names that `SqlDataset` takes."""
