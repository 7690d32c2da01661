"""Rows of several tables by number: as columns, whatever was read before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.newer import STRING_VIEW

from tundish.errors import RecordCorruptError
from tundish.formats.index import indexes_of
from tundish.formats.tables.arrow import ArrowFormat
from tundish.formats.tables.csv import CsvFormat
from tundish.formats.tables.files import TableFiles
from tundish.formats.tables.form import TableFormat
from tundish.formats.tables.jsonlines import JsonLinesFormat
from tundish.formats.tables.parquet import ParquetFormat
from tundish.loader.protocols.collate import collate
from tundish.testing.compare import digest

COUNTS = (7, 0, 30, 1)
TOTAL = sum(COUNTS)
NUMBERS: list[Any] = [
    range(TOTAL),
    range(5, 9),
    range(3, TOTAL, 8),
    range(30, 4, -5),
    np.array([37, 0, 12, 12, 8, 6, 7, 37]),
    np.array([20]),
    np.random.default_rng(0).permutation(TOTAL),
]
"""Of rows."""


def table(numbers: range) -> Any:
    return pa.table(
        {
            "n": pa.array([k * 3 - 7 for k in numbers], pa.int32()),
            "x": [None if k % 5 == 0 else k / 4 for k in numbers],
            "s": ["ab" * (k % 4) + "\u00e9" for k in numbers],
            "t": pa.array([k * 1000 for k in numbers], pa.timestamp("us")),
            "v": pa.array([[k, k + 0.5] for k in numbers], pa.list_(pa.float32())),
            "f": pa.array([[k, k + 1, 2] for k in numbers], pa.list_(pa.int64(), 3)),
            "d": pa.array([f"w{k % 3}" for k in numbers]).dictionary_encode(),
            "o": [{"a": k, "b": bool(k % 2)} for k in numbers],
        }
    )


def write_parquet(path: Path, numbers: range) -> None:
    pq.write_table(table(numbers), path, row_group_size=4)


def write_arrow(path: Path, numbers: range) -> None:
    found = table(numbers)
    with pa.ipc.new_stream(path, found.schema) as file:
        file.write_table(found, max_chunksize=4)


def write_csv(path: Path, numbers: range) -> None:
    lines = [f'{k},{k / 8},"a{k % 3}\n{k}"\n' + "\n" * (k % 2) for k in numbers]
    path.write_text("n,x,s\n" + "".join(lines).rstrip("\n"))


def write_json(path: Path, numbers: range) -> None:
    path.write_text(
        "\n".join(f'{{"n": {k}, "s": "\u00e9{k % 3}", "v": [{k}, 1]}}' for k in numbers)
    )


FORMS: dict[str, tuple[Callable[[Path, range], None], dict[str, Any], type[TableFormat]]] = {
    "parquet": (write_parquet, {}, ParquetFormat),
    "arrow": (write_arrow, {}, ArrowFormat),
    "csv": (write_csv, {"newlines_in_values": True}, CsvFormat),
    "json": (write_json, {}, JsonLinesFormat),
}


def opened(tmp_path: Path, name: str) -> TableFiles:
    write, how, kind = FORMS[name]
    paths, first = [], 0
    for k, count in enumerate(COUNTS):
        path = tmp_path / f"{k}"
        if count or name in ("parquet", "arrow"):
            write(path, range(first, first + count))
        else:
            path.touch()
        paths.append(str(path))
        first += count
    form = kind(**how)
    return TableFiles(form, paths, indexes_of(form, paths))


@pytest.fixture(params=FORMS)
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TableFiles]:
    made = opened(tmp_path, request.param)
    assert len(made) == TOTAL
    yield made
    made.close()


@pytest.mark.parametrize("room", [0, 200, 1 << 20])
def test_columns_are_what_a_batch_of_the_rows_has(files: TableFiles, room: int) -> None:
    rows = [files[k] for k in range(TOTAL)]
    files.keep(room)
    for _ in range(2):  # what is kept makes no difference
        for numbers in NUMBERS:
            found = files.gather(numbers)
            assert same(found, collate([rows[k] for k in numbers], len(numbers)))
            assert all(same(files[int(k)], rows[k]) for k in numbers[:3])
            assert same(files.get(list(numbers)), [rows[k] for k in numbers])
    if room == 200:
        files.gather(np.array([0, 30]))
        assert files._kept.used <= max(room, *(what.nbytes for _, what in files._kept.items()), 0)


def test_columns_are_new_and_nobody_elses(files: TableFiles) -> None:
    for numbers in NUMBERS:
        first, again = files.gather(numbers), files.gather(numbers)
        for column, other in zip(leaves(first), leaves(again), strict=True):
            assert column.flags.writeable
            assert not np.shares_memory(column, other)
            column[:] = column[:1]  # nobody sees it
        assert same(again, files.gather(numbers))


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_batches_that_are_asked_for_again_are_put_together(tmp_path: Path, name: str) -> None:
    files = opened(tmp_path, name)
    rows = [files[k] for k in range(TOTAL)]
    window, other = np.array([9, 30, 8, 31, 30]), np.array([20, 4, 5])
    parts = []
    for numbers in (window, window[::-1], window[1:], other, window, other, np.append(window, 8)):
        found = files.gather(numbers)
        assert same(found, collate([rows[k] for k in numbers], len(numbers)))
        together = files._kept.get("")
        parts.append(
            None
            if together is None
            else [k for k in (9, 30, 4) if together.rows(np.array([k])) is not None]
        )
    assert parts == [None, [9, 30], [9, 30], None, None, None, None]
    files.close()


def same(one: Any, other: Any) -> bool:
    return digest(one) == digest(other)


def leaves(nest: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    for column in nest.values():
        found += leaves(column) if isinstance(column, dict) else [column]
    return found


@pytest.mark.parametrize("numbers", [np.array([-1, 2]), np.array([TOTAL]), range(30, TOTAL + 1)])
def test_rows_that_are_not_there_have_no_columns(files: TableFiles, numbers: Any) -> None:
    assert files.gather(numbers) is None


def test_a_row_without_a_value_is_told_by_itself(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a", range(5))
    pq.write_table(pa.table({"n": pa.array([1, None, 3], pa.int64())}), tmp_path / "b")
    form = ParquetFormat(columns=("n",))
    paths = [str(tmp_path / "b")]
    files = TableFiles(form, paths, indexes_of(form, paths))

    assert files.gather(np.array([2, 0]))["n"].tolist() == [3, 1]
    assert files.gather(np.array([2, 1])) is None
    assert files.gather(range(3)) is None
    good, bad = files.get([2, 1])
    assert good == {"n": 3}
    assert isinstance(bad, RecordCorruptError)
    assert "is null" in str(bad)
    files.close()
    assert bad.offset == 1

    paths.insert(0, str(tmp_path / "a"))
    files = TableFiles(form, paths, indexes_of(form, paths))
    assert files.gather(np.array([7, 0])) is None  # of two dtypes
    assert [row["n"] for row in files.get([7, 0])] == [3, -7]
    files.close()


def test_rows_of_several_lengths_have_no_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [[1], [2, 3], [4]]}), tmp_path / "p")
    form, paths = ParquetFormat(), [str(tmp_path / "p")]
    files = TableFiles(form, paths, indexes_of(form, paths))

    assert files.gather(np.array([2, 0]))["v"].tolist() == [[4], [1]]
    assert files.gather(np.array([2, 1])) is None
    files.close()


@pytest.mark.skipif(not STRING_VIEW, reason="pyarrow has them since version 16")
def test_types_of_which_arrow_takes_no_rows_are_read_one_by_one(tmp_path: Path) -> None:
    column = pa.array(["a", "b", "c", "d"], STRING_VIEW)
    with pa.ipc.new_file(tmp_path / "p", pa.schema([("s", column.type)])) as file:
        file.write_table(pa.table({"s": column}))
    form, paths = ArrowFormat(), [str(tmp_path / "p")]
    files = TableFiles(form, paths, indexes_of(form, paths))

    assert [row["s"] for row in files.get([3, 1])] == ["d", "b"]
    assert files.gather(range(1, 3))["s"].tolist() == ["b", "c"]
    files.close()


def test_a_row_group_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = opened(tmp_path, "parquet")
    decoded = []
    read = pq.ParquetFile.iter_batches

    def counted(self: Any, *args: Any, row_groups: list[int], **how: Any) -> Any:
        decoded.append(row_groups[0])
        return read(self, *args, row_groups=row_groups, **how)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    order = np.random.default_rng(1).permutation(TOTAL)
    for k in range(0, TOTAL, 10):
        files.gather(order[k : k + 10])
    groups = sum(-(-count // 4) for count in COUNTS)
    assert len(decoded) == groups

    decoded.clear()
    files.close()
    files.keep(0)  # at most once a batch
    files.gather(order)
    assert len(decoded) == groups
    files.close()


def test_a_line_that_is_none_any_more_is_an_error(tmp_path: Path) -> None:
    files = opened(tmp_path, "csv")
    files.gather(np.array([9, 15]))
    for lines in (reader._lines for reader in files._open.values()):  # type: ignore[attr-defined]  # of text
        lines._near = 0, b""  # as if they were read long ago
    path = tmp_path / "2"
    path.write_bytes(path.read_bytes().replace(b"\n", b" "))

    assert files.gather(np.array([10, 12])) is None
    assert isinstance(files.get([10])[0], RecordCorruptError)
    files.close()
