"""FILE, OFF, HINT and AUTO: processes with elements of their own, and how they end together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.distribute.together import contexts, each, meeting, run, steps, with_policy

import tundish as td
from tundish.errors import SpecError

Make = Callable[[list[int]], td.Dataset]


@pytest.fixture
def files(tmp_path: Path) -> Make:
    """A dataset of numbers in files, so many in each."""

    def make(sizes: list[int]) -> td.Dataset:
        first = 0
        for at, size in enumerate(sizes):
            numbers = [b"%d" % n for n in range(first, first + size)]
            td.TFRecordWriter(tmp_path / f"{at}.tfrecord").write(td.Dataset.from_source(numbers))
            first += size
        return td.Dataset.list_files(str(tmp_path / "*.tfrecord"))

    return make


def number(record: bytes) -> int:
    return int(record)


def rows(found: list[Any]) -> list[int]:
    return sorted(row for process in found for step in process for part in step for row in part)


READERS: dict[str, Callable[[td.Dataset], td.Dataset]] = {
    "interleave": lambda paths: paths.interleave(td.TFRecordDataset, cycle_length=2),
    "flat_map": lambda paths: paths.flat_map(td.TFRecordDataset),
    "reader": td.TFRecordDataset,
    "in turn": lambda paths: td.TFRecordDataset(paths, num_parallel_reads=2),
    "paths mapped": lambda paths: paths.map(str).flat_map(td.TFRecordDataset),
    "paths twice": lambda paths: paths.repeat(1).flat_map(td.TFRecordDataset),
    "shuffled": lambda paths: paths.shuffle(9).flat_map(td.TFRecordDataset).shuffle(7),
    "filtered": lambda paths: paths.flat_map(td.TFRecordDataset).filter(lambda r: len(r) > 0),
    "mixed": lambda paths: td.Dataset.sample_from_datasets([paths.flat_map(td.TFRecordDataset)]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_record_once_over_all_processes(files: Make, reader: str, count: int) -> None:
    ds = READERS[reader](files([5, 0, 9, 3, 7])).map(number).batch(6)
    found = run(with_policy(ds, "file"), count, uneven="ignore")

    assert rows(found) == list(range(24))
    assert all(len(part) <= 6 // count for process in found for step in process for part in step)


def test_each_process_reads_its_own_files(files: Make) -> None:
    ds = files([2, 2, 2, 2]).flat_map(td.TFRecordDataset).map(number).batch(4)
    found = run(with_policy(ds, "file"), 2, uneven="ignore")

    assert rows(found[:1]) == [0, 1, 4, 5]
    assert rows(found[1:]) == [2, 3, 6, 7]


def test_arrays_of_paths_and_a_choice_of_them(files: Make) -> None:
    paths = [str(p) for p in files([2, 2, 2, 2]).take(0).concatenate(files([2, 2, 2, 2]))]
    ds = td.Dataset.from_tensor_slices(sorted(paths)).take(3).flat_map(td.TFRecordDataset)
    found = run(with_policy(ds.map(number).batch(2), "file"), 2, uneven="ignore")

    assert [rows([process]) for process in found] == [[0, 1, 4, 5], [2, 3]]


def listed(paths: td.Dataset) -> list[str]:
    return sorted(map(str, paths))


REFUSED: dict[str, tuple[Callable[[td.Dataset], td.Dataset], str]] = {
    "too few files": (
        lambda p: td.Dataset.from_list(listed(p)).take(2).flat_map(td.TFRecordDataset).batch(6),
        "2 file.s., which",
    ),
    "no files": (lambda p: td.Dataset.range(4).batch(6), "range is not a list of files"),
    "take": (lambda p: td.TFRecordDataset(p).take(3).batch(6), "take would see"),
    "enumerate": (lambda p: td.TFRecordDataset(p).enumerate().batch(6), "enumerate would see"),
    "unique": (lambda p: td.TFRecordDataset(p).unique().batch(6), "unique would see"),
    "zip": (lambda p: td.Dataset.zip(td.TFRecordDataset(p), td.TFRecordDataset(p)).batch(6), "zip"),
    "no batch": (td.TFRecordDataset, "does not end with a batch"),
    "a choice without a seed": (
        lambda p: p.shuffle(9).take(4).flat_map(td.TFRecordDataset).batch(6),
        "shuffle has no seed",
    ),
    "nobody knows": (
        lambda p: td.TFRecordDataset(p).filter(lambda r: True).batch(6),
        "before files are read",
    ),
    "other numbers of steps": (
        lambda p: td.TFRecordDataset(listed(p)).batch(6),
        "elements of their files",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_divided_by_files_is_refused(files: Make, what: str) -> None:
    build, says = REFUSED[what]
    with pytest.raises(ValueError, match=says):
        each(with_policy(build(files([2, 8, 2, 2])), "file"), 3)


def counted(files: Make) -> td.Dataset:
    """Processes 0 and 1 of 2 have 7 and 4 records."""
    paths = files([5, 4, 2])
    ds = td.TFRecordDataset(sorted(str(p) for p in paths)).map(lambda r: {"x": int(r)})
    return with_policy(ds.batch(4), "file")


def test_what_indexes_tell_ends_processes_together(files: Make) -> None:
    ds = counted(files)

    assert [one.cardinality for one in each(ds, 2, uneven="drop")] == [2, 2]
    dropped = run(ds, 2, uneven="drop")
    assert [[part["x"] for step in process for part in step] for process in dropped] == [
        [[0, 1], [2, 3]],
        [[5, 6], [7, 8]],
    ]
    padded = run(ds, 2, uneven="pad")
    assert [len(process) for process in padded] == [4, 4]
    real = [
        x
        for process in padded
        for step in process
        for part in step
        for x, valid in zip(part["x"], part["valid"], strict=True)
        if valid
    ]
    assert sorted(real) == list(range(11))
    assert [len(process) for process in run(ds, 2, uneven="ignore")] == [4, 2]
    for uneven in ("error", None):
        with pytest.raises(ValueError, match=r"\[7, 4\] elements .* \[4, 2\] steps"):
            each(ds, 2, uneven=uneven)


@pytest.mark.parametrize("uneven", ["drop", "pad", "error"])
def test_processes_agree_where_no_plan_tells(files: Make, uneven: str) -> None:
    ds = files([5, 4, 2]).flat_map(td.TFRecordDataset).map(lambda r: {"x": int(r)}).batch(4)

    def make(index: int, all_min: Any) -> Any:
        return td.distribute.distribute_dataset(
            with_policy(ds, "file"), context=contexts(2)[index], uneven=uneven, all_min=all_min
        )

    if uneven == "error":
        with pytest.raises(SpecError, match="one process has 2 rows and another 0"):
            meeting(make, 2)
        return
    found = meeting(make, 2)
    assert [len(process) for process in found] == ([2, 2] if uneven == "drop" else [4, 4])


def test_sizes_that_do_not_divide_are_whole_over_all_processes() -> None:
    """The rows of tensorflow 2.21 with OFF, 2 workers and a batch of 7."""
    ds = with_policy(td.Dataset.range(13).batch(7), "off")

    assert run(ds, 2) == [
        [[[0, 1, 2, 3]], [[4, 5, 6]], [[7, 8, 9, 10]], [[11, 12]]],
        [[[0, 1, 2]], [[3, 4, 5, 6]], [[7, 8, 9]], [[10, 11, 12]]],
    ]


def lines(folder: Path, sizes: list[int]) -> td.Dataset:
    """Numbers in files that are read by number, so many in each."""
    paths = [folder / f"{at}.txt" for at in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_text("".join(f"{n}\n" for n in range(size)), encoding="utf-8")
    return td.TextLineDataset([str(path) for path in paths]).map(number)


def test_sizes_that_do_not_divide_end_together_too(tmp_path: Path) -> None:
    """Each process counts the steps of the others by their sizes: 4 3 3, 3 3 4, 3 4 3."""
    ds = with_policy(lines(tmp_path, [29, 6, 13]).batch(10), "file")
    found = run(ds, 3, 3, uneven="drop")

    assert [[sum(map(len, step)) for step in process] for process in found] == [
        [4, 3],
        [3, 3],
        [3, 4],
    ]
    assert [len(process) for process in run(ds, 3, 3, uneven="ignore")] == [9, 2, 4]


DROPPING: dict[str, tuple[Callable[[td.Dataset], td.Dataset], list[int]]] = {
    "a size that does not divide": (lambda ds: ds.batch(7, drop_remainder=True), [13, 15]),
    "mapped batches": (lambda ds: ds.batch(4, drop_remainder=True).map(abs), [7, 6]),
    "less than a batch": (lambda ds: ds.batch(7, drop_remainder=True), [5, 20]),
    "a size that divides": (lambda ds: ds.batch(4, drop_remainder=True), [7, 5]),
}


@pytest.mark.parametrize("what", DROPPING)
@pytest.mark.parametrize("uneven", ["drop", None])
def test_what_drop_remainder_drops_is_no_step(tmp_path: Path, what: str, uneven: Any) -> None:
    """Each process drops the rest of its own batches before steps are cut from them."""
    build, sizes = DROPPING[what]
    ds = with_policy(build(lines(tmp_path, sizes)), "file")
    try:
        told = [one.cardinality for one in each(ds, 2, uneven=uneven)]
    except ValueError:  # not the same number of steps
        assert uneven is None
        return

    assert [len(process) for process in run(ds, 2, uneven=uneven)] == told
    assert len(set(told)) == 1


def test_a_process_whose_files_are_empty_fills_its_steps_up(tmp_path: Path) -> None:
    ds = lines(tmp_path, [5, 0]).map(lambda x: {"x": x}).batch(4)
    first, second = run(with_policy(ds, "file"), 2, uneven="pad")

    assert len(first) == len(second) == 3
    assert second == [[{"x": [0, 0], "valid": [False, False]}]] * 3


def test_one_process_has_the_batches_as_they_are() -> None:
    """Batches may be of many shapes, which cannot be put together anew."""
    ds = td.Dataset.range(7).map(lambda x: np.zeros(int(x))).padded_batch(5).repeat(2)
    ((*found,),) = run(with_policy(ds, "off"), 1)

    assert [np.shape(part) for step in found for part in step] == [(5, 4), (2, 6)] * 2


def test_a_dataset_that_is_divided_already() -> None:
    found = [
        steps(iter(one))
        for index in range(2)
        for one in each(with_policy(td.Dataset.range(8).shard(2, index).batch(4), "off"), 2)[
            index:
        ][:1]
    ]

    assert found == [[[[0, 2]], [[4, 6]]], [[[1, 3]], [[5, 7]]]]
    with pytest.raises(ValueError, match="all_min"):
        each(with_policy(td.Dataset.range(8).batch(4), "off"), 2, uneven="drop")


def test_a_hint_says_where() -> None:
    hint = td.experimental.SHARD_HINT
    ds = td.Dataset.range(12).shard(hint, hint).map(lambda x: x * 10).batch(4)

    assert next(iter(ds)).tolist() == [0, 10, 20, 30]
    assert run(with_policy(ds, "hint"), 2) == [
        [[[0, 20]], [[40, 60]], [[80, 100]]],
        [[[10, 30]], [[50, 70]], [[90, 110]]],
    ]
    with pytest.raises(ValueError, match="but the plan has none"):
        each(with_policy(td.Dataset.range(4).batch(2), "hint"), 2)


def test_what_auto_chooses(files: Make) -> None:
    paths = files([4, 4, 4])
    finite = paths.flat_map(td.TFRecordDataset).batch(6)
    numbered = td.TFRecordDataset(sorted(map(str, paths))).repeat().batch(6)

    def forms(ds: td.Dataset, count: int = 2) -> str:
        with iter(each(ds, count)[0]) as iterator:
            return str(iterator.state_dict()["distributed"]["form"])

    assert forms(finite) == "share"  # else nobody would know when all end
    assert forms(finite.repeat()) == "own"
    assert forms(finite.repeat(), 4) == "share"  # too few files
    assert forms(numbered) == "share"  # read by number: each reads its own records alone
    assert forms(td.Dataset.range(9).repeat().batch(6)) == "share"


def test_the_share_of_a_padded_batch(files: Make) -> None:
    ds = files([4, 4]).flat_map(td.TFRecordDataset).map(lambda r: np.full(int(r) % 3 + 1, int(r)))
    found = run(with_policy(ds.padded_batch(4), "file"), 2, uneven="ignore")

    assert [len(part) for process in found for step in process for part in step] == [2] * 4


def grown(text: bytes) -> np.ndarray:
    return np.full(int(text) % 5 + 1, int(text))


@pytest.mark.parametrize("policy", ["file", "off"])
def test_padded_batches_that_are_repeated(files: Make, policy: str) -> None:
    """Each pass ends with a short one, and the next begins with one of its own width."""
    ds = files([5, 4]).flat_map(td.TFRecordDataset).map(grown).padded_batch(4).repeat(2)
    found = run(with_policy(ds, policy), 2, uneven="ignore")

    share = [[2, 2, 1] * 2, [2, 2] * 2] if policy == "file" else [[2, 2, 2, 2, 1] * 2] * 2
    assert [[len(part) for step in process for part in step] for process in found] == share
    assert {len({len(row) for row in part}) for process in found for (part,) in process} == {1}


OPEN: dict[str, Callable[[td.Dataset], td.Dataset]] = {
    "shuffle": lambda ds: ds.map(grown).padded_batch(4).shuffle(9, seed=1),
    "repeat": lambda ds: ds.map(grown).padded_batch(5).repeat(2),
    "a map between": lambda ds: ds.map(grown).padded_batch(4).map(abs).shuffle(9, seed=1),
}
SETTLED: dict[str, Callable[[td.Dataset], td.Dataset]] = {
    "dropped": lambda ds: ds.map(grown).padded_batch(4, drop_remainder=True).shuffle(9, seed=1),
    "one width": lambda ds: ds.map(grown).padded_batch(4, padded_shapes=[5]).shuffle(9, seed=1),
    "before": lambda ds: ds.map(grown).shuffle(9, seed=1).padded_batch(4),
    "stacked": lambda ds: ds.batch(4).shuffle(9, seed=1),
}


@pytest.mark.parametrize("what", OPEN)
def test_padded_batches_behind_a_short_one_are_refused(files: Make, what: str) -> None:
    ds = OPEN[what](files([5, 5]).flat_map(td.TFRecordDataset))
    with pytest.raises(ValueError, match=r"drop_remainder=True, give padded_shapes"):
        run(with_policy(ds, "file"), 2, uneven="ignore")


@pytest.mark.parametrize("what", SETTLED)
def test_what_they_are_told_to_do_instead(files: Make, what: str) -> None:
    ds = SETTLED[what](files([6, 6]).flat_map(td.TFRecordDataset))
    found = run(with_policy(ds, "file"), 2, uneven="ignore")

    rows = sum(len(part) for process in found for step in process for part in step)
    assert rows == (8 if what == "dropped" else 12)


def test_a_state_belongs_to_its_process(files: Make) -> None:
    ds = with_policy(files([4, 4, 4]).flat_map(td.TFRecordDataset).map(number).batch(6), "file")
    pair = each(ds, 2, uneven="ignore")
    with pair[1].iterator(workers=0) as iterator:
        head = steps(iterator, 1)
        state = iterator.state_dict()
        rest = steps(iterator)
    assert head
    with each(ds, 2, uneven="ignore")[1].iterator(workers=0) as iterator:
        iterator.load_state_dict(state)
        assert steps(iterator) == rest
    for other in (pair[0], each(ds, 3, uneven="ignore")[1]):
        refused = pytest.raises(td.errors.IncompatibleCheckpointError, match="process 1 of 2")
        with iter(other) as iterator, refused:
            iterator.load_state_dict(state)


def test_ragged_batches_of_a_process_need_no_cut_for_one_replica(tmp_path: Path) -> None:
    ds = with_policy(lines(tmp_path, [4, 4]).map(np.arange).ragged_batch(4), "file")

    found = [[step.to_list() for step in one] for one in each(ds, 2)]
    assert found == [[[[], [0]], [[0, 1], [0, 1, 2]]]] * 2
