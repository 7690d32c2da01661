"""Reading a snapshot: views, slices, index arithmetic, no worker that is not needed; damage is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.snapshot.leaves import is_mapped

import tundish as td
from tundish.errors import SnapshotCorruptError
from tundish.testing.compare import collect

COUNT = 60


def images(x: np.int64) -> dict[str, Any]:
    return {"image": np.full((40, 50), x, np.float32), "label": x, "name": f"n{x}"}


def keep(tmp_path: Path) -> td.Dataset:
    """A complete snapshot, no fixture: pytest would hold it, and its files, longer than the test."""
    ds = td.Dataset.range(COUNT).map(images).snapshot(tmp_path / "s", batch_bytes=100_000)
    assert sum(1 for _ in ds) == COUNT
    return ds


@pytest.mark.parametrize("workers", [0, 2])
def test_arrays_are_read_only_in_every_epoch(tmp_path: Path, workers: int) -> None:
    for ds in (
        td.Dataset.range(COUNT).map(images).snapshot(tmp_path / "s"),
        td.Dataset.range(COUNT).map(images).snapshot(tmp_path / "b", batch_bytes=50_000).batch(7),
        td.Dataset.range(COUNT).map(images).snapshot(tmp_path / "c", compression="lz4"),
    ):
        for _ in range(2):
            with ds.iterator(workers=workers) as it:
                assert {element["image"].flags.writeable for element in it} == {False}


def test_what_a_function_makes_of_it_is_ones_own(tmp_path: Path) -> None:
    kept = keep(tmp_path)
    for image in kept.map(lambda e: e["image"] * 2):
        image.fill(0)


def test_elements_and_slices_are_views_of_the_files(tmp_path: Path) -> None:
    kept = keep(tmp_path)
    assert all(is_mapped(element["image"]) for element in kept)
    first = next(iter(kept.batch(10)))
    assert is_mapped(first["image"])
    assert is_mapped(next(iter(kept.map(lambda e: (e["image"], e["label"]))))[0])


def test_random_access(tmp_path: Path) -> None:
    kept = keep(tmp_path)
    assert int(kept[7]["label"]) == 7
    assert int(kept[-1]["label"]) == COUNT - 1
    assert is_mapped(kept[7]["image"])
    with pytest.raises(IndexError, match=f"from -{COUNT} to {COUNT - 1} in a dataset"):
        kept[COUNT]
    with pytest.raises(TypeError, match="index must be an int"):
        kept["a"]  # type: ignore[index]  # that is what is refused
    order = [int(e["label"]) for e in kept.shuffle(None, seed=3).shard(2, 1).skip(3)]
    assert len(set(order)) == COUNT // 2 - 3
    assert order == [
        int(kept.shuffle(None, seed=3).shard(2, 1).skip(3)[k]["label"]) for k in range(27)
    ]


def test_permuting_needs_a_complete_one(tmp_path: Path) -> None:
    ds = td.Dataset.range(9).filter(lambda x: x % 2 == 0).snapshot(tmp_path).shuffle(None, seed=1)
    with pytest.raises(
        td.errors.SpecError, match=r"is not: run the pipeline up to the\s+snapshot first"
    ):
        iter(ds)
    assert sum(1 for _ in td.Dataset.range(9).filter(is_even).snapshot(tmp_path / "2")) == 5
    again = td.Dataset.range(9).filter(is_even).snapshot(tmp_path / "2").shuffle(None, seed=1)
    assert sorted(int(x) for x in again) == [0, 2, 4, 6, 8]


def is_even(x: np.int64) -> bool:
    return bool(x % 2 == 0)


def test_nobody_works_where_nothing_is_computed(tmp_path: Path) -> None:
    kept = keep(tmp_path)
    ds = kept.shuffle(None, seed=1).batch(8).repeat(2).with_options(td.Options(workers=3))
    with iter(ds) as it:
        assert it.worker_pids() == []
        assert it.stats.workers == 0
        assert len(collect(it)) == 16
    with kept.map(lambda e: e["label"]).iterator(workers=2) as it:
        assert it.stats.workers == 2
        assert [int(x) for x in it] == list(range(COUNT))


def test_workers_asked_for_below_read_what_is_compressed(tmp_path: Path) -> None:
    ds = td.Dataset.range(COUNT).map(images, num_parallel_calls=2)
    plain, packed = ds.snapshot(tmp_path / "p"), ds.snapshot(tmp_path / "z", compression="ZSTD")
    for each, workers in ((plain, 0), (packed, 2)):
        assert sum(1 for _ in each) == COUNT
        with iter(each.batch(7)) as it:
            assert it.stats.workers == workers
            assert [int(x) for batch in it for x in batch["label"]] == list(range(COUNT))


def test_a_changed_byte_is_told_at_its_elements(tmp_path: Path) -> None:
    keep(tmp_path)
    (file,) = tmp_path.rglob("shard-*.arrow")
    data = bytearray(file.read_bytes())
    at = data.find(np.full(100, 30, np.float32).tobytes())
    data[at] ^= 1
    file.unlink()
    file.write_bytes(data)
    ds = td.Dataset.range(COUNT).map(images).snapshot(tmp_path / "s", verify="batch")
    good, bad = [], []
    with iter(ds) as it:
        while True:
            try:
                good.append(int(next(it)["label"]))
            except SnapshotCorruptError as error:
                bad.append(str(error))
            except StopIteration:
                break
    assert len(good) + len(bad) == COUNT
    assert 30 not in good
    assert 0 < len(bad) < COUNT
    assert file.name in bad[0]


@pytest.mark.parametrize("how", ["shard", "index", "run"])
def test_what_is_missing_is_named(tmp_path: Path, how: str) -> None:
    keep(tmp_path)
    pattern = {"shard": "shard-*.arrow", "index": "index.arrow", "run": "run.json"}[how]
    (file,) = tmp_path.rglob(pattern)
    file.unlink()
    ds = td.Dataset.range(COUNT).map(images).snapshot(tmp_path / "s")
    with pytest.raises(td.errors.SnapshotError, match=file.name):
        iter(ds)


def test_a_snapshot_may_be_only_read(tmp_path: Path) -> None:
    keep(tmp_path)

    def made(mode: Any) -> td.Dataset:
        return td.Dataset.range(COUNT).map(images).snapshot(tmp_path / "s", mode=mode)

    assert sum(1 for _ in made("read")) == COUNT
    other = td.Dataset.range(COUNT + 1).map(images).snapshot(tmp_path / "s", mode="read")
    with pytest.raises(td.errors.IncompleteSnapshotError, match="mode='read' needs a complete"):
        iter(other)
    strict = td.Dataset.range(COUNT + 1).map(images).snapshot(tmp_path / "s", on_mismatch="error")
    with pytest.raises(td.errors.IncompatibleSnapshotError, match=r"stop.* 60 -> 61"):
        iter(strict)
    files = sorted(tmp_path.rglob("*"))
    assert sum(1 for _ in made("off")) == COUNT
    assert sorted(tmp_path.rglob("*")) == files


@pytest.mark.parametrize("workers", [0, 2])
def test_one_is_made_anew_in_the_place_of_another(tmp_path: Path, workers: int) -> None:
    def made(scale: int, mode: Any) -> td.Dataset:
        ds = td.Dataset.range(9).map(lambda x: x * scale)
        return ds.snapshot(tmp_path, mode=mode, version="one")

    assert [int(x) for x in made(1, "auto")] == list(range(9))
    old = made(1, "auto").iterator()
    assert int(next(old)) == 0
    with made(2, "write").iterator(workers=workers) as it:
        assert [int(x) for x in it] == list(range(0, 18, 2))
    assert [int(x) for x in made(3, "read")] == list(range(0, 18, 2))
    assert [int(x) for x in old] == list(range(1, 9))  # as long as the files are there
