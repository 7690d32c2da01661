"""The datasets of tables: their arguments, and that they read as others do."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tundish as td
from tundish.errors import RecordCorruptError, SpecError

ANY: list[Any] = [td.ParquetDataset, td.ArrowDataset, td.CsvDataset, td.JsonLinesDataset]
TEXTS: list[Any] = [td.CsvDataset, td.JsonLinesDataset]


@pytest.mark.parametrize("dataset", ANY)
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"columns": "a"}, TypeError),
        ({"columns": []}, ValueError),
        ({"schema": ["a"]}, TypeError),
        ({"schema": {"a": "no dtype"}}, TypeError),
        ({"defaults": {"a": None}}, ValueError),
        ({"on_error": "ignore"}, ValueError),
        ({"num_parallel_reads": "2"}, TypeError),
        ({"storage_options": 3}, TypeError),
    ],
)
def test_wrong_arguments(dataset: Any, given: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=next(iter(given))):
        dataset("file", **given)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"field_delim": ""}, ValueError),
        ({"field_delim": 3}, TypeError),
        ({"field_delim": "\n"}, ValueError),
        ({"quote_char": "''"}, ValueError),
        ({"header": 1}, TypeError),
        ({"column_names": "a"}, TypeError),
        ({"column_names": ["a", "a"]}, ValueError),
        ({"na_values": [0]}, TypeError),
        ({"newlines_in_values": None}, TypeError),
        ({"use_threads": 2}, TypeError),
        ({"compression_type": "bz2"}, ValueError),
        ({"index": "here"}, ValueError),
    ],
)
def test_wrong_arguments_of_csv(given: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=next(iter(given))):
        td.CsvDataset("file", **given)


@pytest.mark.parametrize("dataset", TEXTS)
def test_compression_is_told_by_the_name(dataset: Any, tmp_path: Path) -> None:
    text = b"a\n1\n2\n" if dataset is td.CsvDataset else b'{"a": 1}\n{"a": 2}\n'
    Path(tmp_path, "x.gz").write_bytes(gzip.compress(text))
    Path(tmp_path, "plain").write_bytes(gzip.compress(text))

    assert list(dataset(tmp_path / "x.gz")) == [{"a": 1}, {"a": 2}]
    assert list(dataset(tmp_path / "plain", compression_type="GZIP").skip(1)) == [{"a": 2}]
    with pytest.raises(ValueError, match="differ"):
        dataset([tmp_path / "x.gz", tmp_path / "plain"])
    with pytest.raises(ValueError, match="index=True needs files"):
        dataset(tmp_path / "x.gz", index=True)


@pytest.fixture
def parquets(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{k}.parquet" for k in range(3)]
    for k, path in enumerate(paths):
        pq.write_table(
            pa.table({"x": np.arange(10.0) + 10 * k, "k": [k] * 10}), path, row_group_size=4
        )
    return paths


def test_rows_of_several_files_are_one_sequence(parquets: list[Path]) -> None:
    ds = td.ParquetDataset(parquets, columns=["x"])

    assert len(ds) == 30
    assert ds[17] == {"x": 17.0}
    assert sorted(row["x"] for row in ds.shuffle(None, seed=1)) == list(range(30))
    assert [row["x"] for row in ds.shard(3, 1)] == list(range(1, 30, 3))
    assert [b["x"].tolist() for b in ds.skip(25).batch(3)] == [[25, 26, 27], [28, 29]]


def test_workers_do_not_show(parquets: list[Path]) -> None:
    ds = td.ParquetDataset(parquets, schema={"x": "float32"}, num_parallel_reads=2)
    options = td.Options()
    options.workers = 0

    assert [r["x"] for r in ds] == [r["x"] for r in ds.with_options(options)]
    assert next(iter(ds))["x"].dtype == np.float32


def test_a_row_that_cannot_be_given_is_an_error_in_its_place(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, None, 3]}), tmp_path / "p")
    ds = td.ParquetDataset(tmp_path / "p")

    with iter(ds) as it:
        assert next(it) == {"x": 1}
        with pytest.raises(RecordCorruptError, match=r"column 'x' .int64. is null"):
            next(it)
        assert list(it) == [{"x": 3}]
    assert list(td.ParquetDataset(tmp_path / "p", on_error="skip")) == [{"x": 1}, {"x": 3}]
    assert list(td.ParquetDataset(tmp_path / "p", defaults={"x": 0})) == [
        {"x": 1},
        {"x": 0},
        {"x": 3},
    ]


def test_a_column_that_is_not_there_is_told(parquets: list[Path]) -> None:
    with pytest.raises(SpecError, match=r"no column 'y'; its columns are 'x', 'k'"):
        next(iter(td.ParquetDataset(parquets, columns=["y"])))


def test_a_csv_file_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("a,b\n" + "".join(f"{k},{k}.5\n" for k in range(1000)))
    ds = td.CsvDataset(path).batch(7)
    with iter(ds) as it:
        for _ in range(40):
            next(it)
        state = it.state_dict()
        rest = [b["a"].tolist() for b in it]
    with iter(ds) as it:
        it.load_state_dict(state)
        assert [b["a"].tolist() for b in it] == rest
    assert rest[0][0] == 280
