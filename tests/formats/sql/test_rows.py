"""Rows of queries, with sqlite and with connections that the tests make."""

from __future__ import annotations

import pickle
import sqlite3
import sys
from collections import UserDict
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from tundish.errors import RecordCorruptError
from tundish.formats.format import ColumnRun, RecordRun
from tundish.formats.sql.rows import SqlFormat
from tundish.formats.sql.source import DataSource

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [(i, i / 4, f"é{i}", bytes([i])) for i in range(200)]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "a b?#%.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t(i integer, r real, s text, b blob)")
        connection.executemany("insert into t values(?,?,?,?)", ROWS)
        connection.commit()
    return path


def rows(form: SqlFormat, place: int = 0, most: int = 7) -> list[Any]:
    found: list[Any] = []
    with form.open("shown", place) as reader:
        while True:
            before = reader.place
            try:
                run = reader.read(most)
            except RecordCorruptError as error:
                found.append((error.path, error.offset, error.problem))
                assert reader.place == before + 1
                continue
            if not len(run):
                return found
            assert list(run.places) == list(range(before, before + len(run)))
            assert run.after == reader.place
            found += run.records()


def of(base: Path, query: str, types: Any = None) -> SqlFormat:
    return SqlFormat("sqlite", DataSource(str(base)), query, types)


def test_rows_are_tuples_of_columns(base: Path) -> None:
    query = "select * from t order by i"

    assert rows(of(base, query)) == ROWS
    assert rows(of(base, query, ("float32", "float64", "bytes", "bytes"))) == [
        (i, r, s.encode(), b) for i, r, s, b in ROWS
    ]
    assert rows(of(base, "select i from t where i < 9 order by i", "int8")) == list(range(9))
    assert rows(of(base, "select 1 where 0")) == []


def test_runs_are_columns_where_they_can_be(base: Path) -> None:
    with of(base, "select i, s from t order by i", ("uint8", "str")).open("x") as reader:
        run = reader.read(3)
        assert isinstance(run, ColumnRun)
        assert run.stacked(1, 3)[0].dtype == np.uint8
        assert run.stacked(1, 3)[0].tolist() == [1, 2]
    with of(base, "select i, nullif(i, 1) from t order by i").open("x") as reader:
        run = reader.read(3)
        assert isinstance(run, RecordRun)
        assert run.records() == [(0, 0), (1, None), (2, 2)]


@pytest.mark.parametrize("place", [0, 1, 63, 64, 65, 199, 200, 300])
def test_opened_at_a_row_it_gives_the_rest(base: Path, place: int) -> None:
    assert rows(of(base, "select * from t order by i"), place) == ROWS[place:]


def test_a_row_that_does_not_fit_is_alone(base: Path) -> None:
    query = "select i, case when i in (2, 66, 67, 199) then 'odd' else i end as x from t order by i"

    found = rows(of(base, query, ("int64", "int64")))

    problem = "column 1 (x) is 'odd' (str), which is not int64"
    assert found == [("shown", i, problem) if i in {2, 66, 67, 199} else (i, i) for i in range(200)]


def test_text_that_is_no_utf8(base: Path) -> None:
    query = "select 'a' as s union all select cast(x'ff41' as text) union all select 'b'"

    assert rows(of(base, query)) == [
        ("a",),
        ("shown", 1, "column 0 (s) is not UTF-8 text: invalid start byte at byte 0"),
        ("b",),
    ]
    assert rows(of(base, query, "bytes")) == [b"a", b"\xffA", b"b"]


@pytest.mark.parametrize("types", [("int64",), ("int64", "int64", "int64"), "int64"])
def test_as_many_types_as_columns(base: Path, types: Any) -> None:
    with pytest.raises(
        ValueError, match=r"the query gives 2 columns \(i, r\), and output_types has"
    ):
        of(base, "select i, r from t", types).open("x")


@pytest.mark.parametrize("query", ["", "-- nothing", "pragma foreign_keys = on"])
def test_a_query_without_rows(base: Path, query: str) -> None:
    with pytest.raises(ValueError, match="the query does not return rows"):
        of(base, query).open("x")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select nope from t", "no such column: nope"),
        ("insert into t values (1, 1, 1, 1) returning i", "attempt to write a readonly database"),
        ("drop table t", "attempt to write a readonly database"),
    ],
)
def test_errors_of_the_database_are_its_own(base: Path, query: str, message: str) -> None:
    with pytest.raises(sqlite3.OperationalError, match=message) as caught:
        of(base, query).open("x")

    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is sqlite3.OperationalError
    assert again.args == caught.value.args


def test_an_error_in_the_middle_ends_the_rows(base: Path) -> None:
    """Rows before the error are given, though they were fetched together with it.

    But for one: some versions of sqlite3 look at the next row before they give one.
    """
    query = "select case when i = 100 then abs(-9223372036854775807 - 1) else i end from t"
    found: list[Any] = []
    with of(base, query, "int64").open("x") as reader:
        while len(found) < 99:
            found += reader.read(1000).records()
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError, match="integer overflow"):
                reader.read(1000)
            assert reader.place == len(found)

    assert found == list(range(len(found)))


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for path, error in ((tmp_path / "none.db", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error) as caught:
            of(path, "select 1").open("x")
        assert caught.value.filename == str(path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"no database" * 100)

    with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
        of(path, "select * from t").open("x")


def test_the_file_is_known_by_its_size_and_time(base: Path) -> None:
    with of(base, "select 1").open("x") as reader:
        assert reader.identity == (base.stat().st_size, base.stat().st_mtime_ns)


def test_a_uri_of_sqlite(base: Path) -> None:
    form = SqlFormat("sqlite", DataSource(f"{base.as_uri()}?immutable=1"), "select count(*) from t")

    assert rows(form) == [(200,)]
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        SqlFormat("sqlite", DataSource("file:/none/at/all.db"), "select 1").open("x")


# -- connections of others -----------------------------------------------------------------------


class Connection:
    """A DB-API connection that tells what it is asked for."""

    made: list[Connection] = []  # noqa: RUF012 - shared on purpose

    def __init__(self, name: str) -> None:
        self.name, self.pieces, self.open = name, list[int](), 2
        self.description: Any = [("a", None), ("b", None)]
        self.at = 0
        Connection.made.append(self)

    def cursor(self) -> Connection:
        return self

    def execute(self, query: str) -> None:
        if query == "fail":
            raise RuntimeError(f"cannot do it at {self.name}")

    def fetchmany(self, count: int) -> list[Any]:
        self.pieces.append(count)
        stop = min(self.at + count, 100_000)
        found = [self.row(i) for i in range(self.at, stop)]
        self.at = stop
        return found

    def row(self, i: int) -> Any:
        return (i, "x")

    def close(self) -> None:
        self.open -= 1


class Rows(Connection):
    def row(self, i: int) -> Any:
        return UserDict(a=i, b="x")


class Large(Connection):
    def row(self, i: int) -> Any:
        return (i, b"x" * 300_000)


def opened(connect: Any, query: str = "select") -> Any:
    return SqlFormat(connect, DataSource("host=h password=s3cret"), query).open("shown")


@pytest.mark.parametrize("connect", [Connection, Rows])
def test_any_connection_of_python(connect: Any) -> None:
    found = 0
    with opened(connect) as reader:
        connection = Connection.made.pop()
        while len(run := reader.read(1000)):
            assert run[0] == (found, "x")
            found += len(run)

    assert found == 100_000
    assert connection.name == "host=h password=s3cret"
    assert connection.pieces[:3] == [64, 256, 1024]
    assert max(connection.pieces) <= 1 << 15
    assert connection.open == 0


class Failing(Connection):
    def fetchmany(self, count: int) -> list[Any]:
        if len(self.pieces) == 1:
            self.pieces.append(count)
            raise RuntimeError("lost")
        return super().fetchmany(count)


def test_after_an_error_nothing_more_is_asked_for() -> None:
    with opened(Failing) as reader:
        assert len(reader.read(1000)) == 64
        for _ in range(2):
            with pytest.raises(RuntimeError, match="lost"):
                reader.read(1000)
    assert Connection.made.pop().open == 0


def test_large_rows_are_fetched_a_few_at_a_time() -> None:
    with opened(Large) as reader:
        connection = Connection.made.pop()
        while connection.at < 100:
            reader.read(1000)

    assert connection.pieces[1:] == [3] * (len(connection.pieces) - 1)


def test_a_query_that_fails_closes_its_connection_and_tells_no_secret() -> None:
    with pytest.raises(RuntimeError, match=r"^cannot do it at host=h password=\*\*\*$"):
        opened(Connection, "fail")

    assert Connection.made.pop().open < 2


class Arrow(Connection):
    """A cursor that gives batches, as ADBC's does."""

    adbc_statement = None

    def fetch_record_batch(self) -> Any:
        columns = {
            "i": pa.array([1, None, 3], pa.int32()),
            "x": pa.array([0.5, 1.5, 2.5], pa.float32()),
            "s": pa.array(["a", "b", None]),
            "d": pa.array([1.0, 2.0, 3.0]).cast(pa.decimal128(5, 1)),
            "t": pa.array([0, 1, 2], pa.timestamp("us")),
            "l": pa.array([[1], [2, 3], []], pa.list_(pa.int64())),
            "m": pa.array([{"k": 1}] * 3),
        }
        table = pa.table(columns)
        return pa.RecordBatchReader.from_batches(
            table.schema,
            [*table.to_batches(), *table.slice(0, 0).to_batches(), *table.to_batches()],
        )


def test_batches_of_arrow() -> None:
    with opened(Arrow) as reader:
        found = [*reader.read(2).records(), *reader.read(2).records()]
        again = reader.read(9).records()
        assert not len(reader.read(9))

    assert [row[0] for row in found] == [1, None, 3]
    assert type(found[0][0]) is np.int32
    assert found[0][1].dtype == np.float32
    assert [row[2] for row in found] == ["a", "b", None]
    assert str(found[1][3]) == "2.0"
    assert found[1][4] == np.datetime64(1, "us")
    assert [row[5].tolist() for row in found] == [[1], [2, 3], []]
    assert found[0][6] == {"k": 1}
    assert len(again) == 3


def test_batches_of_arrow_in_the_dtypes_that_were_asked_for() -> None:
    types = ("float64", "float64", "bytes", "int64", "datetime64[ns]", "int16", "object")
    form = SqlFormat(Arrow, DataSource(""), "select", types)

    found = rows(form)

    assert [row[0] for row in found[:2]] == [1.0, pytest.approx(np.nan, nan_ok=True)]
    assert found[1][2:5] == (b"b", 2, np.datetime64(1000, "ns"))
    assert found[1][5].dtype == np.int16
    assert found[2] == (
        "shown",
        2,
        "column 2 (s) is NULL, which bytes cannot hold: use coalesce(..., 0) or similar in the query",
    )
    assert len(found) == 6


@pytest.mark.parametrize("driver", ["duckdb", "postgresql"])
def test_a_driver_that_is_not_installed(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("duckdb", "psycopg", "adbc_driver_postgresql"):
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ImportError, match=f"'{driver}' is.* pip install"):
        SqlFormat(driver, DataSource("x"), "select 1").open("x")
