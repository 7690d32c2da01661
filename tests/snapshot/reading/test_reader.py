"""Stored elements come back: whole, in ranges, at random, and never damaged without a word."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.snapshot.laying import KEY, Run, lay
from tests.snapshot.leaves import NESTS, ODD, differences, is_mapped

from tundish.errors import (
    IncompleteSnapshotError,
    SnapshotCorruptError,
    SnapshotError,
    SpecError,
    TransformError,
)
from tundish.loader.protocols.collate import collate
from tundish.snapshot.files.local import LocalStore
from tundish.snapshot.reading import batches as batches_module
from tundish.snapshot.reading import reader as reader_module
from tundish.snapshot.reading.places import Spans
from tundish.snapshot.reading.reader import Reader, open_reader


def numbers(count: int, first: int = 0) -> list[Any]:
    return [np.int64(first + k) for k in range(count)]


def records(count: int) -> list[Any]:
    return [
        {
            "x": np.arange(3) + k,
            "s": "é" * (k % 4),
            "r": np.zeros(k // 10, "f2"),
            "n": np.int8(k % 99),
        }
        for k in range(count)
    ]


def third(element: Any) -> int:
    return int(element["x"][0] if isinstance(element, dict) else element) % 3


def check_all(reader: Reader, elements: list[Any]) -> None:
    assert len(reader) == len(elements)
    for k, expected in enumerate(elements):
        if isinstance(expected, Exception):
            with pytest.raises(type(expected)) as caught:
                reader[k]
            assert caught.value.args == expected.args
        else:
            assert differences(expected, reader[k]) is None
    for expected, found in zip(elements, reader.elements(0, len(elements)), strict=True):
        if isinstance(expected, Exception):
            assert (type(found), found.args) == (type(expected), expected.args)
        else:
            assert differences(expected, found) is None


def collated(elements: list[Any]) -> Any:
    if not elements or any(isinstance(element, Exception) for element in elements):
        return None
    try:
        return collate(elements, len(elements))
    except SpecError:
        return None


def check_batches(reader: Reader, elements: list[Any], ranges: list[tuple[int, int]]) -> None:
    for start, stop in ranges:
        expected, found = collated(elements[start:stop]), reader.stacked(start, stop)
        assert (expected is None) == (found is None), (start, stop)
        assert expected is None or differences(expected, found) is None
        indices = np.random.default_rng(start).permutation(np.arange(start, stop))
        expected, found = collated([elements[i] for i in indices]), reader.take(indices)
        assert (expected is None) == (found is None), indices
        assert expected is None or differences(expected, found) is None


ALL_RANGES = [(0, 1), (0, 4), (1, 3), (3, 9), (0, 30), (29, 30), (12, 24), (5, 5)]
COMPRESSIONS = (None, "lz4", "zstd")


# -- every element -------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize("shard_of", [None, third])
@pytest.mark.parametrize("errors", [False, True])
@pytest.mark.parametrize("runs", [1, 3])
def test_everything_is_read(
    tmp_path: Path,
    *,
    compression: str | None,
    finish: bool,
    shard_of: Callable[[Any], int] | None,
    errors: bool,
    runs: int,
) -> None:
    elements = records(30)
    if errors:
        for k in (0, 7, 8, 29):
            elements[k] = KeyError(k)
    parts = np.split(np.arange(30), [5, 17] if runs == 3 else [])
    laid = [
        Run(f"r{j}", [elements[k] for k in part], 4 + j, compression=compression, shard_of=shard_of)
        for j, part in enumerate(parts)
    ]
    lay(tmp_path, *laid, finish=finish)
    names = tuple(run.name for run in laid)
    reader = open_reader(tmp_path, KEY, runs=None if finish else names)
    check_all(reader, elements)
    check_batches(reader, elements, ALL_RANGES)
    reader.check()
    reader.prefetch(3, 20)
    assert reader.mapped == (compression is None)
    again = pickle.loads(pickle.dumps(reader))
    assert again is reader  # this process has it open
    indices = [index for shard in reader.shards for index in shard.indices.tolist()]
    good = [k for k, element in enumerate(elements) if not isinstance(element, Exception)]
    assert sorted(indices) == good
    assert [len(shard) for shard in reader.shards] == [len(s.indices) for s in reader.shards]
    if shard_of is not None:
        assert [shard.number for shard in reader.shards] == [0, 1, 2]
        for shard in reader.shards:
            assert {third(elements[k]) for k in shard.indices} == {shard.number}
    else:
        assert indices == good
        assert [shard.number for shard in reader.shards] == list(range(len(reader.shards)))


@pytest.mark.parametrize("kind", [*ODD, *NESTS])
def test_every_kind_is_stacked_as_the_loader_does(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(1)
    make = {**ODD, **NESTS}[kind]
    elements = [make(k, rng) for k in range(30)]
    reader = open_reader(lay(tmp_path, Run("r", elements)), KEY)
    check_all(reader, elements)
    if kind != "empty":
        check_batches(reader, reader.elements(0, 30), ALL_RANGES)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_layout(tmp_path_factory: Any, data: Any) -> None:
    count = data.draw(st.integers(1, 40))
    shape = data.draw(st.sampled_from([(), (2,), (0, 2)]))
    elements: list[Any] = [
        (np.full(shape, k, "f4")[()], np.zeros(1 + (k > 20), "u1"), "\ud800" if k == 13 else "a")
        for k in range(count)
    ]
    for k in data.draw(st.sets(st.integers(0, count - 1), max_size=5)):
        elements[k] = ValueError(k)
    cuts = sorted(data.draw(st.sets(st.integers(1, count), max_size=2)) | {0, count})
    user = data.draw(
        st.sampled_from([None, lambda e: int(np.ravel(e[0])[0]) % 3 if e[0].size else 1])
    )
    runs = [
        Run(
            f"r{j}",
            elements[first:stop],
            batch=data.draw(st.integers(1, 7)),
            shard=data.draw(st.integers(1, 4)),
            record=data.draw(st.integers(1, 3)),
            compression=data.draw(st.sampled_from(COMPRESSIONS)) if j == 0 else None,
            shard_of=user,
        )
        for j, (first, stop) in enumerate(pairwise(cuts))
    ]
    path = lay(tmp_path_factory.mktemp("any"), *runs)
    reader = open_reader(path, KEY, verify=data.draw(st.sampled_from(["size", "batch", "full"])))
    check_all(reader, elements)
    start = data.draw(st.integers(0, count - 1))
    check_batches(reader, elements, [(start, data.draw(st.integers(start, count)))])


def test_an_error_of_an_unknown_type_tells_what_it_was(tmp_path: Path) -> None:
    class OddError(Exception):
        pass

    reader = open_reader(lay(tmp_path, Run("r", [OddError({1}), np.int64(1)])), KEY)
    with pytest.raises(TransformError, match="OddError"):
        reader[0]
    assert reader[1] == 1


def test_each_file_is_asked_once_for_all_rows_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elements = numbers(24)  # in 6 batches of 2 files
    reader = open_reader(lay(tmp_path, Run("r", elements)), KEY)
    check_batches(reader, elements, [(0, 24)])
    asked = []
    changed = batches_module._Open.changed

    def counted(self: Any) -> bool:
        asked.append(self)
        return changed(self)

    monkeypatch.setattr(batches_module._Open, "changed", counted)
    check_batches(reader, elements, [(0, 24)])
    assert len(asked) == 4  # once a file for the range, and for the rows in another order


@pytest.mark.parametrize("index", [-1, 30, 10**12])
def test_what_is_not_there_is_an_index_error(tmp_path: Path, index: int) -> None:
    reader = open_reader(lay(tmp_path, Run("r", numbers(30))), KEY)
    with pytest.raises(IndexError, match="30 elements"):
        reader[index]
    with pytest.raises(IndexError, match="30 elements"):
        reader.take(np.array([0, index]))


def test_an_empty_snapshot(tmp_path: Path) -> None:
    reader = open_reader(lay(tmp_path, Run("r", [])), KEY, verify="full")
    assert len(reader) == 0
    assert reader.elements(0, 0) == []
    assert reader.shards == ()
    assert reader.stacked(0, 0) is None
    with pytest.raises(IndexError):
        reader[0]


# -- prefixes ------------------------------------------------------------------------------------


def test_a_prefix_is_pinned_by_its_records(tmp_path: Path) -> None:
    path = lay(tmp_path, Run("r", numbers(60), batch=4, shard=2, record=1), finish=False)
    reader = open_reader(path, KEY, runs=("r",), upto=(3,))
    check_all(reader, numbers(24))
    assert open_reader(path, KEY, runs=("r",)).source.upto == (8,)
    assert pickle.loads(pickle.dumps(reader)) is reader
    with pytest.raises(IncompleteSnapshotError, match="no manifest"):
        open_reader(path, KEY)


def test_a_prefix_of_a_run_that_was_finished_later_stays_a_prefix(tmp_path: Path) -> None:
    path = lay(tmp_path, Run("r", numbers(60), batch=4, shard=2, record=1))
    check_all(open_reader(path, KEY, runs=("r",), upto=(3,)), numbers(24))
    check_all(open_reader(path, KEY, runs=("r",), upto=(8,)), numbers(60))


def test_a_pinned_run_stays_when_the_manifest_names_another(tmp_path: Path) -> None:
    path = lay(tmp_path, Run("a", numbers(9)))
    pickled = pickle.dumps(open_reader(path, KEY))
    (path / KEY / "manifest.json").unlink()
    other = tmp_path / "other"
    lay(other, Run("b", numbers(9)))
    (other / KEY / "manifest.json").rename(path / KEY / "manifest.json")
    (other / KEY / "runs" / "b").rename(path / KEY / "runs" / "b")
    assert open_reader(path, KEY).source.runs == ("b",)
    reader = pickle.loads(pickled)
    assert reader.source.runs == ("a",)
    check_all(reader, numbers(9))


def test_a_pinned_run_is_read_though_the_manifest_is_damaged(tmp_path: Path) -> None:
    path = lay(tmp_path, Run("r", numbers(9)))
    (path / KEY / "manifest.json").write_bytes(b"{")
    with pytest.raises(SnapshotCorruptError, match=r"manifest\.json"):
        open_reader(path, KEY)
    check_all(open_reader(path, KEY, runs=("r",)), numbers(9))


# -- views, caches, mappings ---------------------------------------------------------------------


def test_uncompressed_data_is_seen_where_it_lies(tmp_path: Path) -> None:
    reader = open_reader(lay(tmp_path, Run("r", records(30))), KEY)
    batch = reader.stacked(4, 8)
    assert batch is not None
    for array in (batch["x"], reader[5]["x"], reader[15]["r"]):
        assert is_mapped(array)
        assert not array.flags.writeable
    across = reader.stacked(2, 9)
    assert across is not None
    assert across["x"].flags.writeable
    assert not is_mapped(across["x"])
    kept = reader[29]["x"]
    del reader, batch
    assert kept.tolist() == [29, 30, 31]


def test_an_array_is_valid_after_its_file_is_removed(tmp_path: Path) -> None:
    reader = open_reader(lay(tmp_path, Run("r", records(30))), KEY)
    kept = reader[3]["x"]
    for file in (tmp_path / KEY / "runs" / "r").glob("*.arrow"):
        file.unlink()
    assert kept.tolist() == [3, 4, 5]
    assert reader[4]["x"].tolist() == [4, 5, 6]


def test_decompressed_batches_are_kept_within_a_limit(tmp_path: Path) -> None:
    elements = [np.full(1000, k) for k in range(64)]
    path = lay(tmp_path, Run("r", elements, batch=4, compression="zstd"))
    room = 200_000
    opened = open_reader(path, KEY)
    reader = Reader(
        opened.source, LocalStore(path / KEY), opened._prefixes, opened._orders, cache_bytes=room
    )
    for k in np.random.default_rng(0).permutation(64).tolist() * 2:
        assert (reader[k] == k).all()
        assert reader.batches._cost <= room
        assert len(reader.batches.ready) == len(reader.batches._decoded)
    assert 1 < len(reader.batches._decoded) < 8
    tiny = Reader(
        opened.source, LocalStore(path / KEY), opened._prefixes, opened._orders, cache_bytes=1
    )
    check_all(tiny, elements)
    assert len(tiny.batches._decoded) == 1


@pytest.mark.slow
def test_many_shards_are_mapped_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "open_limit", lambda: 64)
    path = lay(tmp_path, Run("r", numbers(4000), batch=1, shard=2, record=500))
    reader = open_reader(path, KEY)
    assert len(reader.shards) == 2000
    process = psutil.Process()
    before = process.num_fds()
    for k in np.random.default_rng(0).permutation(4000).tolist():
        assert reader[k] == k
        assert len(reader.batches._open) <= 64
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert maps.read_text().count(str(path)) <= 64
    assert process.num_fds() <= before + 64
    assert len(reader.batches._decoded) <= 128
    assert reader.elements(0, 4000) == numbers(4000)


def test_the_limit_of_mappings_is_well_below_the_systems() -> None:
    assert 16 <= batches_module.open_limit() <= 4096


def test_files_that_are_not_mapped_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStore, "mappable", False)
    elements = records(30)
    for compression, shard_of in ((None, None), ("lz4", third)):
        path = tmp_path / str(compression)
        lay(path, Run("r", elements, compression=compression, shard_of=shard_of))
        reader = open_reader(path, KEY, verify="full")
        assert not reader.mapped
        check_all(reader, elements)
        check_batches(reader, elements, ALL_RANGES)
        assert not is_mapped(reader[0]["x"])
        assert not reader.batches._open
        reader.prefetch(0, 30)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_remote_snapshot_is_read(tmp_path: Path, compression: str | None) -> None:
    elements = [*records(20), ValueError("bad")]
    lay(tmp_path, Run("r", elements, compression=compression, shard_of=third))
    remote = fsspec.filesystem("memory")
    remote.put(str(tmp_path), "/read", recursive=True)
    try:
        reader = open_reader("memory://read", KEY, verify="batch")
        assert not reader.mapped
        check_all(reader, elements)
        check_batches(reader, elements, [(0, 9), (3, 21)])
        reader.check()
        shard = next(f for f in remote.find("/read") if f.endswith(".arrow") and "shard" in f)
        data = bytearray(remote.cat_file(shard))
        data[len(data) // 2] ^= 1
        remote.pipe_file(shard, bytes(data))
        with pytest.raises(SnapshotCorruptError, match="crc32"):
            reader.check()
        remote.rm_file(shard)
        with pytest.raises(SnapshotCorruptError, match="missing"):
            reader.check()
        reader_module._OPEN.clear()
        with pytest.raises(SnapshotCorruptError, match="missing"):
            open_reader("memory://read", KEY)
    finally:
        remote.rm("/read", recursive=True)


def test_a_reader_that_is_dropped_is_gone(tmp_path: Path) -> None:
    """Its mappings go with it, without waiting for the collector of cycles."""
    reader = open_reader(lay(tmp_path, Run("r", records(30))), KEY)
    reader.stacked(0, 30)
    assert reader.shards
    del reader
    if Path("/proc/self/maps").exists():
        assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_threads_share_a_reader(tmp_path: Path) -> None:
    elements = [np.full(100, k) for k in range(400)]
    path = lay(tmp_path, Run("r", elements, batch=3, compression="lz4"))
    opened = open_reader(path, KEY)
    reader = Reader(
        opened.source, LocalStore(path / KEY), opened._prefixes, opened._orders, cache_bytes=20_000
    )
    wrong: list[Any] = []

    def read(seed: int) -> None:
        try:
            order = np.random.default_rng(seed).permutation(400).tolist()
            wrong.extend(k for k in order if not (reader[k] == k).all())
        except BaseException as error:  # noqa: BLE001 - told to the test
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_reads_though_a_thread_holds_the_lock(tmp_path: Path) -> None:
    path = lay(tmp_path, Run("r", numbers(30)))
    program = (
        "import os, sys, threading, warnings\n"
        "from tundish.snapshot.reading.reader import open_reader\n"
        "warnings.simplefilter('ignore')  # of forking with threads: that is what is tried\n"
        "reader = open_reader(sys.argv[1], sys.argv[2])\n"
        "assert reader[0] == 0\n"
        "held, go = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with reader.batches._lock:\n"
        "        held.set(); go.wait()\n"
        "thread = threading.Thread(target=hold); thread.start(); held.wait()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(0 if reader.elements(0, 30) == list(range(30)) else 1)\n"
        "status = os.waitpid(pid, 0)[1]\n"
        "go.set(); thread.join()\n"
        "sys.exit(os.waitstatus_to_exitcode(status))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path), KEY], timeout=60, check=False)
    assert done.returncode == 0


# -- damage --------------------------------------------------------------------------------------


def shards_of(path: Path) -> list[Path]:
    return sorted((path / KEY / "runs" / "r").glob("shard-*.arrow"))


def cut(data: bytearray, first: int) -> None:
    del data[first:]


def damage(file: Path, change: Callable[[bytearray], Any]) -> None:
    """Replace a file by a changed one; nothing that is mapped is changed."""
    data = bytearray(file.read_bytes())
    change(data)
    file.unlink()
    file.write_bytes(data)


def opened(path: Path, verify: str = "size") -> Reader:
    """A reader that has seen nothing yet, though another one may be in use."""
    reader_module._OPEN.clear()
    return open_reader(path, KEY, verify=verify)


def test_a_missing_or_short_shard_is_told_when_it_is_opened(tmp_path: Path) -> None:
    changes: dict[str, Callable[[Path], Any]] = {
        "short": lambda file: damage(file, lambda data: cut(data, -9)),
        "long": lambda file: damage(file, lambda data: data.extend(b"x")),
        "missing": Path.unlink,
    }
    for name, change in changes.items():
        path = lay(tmp_path / name, Run("r", numbers(30)))
        change(shards_of(path)[1])
        with pytest.raises(SnapshotCorruptError) as caught:
            opened(path)
        assert caught.value.path == str(shards_of(path)[0].parent / "shard-000001-00000000.arrow")


def test_a_shard_that_is_cut_or_removed_later_is_told_when_it_is_mapped(tmp_path: Path) -> None:
    changes: dict[str, Callable[[Path], Any]] = {
        "cut": lambda file: damage(file, lambda data: cut(data, 100)),
        "a little": lambda file: damage(file, lambda data: cut(data, -1)),
        "empty": lambda file: damage(file, bytearray.clear),
        "removed": Path.unlink,
    }
    for name, change in changes.items():
        path = lay(tmp_path / name, Run("r", numbers(30)))
        reader = opened(path)
        assert reader[0] == 0
        file = shards_of(path)[1]
        change(file)
        with pytest.raises(SnapshotCorruptError) as caught:
            reader[15]
        assert caught.value.path == str(file)
        assert reader[3] == 3  # what is whole is read as before


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_changed_byte_is_told_with_its_batch(tmp_path: Path, compression: str | None) -> None:
    elements = [{"s": f"row {k}", "x": np.full(20, k), "r": np.zeros(k % 3)} for k in range(30)]
    path = lay(tmp_path, Run("r", elements, compression=compression))
    reader = opened(path)
    entries = reader.batches.entries
    files = shards_of(path)
    rng = np.random.default_rng(0)
    for b, entry in enumerate(entries):
        at = int(entry["offset"]) + int(rng.integers(int(entry["length"])))
        original = files[entry["shard"]].read_bytes()
        damage(files[entry["shard"]], lambda data, at=at: data.__setitem__(at, data[at] ^ 4))  # type: ignore[misc]  # the default binds it now
        careful = opened(path, "batch")
        for k, expected in enumerate(elements):
            if entry["start"] <= k < entry["start"] + entry["rows"]:
                with pytest.raises(SnapshotCorruptError, match="crc32") as caught:
                    careful[k]
                assert caught.value.batch == entry["start"]
                assert caught.value.path == str(files[entry["shard"]])
                assert f"element {entry['start']}" in str(caught.value)
            else:
                assert differences(expected, careful[k]) is None
        with pytest.raises(SnapshotCorruptError, match="crc32"):
            opened(path, "full")
        with pytest.raises(SnapshotCorruptError, match="crc32"):
            careful.check()
        files[entry["shard"]].write_bytes(original)
        assert b == reader.batches.entries["start"].tolist().index(entry["start"])


def test_a_file_that_is_restored_is_read_by_the_same_reader(tmp_path: Path) -> None:
    path = lay(tmp_path, Run("r", numbers(30)))
    file = shards_of(path)[0]
    whole = file.read_bytes()
    at = int(opened(path).batches.entries[0]["offset"]) + 8
    damage(file, lambda data: data.__setitem__(at, data[at] ^ 4))
    reader = opened(path, "batch")
    for _ in range(2):
        with pytest.raises(SnapshotCorruptError, match="crc32"):
            reader[0]
    file.unlink()
    file.write_bytes(whole)
    check_all(reader, numbers(30))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_zeros_at_the_end_are_told(tmp_path: Path, compression: str | None) -> None:
    path = lay(tmp_path, Run("r", numbers(30), compression=compression))
    file = shards_of(path)[-1]
    damage(file, lambda data: data.__setitem__(slice(-700, None), bytes(700)))
    with pytest.raises(SnapshotCorruptError, match="crc32"):
        opened(path, "full")
    with pytest.raises(SnapshotCorruptError) as caught:
        opened(path)[29]  # even without: an Arrow message cannot be zeros
    assert caught.value.path == str(file)


@pytest.mark.slow
@pytest.mark.parametrize("verify", ["size", "batch", "full"])
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_no_byte_of_a_shard_can_be_changed_to_any_harm(
    tmp_path: Path, verify: str, compression: str | None
) -> None:
    """Every byte in turn: "full" sees it, "batch" if it counts; without checksums no other trouble."""
    elements = [(np.int64(k), "añb"[: k % 4], np.zeros(k % 3, "f4")) for k in range(6)]
    path = lay(tmp_path, Run("r", elements, batch=3, shard=2, compression=compression))
    (file,) = shards_of(path)
    original = file.read_bytes()
    unnoticed = 0
    for at in range(0, len(original), 5 if verify == "full" else 7):
        damage(file, lambda data, at=at: data.__setitem__(at, data[at] ^ 0x15))  # type: ignore[misc]  # the default binds it now
        try:
            found = opened(path, verify).elements(0, 6)
        except SnapshotCorruptError as error:
            told = error.path
        else:
            told = str(file)
            assert verify != "full"
            if verify == "size":
                unnoticed += 1
            else:
                assert all(differences(a, b) is None for a, b in zip(elements, found, strict=True))
        assert told == str(file)
        file.unlink()
        file.write_bytes(original)
    assert unnoticed or verify != "size"  # it shows what checksums are for


def test_a_shard_in_another_ones_place_is_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        value = np.float64(1) if name == "a" else np.uint64(1)
        lay(tmp_path / name, Run("r", [value] * 12, batch=4))
    one, other = (shards_of(tmp_path / name)[0] for name in ("a", "b"))
    one.unlink()
    one.write_bytes(other.read_bytes())
    with pytest.raises(SnapshotCorruptError, match="schema") as caught:
        opened(tmp_path / "a")[0]
    assert caught.value.path == str(one)


def test_a_changed_footer_is_told_by_a_full_check(tmp_path: Path) -> None:
    path = lay(tmp_path, Run("r", numbers(30)))
    file = shards_of(path)[0]
    damage(file, lambda data: data.__setitem__(slice(-30, None), b"x" * 30))
    check_all(opened(path, "batch"), numbers(30))
    with pytest.raises(SnapshotCorruptError, match="footer") as caught:
        opened(path, "full")
    assert caught.value.path == str(file)


def test_a_changed_order_is_told(tmp_path: Path) -> None:
    path = lay(tmp_path, Run("r", numbers(30), shard_of=third))
    file = path / KEY / "runs" / "r" / "order.npy"
    damage(file, lambda data: data.__setitem__(slice(-32, -24), b"\x7f" * 8))
    for verify in ("batch", "full"):
        with pytest.raises(SnapshotCorruptError) as caught:
            opened(path, verify)
        assert caught.value.path == str(file)
    reader = opened(path)
    assert reader[0] == 0
    with pytest.raises(SnapshotCorruptError):
        reader[28]
    damage(file, lambda data: cut(data, -8))
    del reader
    with pytest.raises(SnapshotCorruptError) as caught:
        opened(path)
    assert caught.value.path == str(file)


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="size, batch, full"):
        open_reader(tmp_path, KEY, verify="none")
    with pytest.raises(SnapshotError):
        open_reader(tmp_path, KEY, runs=("none",))


def test_even_batches_are_found_by_division() -> None:
    starts, rows = np.array([0, 4, 8]), np.array([4, 4, 1])
    assert Spans(starts, rows, 9).width == 4
    assert Spans(starts, rows, 10).width == 0  # the last element failed
    assert Spans(starts, np.array([4, 3, 1]), 9).width == 0
    assert Spans(np.array([0, 5, 9]), np.array([4, 4, 1]), 10).width == 0
    assert Spans(starts, np.array([4, 4, 5]), 13).width == 0
    assert Spans(np.empty(0), np.empty(0), 0).width == 0
