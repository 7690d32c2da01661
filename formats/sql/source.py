"""Data sources: names of databases whose secrets are never shown, and running queries on them."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tundish.formats.bytes.file import open_file
from tundish.formats.sql.results import ArrowResult, Cursor, Result, ServerCursor, SqliteCursor
from tundish.formats.sql.values import Unreadable

if TYPE_CHECKING:
    from tundish.formats.format import Identity

_HIDDEN = "***"
_IN_URL = re.compile(r"(?<=://)([^:@/?#\s]*):(.*)@", re.DOTALL)  # to the last @: it may be in there
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
        raise ValueError("the query gives no rows: it must be one that selects some")


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
        return Unreadable(raw, f"is no UTF-8 text: {problem.reason} at byte {problem.start}")


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
    connection.commit()  # the transaction in which it was said is none of those
    return connection


DRIVERS: dict[str, Connect] = {
    "sqlite": _sqlite,
    "duckdb": _duckdb,
    "postgresql": _postgresql,
}
"""Functions that connect to a database, by the names that `SqlDataset` takes."""
