"""Rows of DuckDB, and of SQLite by ADBC: as batches of Arrow."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tundish as td
from tundish.testing import (
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)

if TYPE_CHECKING:
    from pathlib import Path

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

ROWS = 60_000
ORDERED = "select i, x, s from t order by i"
TYPES = ("int64", "float32", str)


@pytest.fixture(scope="module", autouse=True)
def adbc_listens() -> None:
    """As it first waits for a database, ADBC listens for Ctrl-C: a pipe, which the process keeps."""
    with closing(by_adbc(":memory:")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("select 1")
        cursor.fetchall()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "a.duckdb"
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            f"create table t as select i, i / 4.0 as x, 'é' || i as s from range({ROWS}) as r(i)"
        )
    return path


def test_rows(base: Path) -> None:
    found = list(td.SqlDataset("duckdb", base, ORDERED, TYPES))

    assert len(found) == ROWS
    for i in (0, 1, 16_383, 16_384, ROWS - 1):
        assert found[i] == (i, np.float32(i / 4), f"é{i}")
    batch = next(iter(td.SqlDataset("duckdb", base, ORDERED, TYPES).batch(1000)))
    assert batch[0].tolist() == list(range(1000))


def test_the_laws(base: Path) -> None:
    ds = td.SqlDataset("duckdb", base, f"{ORDERED} limit 60", TYPES).batch(7)

    assert_workers_do_not_show(ds)
    assert_resumes_anywhere(ds)
    assert_survives_kills(ds)


def test_what_the_driver_gives() -> None:
    query = """select 1::tinyint, 2.5, null, [1, 2], {'a': 1, 'b': 'x'}, date '2026-05-20', 'é',
        '\\xFF'::blob, true"""

    (row,) = td.SqlDataset("duckdb", ":memory:", query)

    assert row[0].dtype == np.int8
    assert (float(row[1]), row[2], row[4], row[6:]) == (
        2.5,
        None,
        {"a": 1, "b": "x"},
        ("é", b"\xff", True),
    )
    assert row[3].tolist() == [1, 2]
    assert row[5] == np.datetime64("2026-05-20")


def test_it_is_only_read(base: Path, tmp_path: Path) -> None:
    with pytest.raises(duckdb.Error, match="read-only"):
        list(td.SqlDataset("duckdb", base, "delete from t returning i"))
    with pytest.raises(duckdb.IOException, match="does not exist"):
        list(td.SqlDataset("duckdb", tmp_path / "none.duckdb", "select 1"))
    assert not (tmp_path / "none.duckdb").exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_of_the_database_are_its_own(base: Path, workers: int) -> None:
    options = td.Options()
    options.workers = workers

    with pytest.raises(duckdb.BinderException, match="nope"):
        list(td.SqlDataset("duckdb", base, "select nope from t").with_options(options))


def by_adbc(name: str) -> Any:
    from adbc_driver_sqlite import dbapi

    return dbapi.connect(name)


def test_sqlite_by_adbc_is_as_by_python(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t(i integer, x real, s text)")
        rows = [(i, i / 4, f"é{i}") for i in range(5000)]
        connection.executemany("insert into t values (?, ?, ?)", rows)
        connection.commit()

    assert list(td.SqlDataset(by_adbc, path, ORDERED)) == rows
    assert list(td.SqlDataset("sqlite", path, ORDERED)) == rows
    assert_resumes_anywhere(td.SqlDataset(by_adbc, path, f"{ORDERED} limit 20", TYPES))
