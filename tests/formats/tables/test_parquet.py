"""Parquet: row groups, what is kept, and what a damaged one gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.formats.tables.reading import all_of

from tundish.errors import RecordCorruptError
from tundish.formats.format import ColumnRun
from tundish.formats.tables import parquet, reader
from tundish.formats.tables.parquet import ParquetFormat


def test_rows_are_numbered_without_reading_them(tmp_path: Path) -> None:
    path = tmp_path / "p"
    pq.write_table(pa.table({"x": range(10)}), path, row_group_size=3)

    assert ParquetFormat().cheap
    assert ParquetFormat().places(str(path)) == range(10)
    assert [row["x"] for row in all_of(ParquetFormat(), path, 4)] == [4, 5, 6, 7, 8, 9]


def test_numeric_columns_are_views(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(100.0)}), tmp_path / "p")
    with ParquetFormat().open(str(tmp_path / "p")) as opened:
        run = opened.read(60)

    assert isinstance(run, ColumnRun)
    assert run.nest["x"].base is not None
    assert not run.nest["x"].flags.writeable
    assert run.stacked(3, 5)["x"].tolist() == [3, 4]


def test_pieces_of_a_large_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "PIECE_BYTES", 64)
    path = tmp_path / "p"
    pq.write_table(pa.table({"x": range(100)}), path)
    with ParquetFormat().open(str(path)) as opened:
        first = len(opened.read(1000))

    assert first == 8
    assert [row["x"] for row in all_of(ParquetFormat(), path, most=1000)] == list(range(100))
    assert [row["x"] for row in all_of(ParquetFormat(), path, 50, ahead=False)] == list(
        range(50, 100)
    )


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "p"
    pq.write_table(pa.table({"x": range(100)}), path, row_group_size=5)
    with ParquetFormat().open(str(path), ahead=False) as opened:
        assert isinstance(opened, reader.BatchReader)
        opened.kept.room = 100
        for place in (7, 93, 8, 0, 94, 50):
            opened.seek(place)
            assert opened.read(1).records() == [{"x": place}]
        assert 1 <= len(opened.kept) <= 2


def test_keeping_rows_takes_no_look_at_all_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    class Counted(reader.TableBatch):
        @property
        def nbytes(self) -> int:
            looks.append(self.first)
            return super().nbytes

    monkeypatch.setattr(parquet, "TableBatch", Counted)
    path = tmp_path / "p"
    pq.write_table(pa.table({"x": range(100)}), path, row_group_size=1)
    with ParquetFormat().open(str(path), ahead=False) as opened:
        for place in reversed(range(100)):
            opened.seek(place)
            assert opened.read(1).records() == [{"x": place}]
    assert len(looks) <= 200


def damaged(path: Path, group: int) -> None:
    """A row group of which a page's bytes have changed."""
    start = pq.ParquetFile(path).metadata.row_group(group).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start + 80] ^= 1  # behind the page's head
    path.write_bytes(content)


@pytest.mark.parametrize("ahead", [True, False])
def test_a_damaged_row_group_is_an_error_of_each_of_its_rows(tmp_path: Path, ahead: bool) -> None:
    path = tmp_path / "p"
    table = pa.table({"x": np.arange(30)})
    pq.write_table(
        table,
        path,
        row_group_size=10,
        use_dictionary=False,
        compression="none",
        write_page_checksum=True,
    )
    damaged(path, 1)

    found = all_of(ParquetFormat(), path, ahead=ahead)

    assert [x["x"] for x in found[:10]] == list(range(10))
    assert [x[0] for x in found[10:20]] == list(range(10, 20))
    assert "row group 1 (rows 10 to 19) cannot be decoded from row 10 on" in found[10][1]
    assert [x["x"] for x in found[20:]] == list(range(20, 30))
    assert all_of(ParquetFormat(), path, 15, ahead=ahead) == found[15:]


@pytest.mark.parametrize("content", [b"no table", b"PAR1" * 5, b"PAR1" + b"\xff" * 12 + b"PAR1"])
def test_what_is_no_parquet_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p").write_bytes(content)

    with pytest.raises(RecordCorruptError, match="is not a Parquet file, or its footer is damaged"):
        ParquetFormat().open(str(tmp_path / "p"))


def test_a_place_behind_the_end(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": range(3)}), tmp_path / "p")

    with pytest.raises(RecordCorruptError, match="no row begins here; the file has 3"):
        ParquetFormat().open(str(tmp_path / "p"), 4)


def test_bytes_that_cannot_be_read_are_the_systems_error(tmp_path: Path) -> None:
    path = tmp_path / "p"
    pq.write_table(pa.table({"x": range(3)}), path)
    with ParquetFormat().open(str(path)) as opened:
        held: Any = opened
        held._bytefile._read = lambda *_: (_ for _ in ()).throw(OSError(5, "broken", str(path)))
        with pytest.raises(OSError, match="broken"):
            opened.read(1)
        assert opened.place == 0
