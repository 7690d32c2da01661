"""Arrow IPC: files and streams alike, cut off anywhere, with dictionaries that change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as pf
import pytest
from tests.formats.tables.reading import all_of

from tundish.errors import RecordCorruptError
from tundish.formats.tables.arrow import ArrowFormat

TABLE = pa.table({"n": range(10), "s": [str(k) for k in range(10)]})
ROWS = [{"n": k, "s": str(k)} for k in range(10)]


def write(path: Path, new: Any = pa.ipc.new_file, size: int = 4, **given: Any) -> None:
    with new(str(path), TABLE.schema, options=pa.ipc.IpcWriteOptions(**given)) as writer:
        writer.write_table(TABLE, max_chunksize=size)


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_files_and_streams(tmp_path: Path, new: Any, compression: str | None) -> None:
    write(tmp_path / "a", new, compression=compression)

    assert all_of(ArrowFormat(), tmp_path / "a") == ROWS
    assert all_of(ArrowFormat(), tmp_path / "a", 6) == ROWS[6:]
    assert ArrowFormat().places(str(tmp_path / "a")) == range(10)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
def test_feather(tmp_path: Path, compression: str) -> None:
    pf.write_feather(TABLE, tmp_path / "a", compression=compression, chunksize=3)

    assert all_of(ArrowFormat(), tmp_path / "a") == ROWS


def test_featherss_first_version_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"FEA1" + bytes(100) + b"FEA1")

    with pytest.raises(RecordCorruptError, match="Feather file of version 1"):
        ArrowFormat().open(str(tmp_path / "a"))


def test_batches_that_are_empty(tmp_path: Path) -> None:
    empty = TABLE.slice(0, 0)
    with pa.ipc.new_stream(str(tmp_path / "a"), TABLE.schema) as writer:
        for part in (empty, TABLE.slice(0, 4), empty, TABLE.slice(4), empty):
            writer.write_batch(part.combine_chunks().to_batches()[0] if len(part) else batch(0))

    assert all_of(ArrowFormat(), tmp_path / "a") == ROWS
    assert all_of(ArrowFormat(), tmp_path / "a", 4) == ROWS[4:]


def batch(rows: int) -> Any:
    return pa.RecordBatch.from_arrays(
        [x.combine_chunks()[:rows] for x in TABLE.columns], schema=TABLE.schema
    )


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_what_stands_before_a_cut_is_given(tmp_path: Path, new: Any) -> None:
    write(tmp_path / "whole", new)
    content = (tmp_path / "whole").read_bytes()
    path = tmp_path / "a"
    counts = []
    for size in range(len(content) - 1, 400, -7):
        path.write_bytes(content[:size])
        found = all_of(ArrowFormat(), path)
        rows = [x for x in found if isinstance(x, dict)]
        assert rows == ROWS[: len(rows)]
        assert len(found) - len(rows) in ({1} if new is pa.ipc.new_file else {0, 1})
        assert len(ArrowFormat().places(str(path))) == len(found)
        counts.append(len(rows))

    assert set(counts) == {0, 4, 8, 10}


def test_a_second_stream_in_one_file_is_an_error_after_the_first(tmp_path: Path) -> None:
    write(tmp_path / "one", pa.ipc.new_stream)
    one, path = (tmp_path / "one").read_bytes(), tmp_path / "a"

    path.write_bytes(one + one)
    found = all_of(ArrowFormat(), path)
    path.write_bytes(one + bytes(64))

    assert found[:-1] == ROWS
    assert found[-1][1] == (
        f"the stream ends here, at {len(one):,}, but data follow: are there several streams in one file?"
    )
    assert all_of(ArrowFormat(), path) == ROWS


def words(values: list[str]) -> Any:
    return pa.record_batch([pa.array(values).dictionary_encode()], names=["w"])


@pytest.mark.parametrize("deltas", [False, True])
def test_dictionaries_that_change_within_a_stream(tmp_path: Path, deltas: bool) -> None:
    first, second = words(["a", "b"]), words(["a", "b", "c"] if deltas else ["x", "y", "z"])
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
    with pa.ipc.new_stream(str(tmp_path / "a"), first.schema, options=options) as writer:
        for part in (first, second, first):
            writer.write_batch(part)
    expected = [{"w": w} for part in (first, second, first) for w in part["w"].to_pylist()]

    assert all_of(ArrowFormat(), tmp_path / "a") == expected
    for place in range(len(expected)):
        assert all_of(ArrowFormat(), tmp_path / "a", place) == expected[place:]
        assert all_of(ArrowFormat(), tmp_path / "a", place, ahead=False) == expected[place:]


def test_only_the_columns_that_are_wanted_are_taken_apart(tmp_path: Path) -> None:
    write(tmp_path / "a")

    with ArrowFormat(columns=("s",)).open(str(tmp_path / "a")) as opened:
        held: Any = opened
        assert opened.read(1).records() == [{"s": "0"}]
        assert held._wanted == [1]


@pytest.mark.parametrize("content", [b"no table, but some text", b"ARROW1\0\0", b"\xff" * 40])
def test_what_is_no_arrow_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)

    with pytest.raises(RecordCorruptError, match="Arrow IPC file"):
        ArrowFormat().open(str(tmp_path / "a"))


def test_a_batch_that_says_it_has_more_rows_than_it_can_ends_the_file(tmp_path: Path) -> None:
    """Each of so many rows would be an error."""
    write(tmp_path / "a", pa.ipc.new_stream, size=5)
    content = bytearray((tmp_path / "a").read_bytes())
    count, many = (5).to_bytes(8, "little"), (2**40).to_bytes(8, "little")
    second = content.rfind(count, 0, content.rfind(b"56789"))
    while (second := content.rfind(count, 0, second + 8)) > len(content) // 2:
        content[second : second + 8] = many
    (tmp_path / "a").write_bytes(content)

    found = all_of(ArrowFormat(), tmp_path / "a")

    assert found[:5] == ROWS[:5]
    assert len(found) == 6
    assert "1,099,511,627,776 rows" in found[5][1]


def test_a_type_that_pyarrow_has_no_arrays_of_is_refused_by_name(tmp_path: Path) -> None:
    """Intervals of days and milliseconds are such; pyarrow writes another unit, which stands in one byte."""
    table = pa.table({"n": [1, 2], "t": pa.array([None, None], pa.month_day_nano_interval())})
    path = tmp_path / "a"
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    whole = path.read_bytes()
    made = [whole[:at] + bytes([1]) + whole[at + 1 :] for at, byte in enumerate(whole) if byte == 2]
    (changed,) = [data for data in made if _is_day_time(data)]
    path.write_bytes(changed)

    with pytest.raises(RecordCorruptError, match="'t' has the type day_time_interval"):
        all_of(ArrowFormat(), path)
    assert all_of(ArrowFormat(columns=("n",)), path) == [{"n": 1}, {"n": 2}]


def _is_day_time(data: bytes) -> bool:
    try:
        with pa.ipc.open_stream(data) as stream:
            return "day_time" in str(stream.schema.field("t").type)
    except (pa.ArrowException, KeyError, OSError, UnicodeDecodeError):
        return False
