"""`info`, `gc`, `compact` and `export` over snapshots that were written, lost, compacted and failed."""

from __future__ import annotations

import errno
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.snapshot.runs import (
    KEY,
    RUN,
    assert_elements,
    columns,
    complete,
    element,
    files,
    folder,
    prefix,
    stored,
    writer,
)

from tundish import Dataset
from tundish.errors import IncompleteSnapshotError, SnapshotCorruptError, SnapshotWriteError
from tundish.normalising import normalise
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.encoding.forms import INDEX, columns_of
from tundish.snapshot.files.local import LocalStore
from tundish.snapshot.lease import Holder, take
from tundish.snapshot.manifest import ManifestRun, RunOutcome
from tundish.snapshot.reading.reader import open_reader
from tundish.snapshot.records import RunHeader
from tundish.snapshot.upkeep import compact, export, gc, info, verify

FAILED = (5, 44)
OTHER = "f" * 16


def manifest_runs(path: Path) -> tuple[ManifestRun, ...]:
    manifest = Catalog(path).manifest(KEY)
    assert manifest is not None
    return manifest.runs


def add_key(path: Path, key: str, pipeline: Any, age_s: float = 0.0) -> None:
    """A copy of the snapshot as that of another pipeline, incomplete, written some time ago."""
    catalog = Catalog(path)
    header = RunHeader(key, "2025-01-01T00:00:00+00:00", "0")
    catalog.begin_run(key, header, pipeline)
    made_old(path / key, age_s)


def made_old(path: Path, age_s: float) -> None:
    for file in [p for p in path.rglob("*") if p.is_file()]:
        when = file.stat().st_mtime - age_s
        os.utime(file, (when, when))


# -- info ----------------------------------------------------------------------------------------


def test_info_tells_what_stands_there(tmp_path: Path) -> None:
    complete(tmp_path, failed=FAILED)
    complete(tmp_path, run="s" * 32)
    made = writer(tmp_path, "u" * 32)
    lease = take(Catalog(tmp_path).store, KEY, "u" * 32)

    found = info(tmp_path)

    (key,) = found.keys
    assert (key.key, key.outcome, key.rows, key.newest) == (KEY, RunOutcome.COMPLETE, 90, True)
    assert key.bytes == prefix(tmp_path).bytes
    assert (
        key.disk_bytes == found.bytes == sum((tmp_path / f).stat().st_size for f in files(tmp_path))
    )
    assert [(r.complete, r.beaten) for r in key.runs] == [
        (True, False),
        (False, True),
        (False, True),
    ]
    assert [bool(r.writer) for r in key.runs] == [False, False, True]
    assert f"process {os.getpid()} on " in key.runs[2].writer
    assert lease is not None
    lease.release()
    made.abandon()


def test_info_says_what_differs_from_the_newest(tmp_path: Path) -> None:
    def pipeline(stop: int) -> Any:
        return [{"op": "range", "version": 1, "args": {"stop": stop}}]

    complete(tmp_path)
    Catalog(tmp_path).store.create(f"{KEY}/pipeline.json", json.dumps(pipeline(5)).encode())
    add_key(tmp_path, OTHER, pipeline(3))

    newest, other = info(tmp_path).keys

    assert (newest.key, newest.differences) == (KEY, ())
    assert other.differences == ("range#0 stop: 5 -> 3",)
    assert other.outcome is RunOutcome.FRESH


def test_info_names_damage(tmp_path: Path) -> None:
    complete(tmp_path)
    (folder(tmp_path) / prefix(tmp_path).shards[0].file).unlink()

    (key,) = info(tmp_path).keys

    assert key.outcome is RunOutcome.LOST_SHARD
    assert "shard-" in key.problem


# -- gc ------------------------------------------------------------------------------------------


def test_gc_removes_losers_and_runs_without_an_element(tmp_path: Path) -> None:
    complete(tmp_path)
    complete(tmp_path, run="s" * 32)
    add_key(tmp_path, OTHER, [])
    (tmp_path / OTHER / "runs" / ("h" * 32)).mkdir()
    (tmp_path / OTHER / "runs" / ("h" * 32) / "run.json.12345678.tmp").write_bytes(b"")
    before = files(tmp_path)

    told = gc(tmp_path, older_than=0)
    assert files(tmp_path) == before
    assert told.dry_run
    done = gc(tmp_path, older_than=0, dry_run=False)

    assert not Catalog(tmp_path).runs(OTHER)
    assert [r.name for r in told.removed] == [r.name for r in done.removed]
    assert f"{KEY}/runs/{'s' * 32}" in [r.name for r in done.removed]
    assert len(done.removed) == 3
    assert done.bytes == sum(r.bytes for r in done.removed) > 0
    assert_elements(tmp_path, range(90))
    assert verify(tmp_path) == []
    assert gc(tmp_path, older_than=0).removed == ()


def test_gc_waits_a_day(tmp_path: Path) -> None:
    complete(tmp_path)
    complete(tmp_path, run="s" * 32)

    assert not gc(tmp_path).removed
    made_old(folder(tmp_path, "s" * 32), 25 * 3600)
    assert [r.name for r in gc(tmp_path).removed] == [f"{KEY}/runs/{'s' * 32}"]
    assert not gc(tmp_path, older_than=timedelta(hours=26)).removed


def test_gc_leaves_what_somebody_uses(tmp_path: Path) -> None:
    complete(tmp_path)
    complete(tmp_path, run="s" * 32)
    lease = take(Catalog(tmp_path).store, KEY, RUN)
    assert lease is not None
    assert not gc(tmp_path, older_than=0, keep=0).removed
    lease.release()
    assert gc(tmp_path, older_than=0).removed

    header = RunHeader(OTHER, "2025-01-01T00:00:00+00:00", "0", Holder.here().to_json())
    Catalog(tmp_path).begin_run(OTHER, header, [])
    assert [r.name for r in gc(tmp_path, older_than=0).removed] == [f"{KEY}/runs/{'s' * 32}"]


def test_gc_removes_a_loser_whose_writer_lives_on(tmp_path: Path) -> None:
    """The writer has come to its end; the process may go on for long."""
    complete(tmp_path)
    loser = "s" * 32
    header = RunHeader(KEY, "2025-01-01T00:00:00+00:00", "0", Holder.here().to_json())
    name = f"{KEY}/runs/{loser}"
    Catalog(tmp_path).store.create(f"{name}/run.json", header.to_bytes())
    assert not gc(tmp_path, older_than=0).removed
    complete(tmp_path, run=loser)
    assert [r.name for r in gc(tmp_path, older_than=0).removed] == [name]


def test_gc_leaves_prefixes_and_damage(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    made.commit(0, made.seal(), 10, None, {})
    assert not gc(tmp_path, older_than=0).removed
    (folder(tmp_path) / prefix(tmp_path).shards[0].file).unlink()
    assert not gc(tmp_path, older_than=0).removed


def test_gc_keeps_the_pipelines_written_to_last(tmp_path: Path) -> None:
    complete(tmp_path)
    for k in range(3):
        add_key(tmp_path, f"{k:016x}", [], age_s=3600 * (k + 1))

    assert [r.name for r in gc(tmp_path, older_than=0, keep=2).removed][1:] == [
        f"{1:016x}",
        f"{2:016x}",
    ]
    gc(tmp_path, older_than=0, keep=1, dry_run=False)
    assert Catalog(tmp_path).keys() == [KEY]
    with pytest.raises(ValueError, match="negative"):
        gc(tmp_path, keep=-1)


def test_gc_keeps_the_newest_though_an_older_one_was_compacted_since(tmp_path: Path) -> None:
    """Compacting copies the elements: it does not make them newer."""
    for start in range(3):
        list(Dataset.range(start, start + 20).snapshot(tmp_path, shard_bytes=1, batch_bytes=64))
    catalog = Catalog(tmp_path)
    newest = catalog.newest()
    for key in {*catalog.keys()} - {newest}:
        assert compact(tmp_path, key=key)

    gc(tmp_path, older_than=0, keep=1, dry_run=False)
    assert catalog.keys() == [newest]


# -- compact -------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("by_shard", [False, True])
def test_compact_keeps_elements_order_and_content(
    tmp_path: Path, compression: str | None, *, by_shard: bool
) -> None:
    complete(tmp_path, failed=FAILED, by_shard=by_shard, compression=compression)
    old = prefix(tmp_path)
    reader = open_reader(str(tmp_path), KEY)
    numbers = [n for n in range(90) if n not in FAILED]
    before = [int(reader[n]["n"]) for n in numbers]

    (done,) = compact(tmp_path)

    (run,) = manifest_runs(tmp_path)
    manifest = Catalog(tmp_path).manifest(KEY)
    assert manifest is not None
    assert (manifest.content, manifest.generation, manifest.rows) == ("kept", 1, 90)
    assert run.run != RUN
    durable = prefix(tmp_path, run.run)
    assert (done.before, done.after) == (len(old.shards), len(durable.shards))
    # One file for each form (there are two), and each of three user shards.
    assert done.after == (6 if by_shard else 2)
    assert_elements(tmp_path, [n for n in range(90) if n not in FAILED], run.run)
    assert sorted(durable.errors) == list(FAILED)
    for shard in durable.shards:
        starts = [batch.start for batch in shard.batches]
        assert starts == sorted(starts)
    assert np.array_equal(durable.entries["start"], old.entries["start"])
    assert verify(tmp_path) == []
    assert compact(tmp_path) == []
    again = open_reader(str(tmp_path), KEY)
    assert [int(again[n]["n"]) for n in numbers] == before == numbers
    assert [int(reader[n]["n"]) for n in numbers] == numbers  # still open on the old run
    assert len(again.shards) == (3 if by_shard else 2)


def test_compact_makes_shards_of_the_size_asked_for(tmp_path: Path) -> None:
    complete(tmp_path, 60)
    (done,) = compact(tmp_path, shard_bytes=1 << 20)
    assert done.after == 1
    assert compact(tmp_path, shard_bytes=2000) == []


def test_compact_joins_the_runs_of_parts(tmp_path: Path) -> None:
    complete(tmp_path, 30, failed=(5,), by_shard=True)
    second = "s" * 32
    complete(tmp_path, 20, failed=(7,), run=second, by_shard=True)
    catalog = Catalog(tmp_path)
    first = catalog.manifest(KEY)
    assert first is not None
    made = writer(tmp_path, second)
    made._catalog.store.remove(f"{KEY}/manifest.json")
    made.finish({"created": "2026", "library": "0"})
    other = catalog.manifest(KEY)
    assert other is not None
    whole = type(first)(
        **{
            **vars(first),
            "runs": first.runs + other.runs,
            "rows": 50,
            "bytes": first.bytes + other.bytes,
        }
    )
    catalog.replace(KEY, whole)

    compact(tmp_path)

    (run,) = manifest_runs(tmp_path)
    found = stored(tmp_path, run.run)
    assert [int(found[n]["n"]) for n in sorted(found)] == [
        *(n for n in range(30) if n != 5),
        *(n for n in range(20) if n != 7),
    ]
    assert sorted(found) == [n for n in range(50) if n not in (5, 37)]
    errors = prefix(tmp_path, run.run).errors
    assert {n: str(error.exception()) for n, error in errors.items()} == {5: "bad 5", 37: "bad 7"}
    assert verify(tmp_path) == []


def test_compact_leaves_what_it_cannot_copy(tmp_path: Path) -> None:
    complete(tmp_path)
    durable = prefix(tmp_path)
    path = folder(tmp_path) / durable.shards[1].file
    data = bytearray(path.read_bytes())
    data[durable.shards[1].batches[0].offset + 200] ^= 1
    path.write_bytes(data)
    before = files(tmp_path)

    with pytest.raises(SnapshotCorruptError, match=durable.shards[1].file) as caught:
        compact(tmp_path)
    assert caught.value.batch == durable.shards[1].batches[0].start
    assert files(tmp_path) == before


def test_compact_needs_room(tmp_path: Path) -> None:
    complete(tmp_path)
    before = files(tmp_path)
    with (
        mock.patch.object(LocalStore, "free_bytes", return_value=10),
        pytest.raises(SnapshotWriteError, match="room for 10"),
    ):
        compact(tmp_path)
    full = OSError(errno.ENOSPC, "No space left on device", "there")
    with (
        mock.patch.object(LocalStore, "sink", side_effect=full),
        pytest.raises(SnapshotWriteError, match="there could not be written"),
    ):
        compact(tmp_path)
    assert files(tmp_path) == before


def test_compact_of_what_is_not_complete(tmp_path: Path) -> None:
    writer(tmp_path)
    assert compact(tmp_path) == []
    with pytest.raises(IncompleteSnapshotError, match=KEY):
        compact(tmp_path, key=KEY)
    with pytest.raises(ValueError, match="shard_bytes"):
        compact(tmp_path, shard_bytes=0)


# -- export --------------------------------------------------------------------------------------


def test_export_has_all_elements_in_order(tmp_path: Path) -> None:
    complete(tmp_path, failed=FAILED)
    target = tmp_path / "out.parquet"

    done = export(tmp_path, target)

    numbers = [n for n in range(90) if n not in FAILED]
    table = read(target)
    assert (done.rows, done.failed, done.bytes) == (88, 2, target.stat().st_size)
    assert table.column("n").to_pylist() == numbers
    assert table.column("name").to_pylist() == [element(n)["name"] for n in numbers]
    assert table.column("values").to_pylist() == [element(n)["values"].tolist() for n in numbers]
    with pq.ParquetFile(target) as file:
        assert file.num_row_groups == len(prefix(tmp_path).entries)
    assert {p.name for p in tmp_path.iterdir()} == {KEY, "out.parquet"}


def test_export_with_user_shards_has_the_numbers(tmp_path: Path) -> None:
    complete(tmp_path, by_shard=True)
    export(tmp_path, tmp_path / "out.parquet")

    table = read(tmp_path / "out.parquet")
    assert table.column(INDEX).to_pylist() == table.column("n").to_pylist()
    assert sorted(table.column(INDEX).to_pylist()) == list(range(90))


def read(path: Path) -> pa.Table:
    """Return a table whose file is closed by now: pyarrow closes those it opens when a thread of its own gets to it."""
    with path.open("rb") as file:
        return pq.read_table(file)


def exported(path: Path, leaves: list[Any]) -> Any:
    """The column, of elements that are written, completed and exported."""
    made = writer(path)
    elements = [normalise({"x": leaf}) for leaf in leaves]
    made.write(0, [columns_of(elements)])
    made.commit(0, made.seal(), len(leaves), None, {})
    made.finish({"created": "2026", "library": "0"})
    export(path, path / "out.parquet")
    return read(path / "out.parquet").column("x").combine_chunks()


PLAIN: list[tuple[list[Any], str, list[Any]]] = [
    ([np.bool_(True), np.bool_(False)], "bool", [True, False]),
    ([np.int8(-1)], "int8", [-1]),
    ([np.array(3, ">i4")[()]], "int32", [3]),
    ([np.float16(0.5)], "halffloat", [0.5]),
    ([np.datetime64("2020-01-02", "D")], "date32[day]", ["2020-01-02"]),
    (
        [np.datetime64("2020-01-02T03:04:05.678", "ms")],
        "timestamp[ms]",
        ["2020-01-02 03:04:05.678"],
    ),
    ([np.timedelta64(5, "s")], "duration[s]", ["0:00:05"]),
    ([np.datetime64("2020", "Y")], "int64", [50]),
    (["a", "bc"], "large_string", ["a", "bc"]),
    ([b"a"], "large_binary", [b"a"]),
    (
        [np.arange(3, dtype="i2"), np.arange(2, dtype="i2")],
        "large_list<item: int16>",
        [[0, 1, 2], [0, 1]],
    ),
    ([np.array([True]), np.array([], bool)], "large_list<item: bool>", [[True], []]),
    ([np.array([[1, 2]], ">u2")], "tensor", [[1, 2]]),
    ([np.array([[True, False]])], "tensor", [[True, False]]),
    ([np.ones((2, 2), "f4")], "tensor", [[1.0] * 4]),
    ([np.complex64(1 + 2j)], "tensor", [[1.0, 2.0]]),
    ([np.array((1, 2), "i1,i1")[()]], "uint16", [513]),
]


@pytest.mark.parametrize(("leaves", "kind", "expected"), PLAIN, ids=lambda value: str(value)[:20])
def test_export_has_plain_columns(tmp_path: Path, leaves: Any, kind: str, expected: Any) -> None:
    column = exported(tmp_path, leaves)

    if kind == "tensor":
        assert isinstance(column.type, pa.FixedShapeTensorType)
        column = column.storage
    else:
        assert str(column.type).replace(" not null", "").replace("element", "item") == kind
    found = column.to_pylist()
    shown = [str(v) if isinstance(e, str) else v for v, e in zip(found, expected, strict=True)]
    assert [
        s.removesuffix("000") if "." in str(s) and isinstance(s, str) else s for s in shown
    ] == expected


def test_export_of_no_elements_is_an_empty_file(tmp_path: Path) -> None:
    list(Dataset.range(9).filter(lambda x: x > 9).snapshot(tmp_path / "kept"))

    found = export(tmp_path / "kept", tmp_path / "out.parquet")
    assert (found.rows, found.failed) == (0, 0)
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


def test_export_does_not_overwrite(tmp_path: Path) -> None:
    complete(tmp_path)
    target = tmp_path / "out.parquet"
    target.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="overwritten"):
        export(tmp_path, target)
    assert target.read_bytes() == b"mine"
    with pytest.raises(ValueError, match="csv"):
        export(tmp_path, tmp_path / "out.csv", format="csv")


def test_export_leaves_nothing_of_a_failure(tmp_path: Path) -> None:
    complete(tmp_path)
    durable = prefix(tmp_path)
    path = folder(tmp_path) / durable.shards[-1].file
    data = bytearray(path.read_bytes())
    data[durable.shards[-1].batches[0].offset + 200] ^= 1
    path.write_bytes(data)

    with pytest.raises(SnapshotCorruptError, match=durable.shards[-1].file):
        export(tmp_path, tmp_path / "out.parquet")
    assert {p.name for p in tmp_path.iterdir()} == {KEY}


def test_export_of_what_is_not_complete(tmp_path: Path) -> None:
    with pytest.raises(IncompleteSnapshotError, match="no complete snapshot"):
        export(tmp_path, tmp_path / "out.parquet")
