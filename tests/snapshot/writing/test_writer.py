"""The files that a `RunWriter` leaves on disk: exact elements, which any Arrow tool opens."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from tests.snapshot.runs import (
    KEY,
    assert_elements,
    assert_nothing_left,
    begin,
    columns,
    element,
    failure,
    files,
    folder,
    numbers_by_batch,
    prefix,
    stored,
    writer,
)

from tundish.errors import SnapshotCorruptError, SnapshotError, SnapshotWriteError, SpecError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.encoding.forms import INDEX, Columns, columns_of
from tundish.snapshot.failpoints import reach
from tundish.snapshot.files.local import LocalSink, LocalStore
from tundish.snapshot.lease import Holder, adopt_run
from tundish.snapshot.manifest import Manifest
from tundish.snapshot.writing import pending
from tundish.snapshot.writing.shardfile import options_of, parts_of
from tundish.snapshot.writing.writer import RunWriter

FIELDS = {"created": "2026-01-01T00:00:00+00:00", "library": "0"}


def commit(made: RunWriter, n: int, upto: int, state: Any = None) -> None:
    made.commit(n, made.seal(), upto, state, {"skipped": 0})


@pytest.mark.parametrize("compression", [None, "lz4", "zstd", "zstd:3"])
def test_what_is_committed_is_read_back(tmp_path: Path, compression: str | None) -> None:
    made = writer(tmp_path, compression=compression)
    sizes = [made.write(n, columns(n, n + 10)) for n in range(0, 50, 10)]
    commit(made, 0, 50, {"at": 50})

    assert_elements(tmp_path, range(50))
    assert_nothing_left(tmp_path)
    assert prefix(tmp_path).state == {"at": 50}
    assert sizes == prefix(tmp_path).entries["length"].tolist()


def test_shards_are_arrow_files(tmp_path: Path) -> None:
    """The footer agrees with the index: the first batch begins after magic and schema."""
    made = writer(tmp_path)
    for n in range(0, 30, 10):
        made.write(n, columns(n, n + 10))
    (shard,) = made.seal()

    path = folder(tmp_path) / shard.file
    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
        assert reader.num_record_batches == len(shard.batches) == 3
        assert reader.read_all().column("n").to_pylist() == list(range(30))
        schema = reader.schema
    assert path.stat().st_size == shard.bytes
    assert shard.batches[0].offset == 8 + schema.serialize().size
    for batch, following in zip(shard.batches, shard.batches[1:], strict=False):
        assert batch.offset + batch.length == following.offset
    made.abandon()


def test_buffers_go_to_the_file_without_a_copy(tmp_path: Path) -> None:
    rows = np.arange(1 << 12, dtype=np.float64).reshape(64, 64)
    addresses: list[int] = []
    append = LocalSink._append

    def look(self: LocalSink, views: list[memoryview]) -> None:
        arrays = [np.frombuffer(view, np.uint8) for view in views]
        addresses.extend(array.__array_interface__["data"][0] for array in arrays)
        append(self, views)

    made = writer(tmp_path)
    with mock.patch.object(LocalSink, "_append", look):
        made.write(0, [Columns(None, (rows,), len(rows))])

    assert rows.__array_interface__["data"][0] in addresses
    made.abandon()


def test_a_chunk_is_written_once(tmp_path: Path) -> None:
    made = writer(tmp_path)
    size = made.write(0, columns(0, 10))

    assert made.write(0, columns(0, 10)) == size
    commit(made, 0, 10)
    assert made.write(0, columns(0, 10)) == 0
    assert_elements(tmp_path, range(10))


@pytest.mark.parametrize("failed", [[], [0], [9], [3, 4, 7], list(range(10))])
def test_failed_elements_are_gaps(tmp_path: Path, failed: list[int]) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10, failed), [failure(n) for n in failed])
    made.write(10, columns(10, 12))
    commit(made, 0, 12)

    assert_elements(tmp_path, [n for n in range(12) if n not in failed])
    assert [str(prefix(tmp_path).errors[n].exception()) for n in failed] == [
        f"bad {n}" for n in failed
    ]
    for entry in prefix(tmp_path).entries:
        assert not set(range(entry["start"], entry["start"] + entry["rows"])) & set(failed)


def test_a_wider_chunk_begins_a_new_form_and_shard(tmp_path: Path) -> None:
    made = writer(tmp_path)
    for n in range(0, 90, 10):
        made.write(n, columns(n, n + 10))
    commit(made, 0, 90)

    durable = prefix(tmp_path)
    assert [shard.form for shard in durable.shards] == [0, 1]
    assert len(durable.forms) == 2
    assert_elements(tmp_path, range(90))


def test_a_later_writer_goes_on_with_the_last_form(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 70))
    commit(made, 0, 70)
    again = writer(tmp_path, name="abcdef02")
    again.write(70, columns(70, 80))
    commit(again, 1, 80)

    assert len(prefix(tmp_path).forms) == 1
    assert_elements(tmp_path, range(80))


def test_elements_that_cannot_be_stored_leave_the_writer_as_it_was(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    other = {**element(10), "values": np.zeros(3, np.int8)}
    with pytest.raises(SpecError, match="values"):
        made.write(10, [columns_of([other])])
    made.write(10, columns(10, 20))
    commit(made, 0, 20)

    assert_elements(tmp_path, range(20))


def test_large_shards_are_sealed_as_they_come(tmp_path: Path) -> None:
    made = writer(tmp_path, shard_bytes=2000)
    for n in range(0, 60, 10):
        made.write(n, columns(n, n + 10))
    published = [name for name in files(folder(tmp_path)) if name.endswith(".arrow")]

    assert len(published) > 1
    commit(made, 0, 60)
    assert_elements(tmp_path, range(60))
    assert_nothing_left(tmp_path)


def test_a_large_batch_is_divided_down_to_rows() -> None:
    batch = pa.record_batch([pa.array([b"a" * 100] * 7, pa.large_binary())], names=["x"])

    parts = list(parts_of(batch, 250))

    assert [first for first, _ in parts] == [0, 1, 3, 5]
    assert [part.num_rows for _, part in parts] == [1, 2, 2, 2]
    assert [part.num_rows for _, part in parts_of(batch, 1)] == [1] * 7


# -- shards of the user's ------------------------------------------------------------------------


def written_by_shard(path: Path, shard_of: Any, stop: int = 80, failed: Any = ()) -> RunWriter:
    made = writer(path)
    for n in range(0, stop, 10):
        numbers = [k for k in range(n, n + 10) if k not in failed]
        shards = np.array([shard_of(k) for k in numbers])
        errors = [failure(k) for k in range(n, n + 10) if k in failed]
        made.write(n, columns(n, n + 10, failed), errors, shards)
    commit(made, 0, stop)
    return made


def test_rows_are_grouped_by_user_shard(tmp_path: Path) -> None:
    failed = (5, 20, 39)
    made = written_by_shard(tmp_path, lambda n: n * 7 % 4, failed=failed)

    assert made.finish(FIELDS)
    assert_elements(tmp_path, [n for n in range(80) if n not in failed])
    for shard in prefix(tmp_path).shards:
        with pa.OSFile(str(folder(tmp_path) / shard.file)) as source:
            numbers = pa.ipc.open_file(source).read_all().column(INDEX).to_pylist()
        assert {n * 7 % 4 for n in numbers} == {shard.user_shard}
        assert numbers == sorted(numbers)


def test_order_says_where_each_element_stands(tmp_path: Path) -> None:
    failed = (5, 20, 79)
    made = written_by_shard(tmp_path, lambda n: n * 7 % 4, failed=failed)
    made.finish(FIELDS)

    durable = prefix(tmp_path)
    order = np.load(folder(tmp_path) / "order.npy")
    assert order.shape == (80, 2)
    numbers = numbers_by_batch(tmp_path)
    for n in range(80):
        batch, row = order[n]
        if n in failed:
            assert (batch, row) == (-1, -1)
        else:
            assert numbers[batch][row] == n
    assert len(durable.entries) == len(numbers)


def test_few_files_are_open_however_many_user_shards_there_are(tmp_path: Path) -> None:
    with mock.patch.object(pending, "OPEN_SHARDS", 3):
        made = writer(tmp_path)
        for n in range(0, 40, 10):
            made.write(n, columns(n, n + 10), (), np.arange(n, n + 10) % 7)
            assert len([f for f in files(folder(tmp_path)) if f.endswith(".arrow.tmp")]) <= 3
        commit(made, 0, 40)

    assert_elements(tmp_path, range(40))
    assert_nothing_left(tmp_path)


# -- commits -------------------------------------------------------------------------------------


def test_a_commit_must_be_of_all_elements_up_to_its_end(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    shards = made.seal()
    with pytest.raises(SnapshotError, match=r"elements 0 up to 11 .* 10 of them, 0 failed"):
        made.commit(0, shards, 11, None, {})
    with pytest.raises(SnapshotError, match="1 is not the next"):
        made.commit(1, shards, 10, None, {})
    made.commit(0, made.seal(), 10, None, {})

    assert_elements(tmp_path, range(10))


def test_a_commit_may_be_asked_for_twice(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    shards = made.seal()
    made.commit(0, shards, 10, {"at": 10}, {})
    made.commit(0, shards, 10, {"at": 10}, {})
    again = writer(tmp_path)
    again.commit(0, again.seal(), 10, {"at": 10}, {})  # of a writer that died behind the record

    with pytest.raises(SnapshotError, match="taken over"):
        made.commit(0, [], 9, None, {})
    assert prefix(tmp_path).records == 1


def test_a_writer_whose_run_was_taken_over_cannot_commit(tmp_path: Path) -> None:
    made = writer(tmp_path)
    other = writer(tmp_path, name="abcdef02")
    made.write(0, columns(0, 10))
    other.write(0, columns(0, 10))
    commit(made, 0, 10)

    with pytest.raises(SnapshotError, match="taken over"):
        other.commit(0, other.seal(), 10, None, {})
    assert_elements(tmp_path, range(10))


def test_a_fence_is_not_taken_for_a_commit_of_nothing(tmp_path: Path) -> None:
    made = writer(tmp_path)
    assert adopt_run(Catalog(tmp_path).at(KEY), "r" * 32, Holder.here().to_json())

    with pytest.raises(SnapshotError, match="taken over"):
        made.commit(0, [], 0, None, {})


def test_the_state_of_a_commit_that_died_is_replaced(tmp_path: Path) -> None:
    begin(tmp_path)
    (folder(tmp_path) / "state").mkdir()
    (folder(tmp_path) / "state" / "00000000.json").write_text('{"at": 7}')
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    commit(made, 0, 10, {"at": 10})

    assert prefix(tmp_path).problem is None
    assert prefix(tmp_path).state == {"at": 10}


def test_chunks_behind_a_commit_are_in_the_next(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    shards = made.seal()
    made.write(10, columns(10, 20, [12]), [failure(12)])
    made.commit(0, shards, 10, None, {})

    assert_elements(tmp_path, range(10))
    assert not prefix(tmp_path).errors
    commit(made, 1, 20)
    assert_elements(tmp_path, [n for n in range(20) if n != 12])
    assert list(prefix(tmp_path).errors) == [12]


# -- ends ----------------------------------------------------------------------------------------


def finished(path: Path, run: str = "r" * 32) -> bool:
    made = writer(path, run)
    made.write(0, columns(0, 10))
    commit(made, 0, 10)
    return made.finish({**FIELDS, "marks": {"skipped": 0}, "content": "c"})


def test_finish_publishes_a_manifest(tmp_path: Path) -> None:
    assert finished(tmp_path)
    before = files(tmp_path)
    assert writer(tmp_path).finish(FIELDS)  # again, as after a death behind the last step
    assert files(tmp_path) == before
    manifest = Catalog(tmp_path).manifest(KEY)

    assert manifest is not None
    assert (manifest.rows, manifest.content, manifest.marks) == (10, "c", {"skipped": 0})
    assert not manifest.user_shards
    assert [run.journal for run in manifest.runs] == [0]
    assert_nothing_left(tmp_path)


def test_the_second_run_loses(tmp_path: Path) -> None:
    assert finished(tmp_path)
    assert not finished(tmp_path, "s" * 32)
    manifest = Catalog(tmp_path).manifest(KEY)
    assert manifest is not None
    assert [run.run for run in manifest.runs] == ["r" * 32]


def test_a_part_has_its_manifest_in_its_run(tmp_path: Path) -> None:
    begin(tmp_path, part=(0, 2))

    assert finished(tmp_path)
    assert Catalog(tmp_path).manifest(KEY) is None
    path = folder(tmp_path) / "manifest.json"
    assert Manifest.from_bytes(path.read_bytes(), "").rows == 10


def test_a_finish_that_died_is_done_again(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    commit(made, 0, 10)
    (folder(tmp_path) / "index.arrow").write_bytes(b"of another time")
    (folder(tmp_path) / "index.arrow.tmp").write_bytes(b"half")

    assert made.finish(FIELDS)
    assert_nothing_left(tmp_path)
    with pa.OSFile(str(folder(tmp_path) / "index.arrow")) as source:
        assert pa.ipc.open_file(source).read_all().num_rows == 1


def test_nothing_uncommitted_is_finished(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    with pytest.raises(SnapshotError, match="not committed"):
        made.finish(FIELDS)
    made.abandon()


def test_a_run_without_elements_is_finished(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.commit(0, [], 0, None, {})

    assert made.finish(FIELDS)
    assert stored(tmp_path) == {}


def test_abandoned_work_is_removed(tmp_path: Path) -> None:
    made = writer(tmp_path, shard_bytes=500)
    made.write(0, columns(0, 10))
    commit(made, 0, 10)
    made.write(10, columns(10, 30))
    made.write(30, columns(30, 31))
    made.abandon()

    assert_elements(tmp_path, range(10))
    assert_nothing_left(tmp_path)
    with pytest.raises(SnapshotWriteError, match="abandoned"):
        made.write(30, columns(30, 40))


# -- a writer that died --------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("shard_bytes", [500, 1 << 20])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("by_shard", [False, True])
def test_the_next_writer_goes_on_behind_the_log(
    tmp_path: Path, compression: str | None, shard_bytes: int, *, sealed: bool, by_shard: bool
) -> None:
    def write(made: RunWriter, first: int, stop: int) -> None:
        shards = np.arange(first, stop) % 3 if by_shard else None
        made.write(first, columns(first, stop, [55]), [failure(55)] if first == 50 else (), shards)

    options: Any = {"compression": compression, "shard_bytes": shard_bytes}
    dead = writer(tmp_path, **options)
    write(dead, 0, 10)
    commit(dead, 0, 10)
    for n in range(10, 70, 10):
        shards = np.delete(np.arange(n, n + 10), 5) % 3 if n == 50 else np.arange(n, n + 10) % 3
        errors = [failure(55)] if n == 50 else []
        dead.write(n, columns(n, n + 10, [55]), errors, shards if by_shard else None)
    if sealed:
        dead.seal()
    dead._pending.let_go()  # as its end does
    again = writer(tmp_path, **options)
    assert again.write(20, columns(20, 30)) > 0  # is there: only answered
    write(again, 70, 80)
    commit(again, 1, 80)

    assert_elements(tmp_path, [n for n in range(80) if n != 55])
    assert list(prefix(tmp_path).errors) == [55]
    assert_nothing_left(tmp_path)


def test_half_a_line_and_half_a_chunk_are_as_if_not_written(tmp_path: Path) -> None:
    with mock.patch.object(pending, "OPEN_SHARDS", 1):
        dead = writer(tmp_path)
        dead.write(0, columns(0, 10), (), np.zeros(10, np.int64))
        dead.write(
            10, columns(10, 20), (), np.arange(10) % 2
        )  # seals the shard of both in its middle
        dead._pending.let_go()
        (log,) = folder(tmp_path).glob("*.tmp.log")
        lines = log.read_bytes().splitlines(keepends=True)
        assert b'"chunk"' in lines[-1]
        log.write_bytes(b"".join(lines[:-1]) + lines[-1][:30])
        again = writer(tmp_path)
        again.write(10, columns(10, 20), (), np.arange(10) % 2)
        commit(again, 0, 20)

    assert_elements(tmp_path, range(20))
    assert_nothing_left(tmp_path)


def test_a_log_of_what_was_committed_is_of_no_more_use(tmp_path: Path) -> None:
    """A writer died after its record, before it removed the log."""
    dead = writer(tmp_path)
    dead.write(0, columns(0, 10, [3]), [failure(3)])
    shards = dead.seal()
    (log,) = folder(tmp_path).glob("*.tmp.log")
    noted = log.read_bytes()
    dead.commit(0, shards, 10, None, {})
    log.write_bytes(noted)
    again = writer(tmp_path)
    again.write(10, columns(10, 20))
    commit(again, 1, 20)

    assert_elements(tmp_path, [n for n in range(20) if n != 3])
    assert_nothing_left(tmp_path)


def test_a_changed_batch_of_a_dead_writer_is_noticed(tmp_path: Path) -> None:
    dead = writer(tmp_path)
    dead.write(0, columns(0, 10))
    dead._pending.let_go()
    (shard,) = folder(tmp_path).glob("*.arrow.tmp")
    data = bytearray(shard.read_bytes())
    data[-20] ^= 1
    shard.write_bytes(data)

    with pytest.raises(SnapshotCorruptError, match=r"starts at element 0.*log"):
        writer(tmp_path)


def test_an_interrupt_in_a_write_loses_nothing(tmp_path: Path) -> None:
    """Ctrl-C hits a writer that runs in the caller's process."""
    made = writer(tmp_path)
    made.write(0, columns(0, 10))

    def interrupted(step: str) -> None:
        if step == "shard.batch":
            raise KeyboardInterrupt
        reach(step)

    with mock.patch.object(pending, "reach", interrupted), pytest.raises(KeyboardInterrupt):
        made.write(10, columns(10, 20))
    made.write(10, columns(10, 20))
    commit(made, 0, 20)

    assert_elements(tmp_path, range(20))
    assert_nothing_left(tmp_path)


# -- disks that fail -----------------------------------------------------------------------------


def full_after(size: int) -> Any:
    """A disk that has room for so many bytes."""
    append = LocalSink._append
    left = [size]

    def full(self: LocalSink, views: list[memoryview]) -> None:
        left[0] -= sum(view.nbytes for view in views)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device", self.path)
        append(self, views)

    return mock.patch.object(LocalSink, "_append", full)


@pytest.mark.parametrize("room", [0, 2000, 3900, 6000, 7000])
def test_a_full_disk_is_named_and_what_was_committed_stays(tmp_path: Path, room: int) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    commit(made, 0, 10)
    with full_after(room), pytest.raises(SnapshotWriteError) as caught:  # noqa: PT012 - which of them fails depends on the room
        made.write(10, columns(10, 60))
        made.write(60, columns(60, 100))
        commit(made, 1, 100, {"at": "x" * 1000})
        made.finish({**FIELDS, "inputs": ("y" * 5000,)})

    durable = prefix(tmp_path).next
    assert durable in (10, 100)
    assert caught.value.durable == durable
    assert caught.value.errno == errno.ENOSPC
    assert isinstance(caught.value.__cause__, OSError)
    assert str(tmp_path) in str(caught.value)
    assert f"{durable} element(s) are durable" in str(caught.value)
    assert_elements(tmp_path, range(durable))
    assert_nothing_left(tmp_path)
    with pytest.raises(SnapshotWriteError):
        made.seal()


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    begin(tmp_path)
    refused = OSError(errno.EROFS, "Read-only file system", "there")
    with (
        mock.patch.object(LocalStore, "sink", side_effect=refused),
        pytest.raises(SnapshotWriteError, match="there could not be written: Read-only"),
    ):
        writer(tmp_path).write(0, columns(0, 10))
    assert_nothing_left(tmp_path)


def test_bytes_are_sent_to_the_disk_as_they_come(tmp_path: Path) -> None:
    made = writer(tmp_path, sync_bytes=1000)
    with mock.patch.object(LocalSink, "sync") as sync:
        for n in range(0, 50, 10):
            made.write(n, columns(n, n + 10))
        size = sum(p.stat().st_size for p in folder(tmp_path).glob("*.tmp"))
        assert size // 1500 <= sync.call_count <= size // 1000
    made.abandon()


def test_compression_has_levels() -> None:
    assert options_of(None).compression is None
    assert options_of("zstd:7").compression == "zstd"
    with pytest.raises((ValueError, TypeError)):
        options_of("gzip:x")


def test_the_log_is_json_lines(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.write(0, columns(0, 10))
    (log,) = folder(tmp_path).glob("*.tmp.log")

    assert [next(iter(json.loads(line))) for line in log.read_text().splitlines()] == [
        "form",
        "opened",
        "chunk",
    ]
    made.abandon()
