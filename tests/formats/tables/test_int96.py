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
from tundish.formats.tables.int96 import cast_row_by_row
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


FINE, ROUND = "2020-01-01T00:00:00.123456789", "1960-01-01T00:00:00.123456"
FAR = "9999-12-31T00:00:00.123456"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Times with nanoseconds beside one that nanoseconds cannot have, which pyarrow does not write."""
    times = np.array([FINE, "1970-01-01", ROUND], "M8[ns]")
    stamps = pa.array(times)
    table = pa.table(
        {
            "stamp": stamps,
            "list": pa.ListArray.from_arrays(pa.array(range(4), pa.int32()), stamps),
            "struct": pa.StructArray.from_arrays([stamps, pa.array(range(3))], ["a", "n"]),
        }
    )
    options: dict[str, Any] = {"use_dictionary": False, "compression": "none"}
    pq.write_table(table, tmp_path / "p", use_deprecated_int96_timestamps=True, **options)
    day = (np.datetime64(FAR, "D") - np.datetime64("1970-01-01", "D")).astype(int) + 2440588
    far = np.array([123_456_000, 0, day], "<u4").tobytes()  # nanoseconds of the day, Julian day
    data = (tmp_path / "p").read_bytes()
    plain = np.array([0, 0, 2440588], "<u4").tobytes()
    assert data.count(plain) == 3
    (tmp_path / "p").write_bytes(data.replace(plain, far))
    return tmp_path / "p"


def times_of(found: list[Any], column: str) -> list[str]:
    """The time of each row, "error" for an error."""
    head = column.partition(".")[0]
    values = [row if isinstance(row, tuple) else row[head] for row in found]
    values = [x["a"] if isinstance(x, dict) else x for x in values]
    return ["error" if isinstance(x, tuple) else str(np.ravel(x)[0]) for x in values]


@pytest.mark.parametrize("column", ["stamp", "list", "struct", "struct.a"])
def test_a_far_time_takes_no_nanoseconds_from_others(mixed: Path, column: str) -> None:
    found = all_of(ParquetFormat(columns=(column,)), mixed)

    assert times_of(found, column) == [FINE, "error", f"{ROUND}000"]
    assert "datetime.datetime(9999, 12, 31, 0, 0, 0, 123456)" in found[1][1]


@pytest.mark.parametrize("column", ["stamp", "list", "struct", "struct.a"])
def test_in_microseconds_nanoseconds_are_errors_beside_a_far_time(mixed: Path, column: str) -> None:
    kinds = {"list": pa.list_(pa.timestamp("us"))}
    kinds["struct"] = pa.struct([("a", pa.timestamp("us")), ("n", pa.int32())])
    schema = check_schema({column: kinds.get(column, pa.timestamp("us"))})
    found = all_of(ParquetFormat(columns=(column,), schema=schema), mixed)

    assert times_of(found, column) == ["error", FAR, ROUND]
    assert "would lose data" in found[0][1]
    if column == "struct":
        assert found[1]["struct"]["n"] == 1


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_nanoseconds_beside_a_far_time_in_one_row_are_its_error(mixed: Path, unit: str) -> None:
    near = pq.read_table(mixed, columns=["stamp"]).column(0).chunk(0)
    far = pq.read_table(mixed, columns=["stamp"], coerce_int96_timestamp_unit="us").column(0)
    kind, bad = pa.list_(pa.timestamp(unit)), dict[int, str]()
    bounds = pa.array([0, 2, 3], pa.int32())
    near, far = (pa.ListArray.from_arrays(bounds, each) for each in (near, far.chunk(0)))

    made = cast_row_by_row(near, far, kind, "t", bad)

    assert list(bad) == [0]
    assert made.type == kind
    assert str(np.array(made[1].values)[0])[:26] == ROUND
    assert ("nanoseconds beside a year" if unit == "us" else "out of bounds") in bad[0]


def test_other_fields_of_a_far_row_are_kept(mixed: Path) -> None:
    near = pq.read_table(mixed, columns=["stamp"]).column(0).chunk(0)
    far = pq.read_table(mixed, columns=["stamp"], coerce_int96_timestamp_unit="us").column(0)
    tensors = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2))
    kind = pa.fixed_shape_tensor(pa.int16(), [2])  # pyarrow's if_else lacks extension types
    rest = [pa.ExtensionArray.from_storage(kind, tensors), near.take(pa.array([0, 0, 0]))]
    names, gap = ["a", "b", "c"], pa.array([False, False, True])
    near, far = (
        pa.StructArray.from_arrays([a, *rest], names, mask=gap) for a in (near, far.chunk(0))
    )
    bad: dict[int, str] = {}

    asked = pa.struct([("a", pa.timestamp("us")), ("c", pa.timestamp("ns")), ("b", kind)])
    made = cast_row_by_row(near, far, asked, "s", bad)

    assert list(bad) == [0]
    assert "column 's.a'" in bad[0]
    assert made.type == asked
    assert made.is_null().to_pylist() == gap.to_pylist()
    assert str(np.array(made.field("c"))[1]) == FINE
    assert str(np.array(made.field("a"))[1]) == FAR


def test_shuffled_batches_of_near_and_far_times(mixed: Path) -> None:
    ds = td.ParquetDataset(mixed, columns=["stamp"], schema={"stamp": "M8[us]"})

    (batch,) = ds.shuffle(None, seed=1).ignore_errors().batch(3)
    assert sorted(map(str, batch["stamp"])) == [ROUND, FAR]
