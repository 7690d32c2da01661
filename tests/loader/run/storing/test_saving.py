"""`save`, `load` and `reader_func`."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.loader.run.storing.counted import Counted

import tundish as td
from tundish import Dataset
from tundish.errors import SnapshotCorruptError
from tundish.loader.run.storing import recorder
from tundish.snapshot.upkeep import gc
from tundish.testing import assert_resumes_anywhere, assert_workers_do_not_show


def ints(ds: Any, workers: int = 0) -> list[int]:
    with ds.iterator(workers=workers) as it:
        return [int(x) for x in it]


def third(x: Any) -> Any:
    return x % 3


def in_turn(shards: Dataset) -> Dataset:
    return shards.interleave(itself, cycle_length=3)


def mixed(shards: Dataset) -> Dataset:
    return shards.shuffle(3, seed=2).flat_map(itself).shuffle(4, seed=1)


def itself(shard: Dataset) -> Dataset:
    return shard


def fails_at_seven(x: Any) -> Any:
    if x == 7:
        raise LookupError("seven")
    return x


IN_TURN = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
BY_SHARD = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]


@pytest.mark.parametrize("compression", [None, "auto", "lz4", "zstd"])
def test_what_is_saved_is_loaded(tmp_path: Path, compression: str | None) -> None:
    elements = [{"x": np.arange(n, dtype=np.int16), "y": ("a" * n, b"b")} for n in range(5)]
    Dataset.from_list(elements).save(tmp_path, compression)
    ds = Dataset.load(tmp_path, compression=compression)

    assert [e["x"].tolist() for e in ds] == [list(range(n)) for n in range(5)]
    assert ds[-1]["y"] == ("aaaa", b"b")
    assert ds[4]["x"].dtype == np.int16
    assert ds.element_spec == {
        "x": td.ArraySpec((None,), "int16"),
        "y": (td.ArraySpec((), str), td.ArraySpec((), bytes)),
    }
    assert Dataset.load(tmp_path, element_spec=ds.element_spec)[0]["y"] == ("", b"b")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_fails_the_save(tmp_path: Path, workers: int) -> None:
    Dataset.range(3).save(tmp_path)
    ds = Dataset.range(20).map(fails_at_seven).with_options(td.Options(workers=workers))
    with pytest.raises(LookupError, match="seven"):
        ds.save(tmp_path)

    assert ints(Dataset.load(tmp_path)) == [0, 1, 2]
    assert len([*tmp_path.iterdir()]) == 1, "nothing of it is left"


def test_a_save_that_fails_lets_go_of_the_files_of_snapshots_upstream(tmp_path: Path) -> None:
    ds = Dataset.range(20).map(fails_at_seven).snapshot(tmp_path / "upstream", batch_bytes=1)
    with pytest.raises(LookupError, match="seven"):
        ds.save(tmp_path / "saved")

    assert not list(tmp_path.glob("upstream/*/runs/*/*.tmp*"))


def test_a_save_that_failed_is_continued(tmp_path: Path) -> None:
    folder, calls = tmp_path / "kept", Counted(str(tmp_path / "calls"))
    missing = tmp_path / "missing"

    def late(x: Any) -> Any:
        if x == 70 and not missing.exists():
            raise LookupError("not yet")
        return x

    ds = Dataset.range(10).map(calls).map(late)
    for _ in range(2):
        with pytest.raises(LookupError, match="not yet"):
            ds.save(folder, checkpoint_args={})
    missing.touch()
    assert calls.calls == 16
    ds.save(folder, checkpoint_args={"checkpoint_interval": 3})

    assert ints(Dataset.load(folder)) == [10 * n for n in range(10)]
    assert calls.calls <= 10
    assert len([*folder.iterdir()]) == 1
    Dataset.range(4).save(folder, checkpoint_args={})
    assert ints(Dataset.load(folder)) == [0, 1, 2, 3]


def test_a_save_is_not_continued_by_another_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(x: Any) -> Any:
        if x == 7:
            raise LookupError("seven")
        return x

    monkeypatch.setattr(recorder, "COMMIT_S", 0.0)  # what passes is durable at once
    with pytest.raises(LookupError, match="seven"):
        Dataset.range(9).map(stops).save(tmp_path, checkpoint_args={})
    Dataset.range(9).map(third).save(tmp_path, checkpoint_args={})

    assert ints(Dataset.load(tmp_path)) == [x % 3 for x in range(9)]


def test_each_save_is_a_new_one_whatever_was_removed(tmp_path: Path) -> None:
    rows = [np.arange(k, k + 3) for k in range(3)]
    for row in rows[:2]:
        Dataset.from_tensor_slices(row).save(tmp_path, checkpoint_args={})
    gc(tmp_path, older_than=0, keep=1, dry_run=False)
    Dataset.from_tensor_slices(rows[2]).save(tmp_path, checkpoint_args={})

    assert ints(Dataset.load(tmp_path)) == rows[2].tolist()


def test_a_function_that_cannot_be_compared_is_saved_all_the_same(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(x: Any) -> Any:
        with lock:
            return x + 1

    ds = Dataset.range(4).map(locked)
    for _ in range(2):
        ds.save(tmp_path, shard_func=locked, checkpoint_args={})
    assert ints(Dataset.load(tmp_path)) == [1, 2, 3, 4]


def test_load_waits_for_who_saves(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    begun = threading.Event()

    def write() -> None:
        begun.wait()
        Dataset.range(7).save(folder)

    thread = threading.Thread(target=write)
    thread.start()
    begun.set()
    ds = Dataset.load(folder, wait=True)
    thread.join()

    assert ints(ds) == [*range(7)]


def test_load_of_a_snapshot_is_the_newest_that_is_complete(tmp_path: Path) -> None:
    for count in (3, 5):
        list(Dataset.range(count).snapshot(tmp_path))
    with iter(Dataset.range(9).snapshot(tmp_path)) as it:
        next(it)

    assert len(Dataset.load(tmp_path)) == 5


def test_nothing_but_damaged_files_to_load(tmp_path: Path) -> None:
    Dataset.range(9).save(tmp_path)
    next(tmp_path.glob("*/manifest.json")).write_bytes(b"{}")

    with pytest.raises(SnapshotCorruptError, match=r"manifest\.json"):
        Dataset.load(tmp_path)


def test_a_loaded_dataset_is_a_source(tmp_path: Path) -> None:
    Dataset.range(20).map(third).batch(2).save(tmp_path)
    ds = Dataset.load(tmp_path)

    assert len(ds) == 10
    assert ds.shuffle(None, seed=1).shard(2, 1).cardinality() == 5
    again = Dataset.from_bytes(ds.map(np.sum).to_bytes())
    assert ints(again) == ints(ds.map(np.sum), workers=2)
    assert_workers_do_not_show(ds.unbatch().shuffle(5, seed=1).batch(3).repeat(2), (0, 2))
    assert_resumes_anywhere(ds.shuffle(None, seed=3).map(np.sum).repeat(2), (0, 2), steps=4)


def test_a_state_of_a_loaded_dataset_is_of_its_data(tmp_path: Path) -> None:
    Dataset.range(20).save(tmp_path / "one")
    Dataset.range(20).save(tmp_path / "other")
    with iter(Dataset.load(tmp_path / "one")) as it:
        next(it)
        state = it.state_dict()
    moved = (tmp_path / "one").rename(tmp_path / "moved")

    with iter(Dataset.load(moved)) as it:
        it.load_state_dict(state)
        assert next(it) == 1
    with (
        iter(Dataset.load(tmp_path / "other")) as it,
        pytest.raises(td.errors.IncompatibleCheckpointError, match="content"),
    ):
        it.load_state_dict(state)


@pytest.mark.parametrize(
    ("reader_func", "expected"),
    [(None, [*range(12)]), (in_turn, IN_TURN), (lambda s: s.flat_map(itself), BY_SHARD)],
    ids=["none", "in turn", "one by one"],
)
def test_orders_of_reading(tmp_path: Path, reader_func: Any, expected: list[int]) -> None:
    Dataset.range(12).save(tmp_path, shard_func=third)
    ds = Dataset.load(tmp_path, reader_func=reader_func)

    assert ints(ds) == ints(ds, workers=2) == expected


def test_without_shard_func_a_shard_is_a_file(tmp_path: Path) -> None:
    ds = Dataset.range(12).snapshot(
        tmp_path, shard_bytes=30, batch_bytes=30, reader_func=lambda shards: shards.map(len)
    )
    assert ints(ds) == [*range(12)]
    sizes = ints(ds)

    assert sum(sizes) == 12
    assert len(sizes) == len([*tmp_path.rglob("*.arrow")]) - 1 > 1


def test_errors_belong_to_a_shard(tmp_path: Path) -> None:
    by_shard = (
        Dataset.range(12)
        .map(fails_at_seven)
        .snapshot(tmp_path, shard_func=third, reader_func=lambda shards: shards.flat_map(itself))
    )
    for expected in ([*range(7), None, 8, 9, 10, 11], [0, 3, 6, None, 9, 1, 4, 10, 2, 5, 8, 11]):
        found: list[int | None] = []
        with by_shard.iterator(workers=0) as it:
            while len(found) < 12:
                try:
                    found.append(int(next(it)))
                except LookupError:
                    found.append(None)
            assert next(it, None) is None
        assert found == expected


def test_a_reader_func_that_returns_something_else(tmp_path: Path) -> None:
    ds = Dataset.range(3).snapshot(tmp_path, reader_func=lambda shards: 3)
    assert ints(ds) == [0, 1, 2]
    with pytest.raises(TypeError, match="reader_func must return a Dataset, not int"):
        iter(ds)


@pytest.mark.parametrize("workers", [(0, 0), (0, 2), (2, 0)])
@pytest.mark.parametrize(
    "behind", [lambda ds: ds, lambda ds: ds.shuffle(4, seed=1).batch(2)], ids=["alone", "shuffled"]
)
def test_a_state_keeps_the_order_in_which_it_was_taken(
    tmp_path: Path, workers: tuple[int, int], behind: Any
) -> None:
    kept = Dataset.range(12).snapshot(tmp_path, shard_func=third, reader_func=mixed)
    ds = behind(kept)
    for _ in ("written", "read"):
        with ds.iterator(workers=workers[0]) as it:
            for _ in range(3):
                next(it)
            state = json.loads(json.dumps(it.state_dict()))
            rest = [np.atleast_1d(x).tolist() for x in it]
        with ds.iterator(workers=workers[1]) as it:
            it.load_state_dict(state)
            assert it.state_dict() == state
            assert [np.atleast_1d(x).tolist() for x in it] == rest


def test_each_pass_has_an_order_of_its_own(tmp_path: Path) -> None:
    ds = Dataset.range(30).snapshot(tmp_path, shard_func=third, reader_func=mixed).repeat(3)
    assert ints(ds) == [*range(30)] * 3  # as they are written, to the end of this iterator
    found = ints(ds)
    passes = [found[:30], found[30:60], found[60:]]

    assert [sorted(one) for one in passes] == [[*range(30)]] * 3
    assert passes[0] != passes[1] != passes[2] != passes[0]
    assert_resumes_anywhere(ds, (0, 2), steps=5)


def test_no_random_access_in_an_order_of_the_user_s(tmp_path: Path) -> None:
    ds = Dataset.range(12).snapshot(tmp_path, shard_func=third, reader_func=mixed)
    list(ds)

    with pytest.raises(TypeError, match="no random access"):
        ds[3]


def test_the_older_spellings(tmp_path: Path) -> None:
    ds = Dataset.range(5).apply(td.experimental.snapshot(str(tmp_path / "kept"), None))
    assert ints(ds) == ints(td.experimental.load(tmp_path / "kept")) == [*range(5)]
    td.experimental.save(Dataset.range(3), tmp_path / "saved", compression="lz4")
    assert ints(td.experimental.load(tmp_path / "saved")) == [0, 1, 2]


def test_a_cache_in_files_is_of_its_pipeline(tmp_path: Path) -> None:
    folder, calls = tmp_path / "kept", Counted(str(tmp_path / "calls"))
    for _ in range(2):
        assert ints(Dataset.range(5).map(calls).cache(folder)) == [0, 10, 20, 30, 40]
    assert calls.calls == 5
    assert ints(Dataset.range(6).map(calls).cache(folder)) == [0, 10, 20, 30, 40, 50]
    assert calls.calls == 6
    assert [json.loads(p.read_bytes())["compression"] for p in folder.rglob("run.json")] == [
        None
    ] * 2
