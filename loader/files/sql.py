"""The dataset of a database query's rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tundish.calls import check_is
from tundish.formats.sql.rows import SqlFormat
from tundish.formats.sql.source import DRIVERS, DataSource
from tundish.formats.sql.values import check_types
from tundish.loader.files.dataset import FileDataset
from tundish.loader.plan.checks import check_word


class SqlDataset(FileDataset):
    """The rows of a query, as tuples of their columns.

    Parameters
    ----------
    driver_name : {"sqlite", "duckdb", "postgresql"} or callable
        The kind of database. "sqlite" is Python's own module; "duckdb" needs the package duckdb,
        "postgresql" psycopg, or adbc-driver-postgresql. A callable receives `data_source_name` and returns
        a connection: one of Python's DB-API, or of ADBC, whose rows come as Arrow batches. It is sent
        to workers, and its result is closed.
    data_source_name : path or str
        The database that the driver connects to: the file of a SQLite or DuckDB database, a connection string of
        PostgreSQL (``"postgresql://user:password@host/base"``, ``"host=... password=..."``).
    query : str
        A query that selects rows, in the database's language.
    output_types : dtype, sequence of dtypes, or None
        The dtype of each column, which may be ``str`` or ``bytes``. A single dtype, not in a sequence, gives
        elements that are not tuples. None: the driver's types.
    name : str, optional
        Accepted as in tf.data, and ignored.
    on_error : {"raise", "skip"}, optional
        What to do with a row whose values do not fit `output_types`: raise its error in its place, or
        skip it and count it (``iterator.stats.skipped``). In both cases reading continues with the next row. An
        error of the database ends the rows. Default: ``Options.on_error``, else "raise".

    Raises
    ------
    TypeError, ValueError
        An argument is of another type or out of range.

    Notes
    -----
    The rows are fetched as they are needed, never the whole result. The database is only read: sqlite
    and DuckDB are opened read-only, a session of PostgreSQL is set to read-only, and a missing file is a
    `FileNotFoundError`, while tf.data creates it. A callable is responsible for its own connection.

    A restored iterator runs the query again and skips the rows that it gave before: the rest is the
    same if the rows are, and if the query has an ORDER BY that leaves no two rows equal.
    Workers cannot share a query: it runs in one of them.

    A value is converted to the requested dtype if that changes nothing but its type: 2.0 and "12" can be
    ints; 2.5, 300 as int8, and "word" are errors that name the column and the row. NULL is NaN in
    floats and NaT in times, an error in other dtypes, and None without `output_types`. tf.data truncates, wraps
    around and gives 0, "" and False for all these; a query can use ``coalesce(x, 0)``. tf.data has no
    other driver than "sqlite", gives text as bytes (``bytes`` does so here), and does not know float32,
    uint32, uint64 and times.

    The error of a row is a `RecordCorruptError` whose offset is the row's number. A database's own errors
    are raised as they are (``sqlite3.OperationalError``, ``psycopg.errors.DivisionByZero``).

    A password in `data_source_name` is not shown: not in the plan's repr, in states, in the fingerprints of
    snapshots, nor in errors. It is in the result of `to_bytes`. It is better to let a callable find it
    in the environment, or the driver in its own files (``~/.pgpass``).

    Examples
    --------
    >>> import sqlite3
    >>> import tundish as td
    >>> from contextlib import closing
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "people.db")
    ...     with closing(sqlite3.connect(path)) as base:
    ...         done = base.executescript(
    ...             "create table t(name, age); insert into t values ('Ada', 36), ('Alan', 41)"
    ...         )
    ...     query = "select name, age from t order by name"
    ...     list(td.SqlDataset("sqlite", path, query, (str, "float32")))
    [('Ada', np.float32(36.0)), ('Alan', np.float32(41.0))]
    """

    def __init__(
        self,
        driver_name: str | Callable[[str], Any],
        data_source_name: str | os.PathLike[str],
        query: str,
        output_types: Any = None,
        name: str | None = None,
        *,
        on_error: str | None = None,
    ) -> None:
        driver = driver_name
        if not callable(driver):
            driver = check_word("driver_name", driver, tuple(DRIVERS))
        if not isinstance(data_source_name, (str, os.PathLike)):
            raise TypeError(
                f"data_source_name must be a path or str, not {type(data_source_name).__name__}"
            )
        check_is(query, str, "query must be a str")
        source = DataSource(os.fsdecode(data_source_name))
        form = SqlFormat(driver, source, query, check_types(output_types))
        self._read(source.shown, form, on_error=on_error)
