"""Batches that are gathered in columns are those of elements stacked one by one."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tundish import Dataset
from tundish.errors import SpecError
from tundish.loader.protocols.collate import collate
from tundish.testing.compare import collect, difference

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 41
_rng = np.random.default_rng(3)
_GAPS = np.dtype([("a", "u1"), ("b", "f8")], align=True)


def _structs() -> np.ndarray:
    rows = np.empty(COUNT, _GAPS)
    rows["a"], rows["b"] = np.arange(COUNT), _rng.random(COUNT)
    return rows


COLUMNS: dict[str, Any] = {
    "numbers": np.arange(COUNT) * 3,
    "a dict": {
        "x": _rng.random(COUNT),
        "y": (np.arange(COUNT, dtype=np.int8), np.ones((COUNT, 2))),
    },
    "bool": np.arange(COUNT) % 3 == 0,
    "big-endian": np.arange(COUNT, dtype=">i4"),
    "every other row": np.arange(2 * COUNT)[::2],
    "backwards": np.arange(COUNT)[::-1],
    "Fortran's order": np.asfortranarray(_rng.random((COUNT, 5))),
    "images": _rng.integers(0, 255, (COUNT, 4, 3), np.uint8),
    "rows of nothing": np.zeros((COUNT, 0)),
    "structs with gaps": _structs(),
    "times": np.arange(COUNT).astype("M8[s]"),
    "text": np.array([f"word {k}" for k in range(COUNT)]),
    "bytes": np.array([b"\0%d\0" % k for k in range(COUNT)], object),
    "text and bytes": np.array([b"x" if k % 5 == 4 else "y" for k in range(COUNT)], object),
    "objects": np.array([{k} for k in range(COUNT)], object),
    "numbers as objects": np.array(list(range(COUNT)), object),
    "read-only": np.broadcast_to(np.float32(2.5), (COUNT, 3)),
}


def _other(ds: Dataset) -> Dataset:
    return Dataset.zip(Dataset.range(100, 100 + COUNT), ds)


ORDERS: dict[str, Callable[[Dataset], Dataset]] = {
    "as they are": lambda ds: ds,
    "shuffle(None)": lambda ds: ds.shuffle(None, seed=4),
    "shuffle(7)": lambda ds: ds.shuffle(7, seed=4),
    "skip.take": lambda ds: ds.skip(3).take(30),
    "shard": lambda ds: ds.shard(3, 1),
    "shuffle.shard.repeat": lambda ds: ds.shuffle(None, seed=4).shard(2, 1).repeat(3),
    "shuffle(7).repeat": lambda ds: ds.shuffle(7, seed=4).repeat(2),
    "enumerate": lambda ds: ds.enumerate(5).shuffle(None, seed=4),
    "zip": _other,
    "concatenate": lambda ds: ds.concatenate(ds.shuffle(None, seed=1)).shuffle(None, seed=2),
    "batch.unbatch": lambda ds: ds.batch(6).unbatch(),
    "map_batches": lambda ds: ds.map_batches(_same, 6),
    "shuffle(7).take.concatenate": lambda ds: ds.shuffle(7, seed=4).take(19).concatenate(ds),
    "shuffle(7).shard.skip": lambda ds: ds.shuffle(7, seed=4).shard(2, 1).skip(2),
    "concatenate.shuffle(7)": lambda ds: ds.concatenate(ds).shuffle(7, seed=4).repeat(2),
    "batch.unbatch.repeat.take": lambda ds: ds.batch(6).unbatch().repeat(2).take(60),
    "batch.unbatch.skip.concatenate": lambda ds: ds.batch(6).unbatch().skip(3).concatenate(ds),
    "enumerate.shuffle(7)": lambda ds: ds.enumerate(5).shuffle(7, seed=4),
    "batch.unbatch.shuffle": lambda ds: ds.batch(6).unbatch().shuffle(5, seed=4),
}


def assert_alike(found: list[Any], want: list[Any]) -> None:
    told = difference(collect(iter(want)), collect(iter(found)))
    assert not told, told


def _same(*parts: Any, **fields: Any) -> Any:
    return fields or (parts if len(parts) > 1 else parts[0])


def _stacked(elements: list[Any], size: int) -> list[Any]:
    """The batches, put together an element at a time."""
    return [
        collate(elements[first : first + size], len(elements[first : first + size]))
        for first in range(0, len(elements), size)
    ]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_batches_are_the_elements_stacked(columns: str, order: str) -> None:
    ds = ORDERS[order](Dataset.from_tensor_slices(COLUMNS[columns]))
    want = _stacked(list(ds.iterator(workers=0)), 8)
    found = list(ds.batch(8).iterator(workers=0))
    assert_alike(found, want)


@pytest.mark.parametrize("order", ORDERS)
def test_a_state_after_each_batch_goes_on_there(order: str) -> None:
    ds = ORDERS[order](Dataset.from_tensor_slices(COLUMNS["a dict"])).batch(8)
    want = collect(ds.iterator(workers=0))
    iterator = ds.iterator(workers=0)
    for given in range(1, len(want)):
        next(iterator)
        again = ds.iterator(workers=0)
        again.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
        told = difference(want[given:], collect(again))
        assert not told, told


@pytest.mark.parametrize("order", ORDERS)
def test_batches_are_the_callers_own(order: str) -> None:
    ds = ORDERS[order](Dataset.from_tensor_slices(COLUMNS["a dict"])).batch(8)
    want = collect(ds.iterator(workers=0))
    for batch in ds.iterator(workers=0):
        for leaf in _leaves(batch):
            leaf[...] = 0
    told = difference(want, collect(ds.iterator(workers=0)))
    assert not told, told


def _leaves(nest: Any) -> list[np.ndarray]:
    if isinstance(nest, dict):
        nest = tuple(nest.values())
    return [nest] if isinstance(nest, np.ndarray) else [x for part in nest for x in _leaves(part)]


def test_gathered_with_workers() -> None:
    ds = Dataset.from_tensor_slices(COLUMNS["a dict"]).shuffle(None, seed=4).batch(8).map(_same)
    assert_alike(list(ds.iterator(workers=2)), list(ds.iterator(workers=0)))


def _sevenths(x: Any) -> Any:
    return float(x) if x % 7 == 6 else int(x)


def test_numbers_of_another_type_fail_where_they_stand() -> None:
    """The first one that does not fit is the error, and those after it begin the next batch."""
    ds = Dataset.range(17).map(_sevenths).batch(5)
    iterator = ds.iterator(workers=0)
    seen: list[Any] = []
    while True:
        try:
            seen.append(next(iterator).tolist())
        except SpecError as error:
            seen.append([int(str(note).rpartition(" ")[2]) for note in error.__notes__[:1]])
            again = ds.iterator(workers=0)
            again.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
            rest = [x.tolist() for x in [next(again)]]
            iterator = again
            seen += rest
        except StopIteration:
            break
    assert seen == [[0, 1, 2, 3, 4], [6], [7, 8, 9, 10, 11], [13], [14, 15, 16]]


def test_columns_of_another_dtype_fail_where_they_stand() -> None:
    ds = Dataset.range(12).map_batches(lambda x: x.astype(float) if x[0] == 4 else x, 4).batch(6)
    iterator = ds.iterator(workers=0)
    with pytest.raises(SpecError, match="element 4 of the batch is float64"):
        next(iterator)
    again = ds.iterator(workers=0)
    again.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
    for each in (iterator, again):
        with pytest.raises(SpecError, match="element 3 of the batch is int64") as found:
            next(each)
        assert "(0, (4, 5, 6, 7)" in str(found.value.__notes__) or "3 element" in str(
            found.value.__notes__
        )
        assert next(each).tolist() == [9, 10, 11]


def test_a_record_that_fails_has_the_others_made_one_by_one() -> None:
    class Records:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, at: int) -> int:
            if at == 4:
                raise OSError("torn")
            return at

    iterator = Dataset.from_source(Records()).batch(3).iterator(workers=0)
    assert next(iterator).tolist() == [0, 1, 2]
    with pytest.raises(Exception, match="torn"):
        next(iterator)
    assert [x.tolist() for x in iterator] == [[5, 6, 7], [8]]


def _wide_and_narrow() -> Dataset:
    """Rows of three and of one number: numpy would make one fit the other."""
    wide, narrow = np.arange(60.0).reshape(20, 3), np.arange(20.0).reshape(20, 1)
    slices = Dataset.from_tensor_slices
    return slices(wide).concatenate(slices(narrow))


def _ints_and_floats() -> Dataset:
    return Dataset.range(60).filter(lambda x: x % 3).map(lambda x: float(x) if x > 17 else int(x))


@pytest.mark.parametrize(
    "ds",
    [
        _wide_and_narrow().batch(8),
        _wide_and_narrow().shuffle(None, seed=4).batch(8),
        _wide_and_narrow().shuffle(7, seed=4).batch(8),
        _wide_and_narrow().shuffle(7, seed=4).repeat(2).batch(8),
        _ints_and_floats().batch(8),
    ],
    ids=["in order", "permuted", "window", "window, repeated", "numbers"],
)
def test_a_state_after_each_outcome_goes_on_there(ds: Dataset) -> None:
    """After a batch that is an error, too: the elements after the bad one are in the next batch."""
    want = collect(ds.iterator(workers=0))
    assert len([one for one in want if one.error is not None]) > 0
    assert not difference(want, collect(ds.iterator(workers=2)))
    iterator = ds.iterator(workers=0)
    for given in range(1, len(want)):
        with contextlib.suppress(SpecError):
            next(iterator)
        again = ds.iterator(workers=0)
        again.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
        told = difference(want[given:], collect(again))
        assert not told, told


def _add_one(batch: dict[str, Any]) -> dict[str, Any]:
    batch["x"] += 1
    return batch


@pytest.mark.parametrize(
    "build",
    [
        lambda ds: ds.batch(6).map(_add_one),
        lambda ds: ds.shuffle(7, seed=4).batch(6).map(_add_one),
        lambda ds: ds.batch(6).cache().unbatch().batch(6).map(_add_one),
    ],
    ids=["batch", "window", "cached batches, unbatched"],
)
def test_a_function_may_change_its_batch(build: Callable[[Dataset], Dataset]) -> None:
    x = np.arange(12.0)
    ds = build(Dataset.from_tensor_slices({"x": x}))
    for _ in range(3):
        found = [value for batch in ds.iterator(workers=0) for value in batch["x"].tolist()]
        assert sorted(found) == list(range(1, 13))
    assert x.tolist() == list(range(12))
