"""Times of 96 bits in Parquet files: what nanoseconds cannot have is an error, or asked for in microseconds."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.formats.tables.reading import all_of

import tundish as td
from tundish.formats.tables.casting import check_schema
from tundish.formats.tables.parquet import ParquetFormat

NEVER, SOME, FIRST = (dt.datetime(year, 12, 31) for year in (9999, 2020, 1))  # noqa: DTZ001
DTYPES: dict[str, Any] = {"stamp": "M8[us]", "list": pa.list_(pa.timestamp("us"))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    stamps = pa.array([SOME, NEVER, None, FIRST, SOME, SOME], pa.timestamp("us"))
    table = pa.table(
        {
            "stamp": stamps,
            "struct": pa.StructArray.from_arrays([stamps, pa.array(range(6))], ["a", "n"]),
            "list": pa.ListArray.from_arrays(pa.array(range(7), pa.int32()), stamps),
            "n": range(6),
        }
    )
    pq.write_table(table, tmp_path / "p", use_deprecated_int96_timestamps=True, row_group_size=4)
    return tmp_path / "p"


@pytest.mark.parametrize("column", ["stamp", "struct", "struct.a", "list"])
def test_a_time_that_nanoseconds_cannot_have_is_its_rows_error(path: Path, column: str) -> None:
    found = all_of(ParquetFormat(columns=("n", column)), path)

    assert [k for k, row in enumerate(found) if isinstance(row, tuple)] == [1, 3]
    assert "is no " in found[1][1]
    assert "would result in out of bounds timestamp" in found[1][1]
    assert [found[k]["n"] for k in (0, 2, 4, 5)] == [0, 2, 4, 5]
    assert all_of(ParquetFormat(columns=("n", column)), path, 3, ahead=False)[0] == found[3]


def test_other_times_are_nanoseconds(path: Path) -> None:
    found = all_of(ParquetFormat(columns=("stamp", "list", "struct")), path)

    for row in (found[0], found[5]):
        times = np.stack([row["stamp"], row["list"][0], row["struct"]["a"]])
        assert times.dtype == "M8[ns]"
        assert (times == np.datetime64(SOME)).all()
    assert np.isnat(found[2]["stamp"])


@pytest.mark.parametrize("column", DTYPES)
def test_a_schema_of_microseconds_reads_all(path: Path, column: str) -> None:
    form = ParquetFormat(columns=(column,), schema=check_schema({column: DTYPES[column]}))
    times = np.array([np.ravel(row[column])[0] for row in all_of(form, path)])

    assert times.dtype == "M8[us]"
    expected = np.array([SOME, NEVER, "NaT", FIRST, SOME, SOME], "M8[us]")
    assert ((times == expected) | np.isnat(expected)).all()


def test_shuffled_batches(path: Path) -> None:
    ds = td.ParquetDataset(path, columns=["stamp", "n"], schema={"stamp": "M8[us]"})

    for batch in (batch for each in (ds, ds.shuffle(None, seed=1)) for batch in each.batch(4)):
        for stamp, n in zip(batch["stamp"], batch["n"], strict=True):
            assert str(stamp)[:4] == ["2020", "9999", "NaT", "0001", "2020", "2020"][n]
    skipping = td.ParquetDataset(path, columns=["stamp", "n"], on_error="skip").batch(3)
    assert [batch["n"].tolist() for batch in skipping] == [[0, 2, 4], [5]]


def test_nanoseconds_are_kept(tmp_path: Path) -> None:
    times = np.array(["2020-01-01T00:00:00.123456789", "1960-01-01T00:00:00.000000001"], "M8[ns]")
    pq.write_table(pa.table({"t": times}), tmp_path / "p", use_deprecated_int96_timestamps=True)

    assert (np.array([row["t"] for row in all_of(ParquetFormat(), tmp_path / "p")]) == times).all()
