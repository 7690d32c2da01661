"""Tests that `test_poison.py` runs in a process of its own, in which new memory holds a pattern."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from tundish import Dataset, Options
from tundish.shm.memory import Arena
from tundish.shm.ring import Ring
from tundish.testing import collect, difference, digest, drawing, poison
from tundish.testing.folders import folder
from tundish.testing.functions import Become
from tundish.testing.model import Model
from tundish.testing.values import Give

if TYPE_CHECKING:
    pass

PADDED = np.dtype([("a", "u1"), ("b", "f8")], align=True)
NESTED = np.dtype([("c", PADDED, 2)])


def unwritten(i: Any) -> Any:
    return {"i": i, "x": np.empty(SIZE if i == 2 else (SIZE,), np.int64)}


SIZE = 5


def padded(i: Any) -> np.ndarray:
    """Structures whose fields are set, and whose padding is not."""
    array = np.empty(SIZE, PADDED)
    array["a"], array["b"] = i, i
    return array


def held(ds: Any, workers: int) -> str:
    """Return what is found in a dataset's elements."""
    with ds.iterator(workers=workers) as iterator, pytest.raises(AssertionError) as problem:
        collect(iterator)
    return str(problem.value)


@pytest.mark.parametrize("size", [1, 9, 1000, 1 << 20])
def test_new_memory_holds_the_pattern(size: int) -> None:
    found: list[set[int]] = []

    def look() -> None:
        # The second and third time, of what was freed.
        found.extend(set(np.empty(size, np.uint8).tolist()) for _ in range(3))

    look()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert found == [{poison.FRESH}] * 6
    assert set(pa.allocate_buffer(size).to_pybytes()) == {poison.FRESH}
    assert not np.zeros(size).any()


def test_nothing_that_the_fuzzer_makes_looks_like_it() -> None:
    for kind in drawing.KINDS:
        for number in range(200):
            digest(Become(kind)(number))
            poison.assert_clean()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_what_a_function_has_not_written(
    workers: int, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNDISH_START", start)
    ds = Dataset.range(4).map(unwritten)

    assert "an array of int64 (5,) holds memory that was never written" in held(ds, workers)
    assert "(2, 5) holds" in held(ds.batch(2), workers)


@pytest.mark.parametrize("dtype", [PADDED, NESTED])
def test_padding(dtype: np.dtype[Any]) -> None:
    for array in (np.empty(4, dtype), np.empty((4, 2), dtype)[:, 1]):
        array[...] = np.zeros((), dtype)
        poison.look_through_array(array)
        with pytest.raises(AssertionError, match="padding that was never written, at byte 1"):
            poison.assert_clean()
    poison.look_through_array(np.zeros(4, dtype))
    poison.assert_clean()


def test_padding_of_a_struct_that_holds_its_own_memory() -> None:
    poison.look_through_array(pickle.loads(pickle.dumps(np.zeros(1, NESTED)[0])))
    poison.assert_clean()
    poison.look_through_array(
        copy.deepcopy(np.zeros(1, NESTED)[0])
    )  # numpy copies the fields alone
    with pytest.raises(AssertionError, match="padding that was never written, at byte 1"):
        poison.assert_clean()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_of_a_snapshot(workers: int) -> None:
    ds = Dataset.range(4).map(unwritten).with_options(Options(workers=workers))
    path = folder()
    ds.save(path)

    with pytest.raises(AssertionError, match=r"the file .*arrow holds memory"):
        poison.assert_clean(files=True)


def test_slots_hold_the_pattern_when_they_are_handed_out() -> None:
    arena = Arena.create(stride=1 << 20, slots=2)
    ring = Ring(arena)
    for size in (1000, 1 << 19, 1000):
        slot = ring.acquire()
        assert slot is not None
        arena.allocate(slot, 0, size)
        ring.grew(slot, size)
        root = ring.lease(slot, size)
        assert set(root[: 1 << 18].tolist()) == {poison.FRESH}
        root[:] = 7
        del root
    arena.close()


@pytest.mark.parametrize("made", [padded, Give("aligned", ""), Give("struct", "")])
def test_the_loader_and_the_reference_zero_gaps(made: Any) -> None:
    with Dataset.range(3).map(made).map(same).iterator(workers=0) as iterator:
        found = collect(iterator, exact=False)

    assert difference(Model.range(3).map(made).map(same).outcomes(), found) is None


def same(value: Any) -> Any:
    return value
