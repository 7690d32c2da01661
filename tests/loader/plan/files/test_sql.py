"""`SqlDataset`: its arguments, the laws over it, and secrets."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.testing import (
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)

QUERY = "select i, r, s from t order by i"
TYPES = (np.int32, "float64", str)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t(i integer, r real, s text)")
        rows = [(i, i / 4, f"é{i}") for i in range(40)]
        connection.executemany("insert into t values(?,?,?)", rows)
        connection.commit()
    return path


def test_rows(base: Path) -> None:
    ds = td.SqlDataset("sqlite", base, QUERY, TYPES)

    assert list(ds) == [(i, i / 4, f"é{i}") for i in range(40)]
    assert list(ds.batch(16))[2][0].dtype == np.int32
    assert list(td.SqlDataset("sqlite", str(base), "select i from t order by i", int)) == list(
        range(40)
    )
    assert list(td.experimental.SqlDataset("sqlite", base, "select s from t where i = 3")) == [
        ("é3",)
    ]
    assert ds.cardinality() == td.UNKNOWN_CARDINALITY
    assert repr(ds) == (
        f"<Dataset filenames(paths=['{base}']) -> SqlDataset(query={QUERY}, "
        "output_types=['int32', 'float64', 'str']); unknown length>"
    )


@pytest.mark.slow
def test_the_laws(base: Path) -> None:
    ds = td.SqlDataset("sqlite", base, QUERY, TYPES).map(twice).batch(12)

    assert_workers_do_not_show(ds, workers=(0, 2))
    assert_resumes_anywhere(ds.skip(1).repeat(2))
    assert_survives_kills(ds)


def twice(i: Any, r: Any, s: str) -> Any:
    return i * 2, r, s


def test_rows_that_do_not_fit(base: Path) -> None:
    query = "select case i when 3 then null when 5 then 'x' else i end as n from t order by i"
    rest = [i for i in range(40) if i not in {3, 5}]

    with iter(td.SqlDataset("sqlite", base, query, "int64", on_error="skip")) as it:
        assert list(it) == rest
        assert sum(it.stats.skipped.values()) == 2
    with iter(td.SqlDataset("sqlite", base, query, "int64")) as it:
        assert [int(next(it)) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(
            td.errors.RecordCorruptError, match=r"a\.db, row 3: column 0 \(n\) is NULL"
        ):
            next(it)
        assert next(it) == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_the_database_are_its_own(base: Path, workers: int) -> None:
    options = td.Options(workers=workers)

    for query, error, message in (
        ("select nope from t", sqlite3.OperationalError, "no such column: nope"),
        ("delete from t returning i", sqlite3.OperationalError, "readonly"),
        ("select i, r from t", ValueError, "the query gives 2 columns"),
    ):
        with pytest.raises(error, match=message):
            list(td.SqlDataset("sqlite", base, query, "int64").with_options(options))
    with pytest.raises(FileNotFoundError):
        list(td.SqlDataset("sqlite", base.with_name("none.db"), "select 1").with_options(options))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (("mysql", "x", "select"), ValueError, "driver_name must be"),
        ((7, "x", "select"), (TypeError, ValueError), "driver_name must be"),
        (("sqlite", 7, "select"), TypeError, "data_source_name must be a path or str, not int"),
        (("sqlite", "x", b"select"), TypeError, "query must be a str, not bytes"),
        (("sqlite", "x", "select", ()), ValueError, "output_types must have a dtype"),
        (("sqlite", "x", "select", ("odd",)), TypeError, "output_types must be numpy dtypes"),
    ],
)
def test_wrong_arguments(given: tuple[Any, ...], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        td.SqlDataset(*given)


def fails(name: str) -> Any:
    raise RuntimeError(f"cannot reach {name}")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_password_is_shown_nowhere(tmp_path: Path, workers: int) -> None:
    ds = td.SqlDataset(fails, "postgresql://ada:s3cret@host/base", "select 1", "int64")
    ds = ds.with_options(td.Options(workers=workers))

    with pytest.raises(RuntimeError) as caught:
        list(ds)
    error = caught.value
    caught.value.__traceback__ = None  # which holds the iterator
    with pytest.raises(RuntimeError):
        list(ds.snapshot(tmp_path / "snapshot"))
    with iter(ds) as it:
        state = it.state_dict()

    assert "s3cret" not in repr((ds, state, error, error.__notes__, str(error.__cause__)))
    assert error.args == ("cannot reach postgresql://ada:***@host/base",)
    assert "s3cret" not in ds._repr_html_()
    written = [path for path in (tmp_path / "snapshot").rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if b"s3cret" in path.read_bytes()]


def test_another_password_is_the_same_pipeline() -> None:
    first, second = (
        td.SqlDataset(fails, f"postgresql://ada:{secret}@host/base", "select 1")
        for secret in ("a1", "b2")
    )

    with iter(first) as one, iter(second) as two:
        assert one.state_dict() == two.state_dict()
        two.load_state_dict(one.state_dict())
