"""rebatch as tf.data has it, and what it copies; functions of batches, and what their errors tell."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np
import pytest

from tundish import Dataset
from tundish.errors import SpecError
from tundish.testing.functions import Become


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("count", "batch", "sizes", "drop", "expected"),
    [
        (7, 4, 3, False, [[0, 1, 2], [3, 4, 5], [6]]),
        (7, 2, 3, True, [[0, 1, 2], [3, 4, 5]]),
        (8, 4, [2, 1, 1], False, [[0, 1], [2], [3], [4, 5], [6], [7]]),
        (7, 4, [3, 2], False, [[0, 1, 2], [3, 4], [5, 6]]),
        (7, 4, [3, 2], True, [[0, 1, 2], [3, 4]]),
        (0, 4, 3, False, []),
    ],
)
def test_as_tf_data(
    *, workers: int, count: int, batch: int, sizes: Any, drop: bool, expected: Any
) -> None:
    ds = Dataset.range(count).batch(batch).rebatch(sizes, drop)

    assert [x.tolist() for x in ds.iterator(workers=workers)] == expected


def large(n: Any) -> Any:
    return np.full(40_000, n, np.int64)


def test_parts_of_a_batch_are_views_of_its_slot() -> None:
    it = Dataset.range(8).map(large).batch(4).rebatch(2).iterator(workers=1)
    one, other = next(it), next(it)

    assert one.base is not None
    start = [x.__array_interface__["data"][0] for x in (one, other)]
    assert start[1] - start[0] == one.nbytes  # side by side in one slot
    assert [x[:, 0].tolist() for x in (one, other)] == [[0, 1], [2, 3]]
    it.close()


def test_what_is_given_up_is_told() -> None:
    def second(n: Any) -> Any:
        if n.tolist() == [2, 3]:
            raise ValueError("no")
        return n

    it = iter(Dataset.range(8).batch(2).map(second).rebatch(3))
    with pytest.raises(ValueError, match="no") as told:
        next(it)

    assert any("2 row(s) before it were given up" in note for note in told.value.__notes__)
    assert [x.tolist() for x in it] == [[4, 5, 6], [7]]


def test_rows_that_do_not_fit_say_how() -> None:
    ds = Dataset.from_tensors(np.zeros((2, 3))).concatenate(Dataset.from_tensors(np.zeros((2, 4))))
    it = iter(ds.rebatch(3))

    with pytest.raises(SpecError, match=r"element 2 of the batch is float64 \(4,\), its first"):
        next(it)
    with pytest.raises(SpecError, match="needs arrays with a first dimension"):
        next(iter(Dataset.range(3).rebatch(2)))
    with pytest.raises(SpecError, match=r"equal first dimensions, not \[2, 3\]"):
        next(iter(Dataset.from_tensors((np.zeros(2), np.zeros(3))).rebatch(2)))


def test_byte_orders_stay() -> None:
    swapped = np.dtype(np.int32).newbyteorder()
    ds = Dataset.from_tensors(np.arange(3, dtype=swapped)).repeat(2)

    assert [x.dtype for x in ds.rebatch(4)] == [swapped, swapped]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_tells_the_elements_of_its_batch(workers: int) -> None:
    def failing(batch: Any) -> Any:
        if 6 in batch:
            raise ValueError("no six")
        return batch

    it = Dataset.range(1, 9).map_batches(failing, 3).iterator(workers=workers)
    with pytest.raises(ValueError, match="no six") as told:
        [next(it) for _ in range(9)]

    notes = told.value.__notes__
    assert sum("its batch is of 3 element(s): 3, 4, 5" in note for note in notes) == 1  # positions
    assert [int(x) for x in it] == [7, 8]


def test_an_element_that_failed_is_not_the_functions_fault() -> None:
    def root(n: Any) -> Any:
        if n == 1:
            raise ValueError("no")
        return n

    it = iter(Dataset.range(4).map(root).map_batches(lambda batch: batch, 2))
    with pytest.raises(ValueError, match="no") as told:
        next(it)

    assert not any("its batch is of" in note for note in told.value.__notes__)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_tokenizers_result(workers: int) -> None:
    def tokenize(texts: Any) -> Any:
        ids = [list(range(len(text))) for text in texts]
        return UserDict({"input_ids": ids, "text": list(texts)})

    ds = Dataset.from_tensor_slices(["ab", "", "cde"]).map_batches(tokenize, 3)
    found = list(ds.iterator(workers=workers))

    assert [(x["input_ids"].tolist(), x["text"]) for x in found] == [
        ([0, 1], "ab"),
        ([], ""),
        ([0, 1, 2], "cde"),
    ]
    assert {x["input_ids"].dtype for x in found} == {np.dtype(np.int64)}


def test_more_or_fewer_rows() -> None:
    ds = Dataset.range(5).map_batches(lambda batch: np.repeat(batch, batch % 3), 2)

    assert [int(x) for x in ds] == [1, 2, 2, 4]


def test_unequal_numbers_of_rows_are_the_batchs_error() -> None:
    it = iter(Dataset.range(2).map_batches(lambda batch: (batch, batch[:1]), 2))

    with pytest.raises(SpecError, match=r"not \[1, 2\]") as told:
        next(it)
    assert any("its batch is of 2 element(s): 0, 1" in note for note in told.value.__notes__)


@pytest.mark.parametrize("workers", [0, 2])
def test_unbatch_of_dicts_strings_and_no_rows(workers: int) -> None:
    def rows(n: Any) -> Any:
        count = int(n) % 3
        return {
            "name": np.array([f"{n}.{i}" for i in range(count)], object),
            "x": np.ones((count, 2)),
        }

    found = list(Dataset.range(5).map(rows).unbatch().iterator(workers=workers))

    assert [x["name"] for x in found] == ["1.0", "2.0", "2.1", "4.0"]
    assert {x["x"].shape for x in found} == {(2,)}


def test_a_window_over_rows_names_each_batch_once() -> None:
    ds = Dataset.range(1000).map(Become("int")).batch(50).unbatch().shuffle(100, seed=1)
    it = iter(ds)
    for _ in range(300):
        next(it)
    state = it.state_dict()
    window = str(state["position"]["window"])

    assert len(window) < 100 * 16 + 9 * 50 * 6
    again = iter(ds)
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert [int(x) for x in again] == [int(x) for x in it]


@pytest.mark.parametrize("make", ["ragged_batch", "sparse_batch"])
def test_parts_that_are_no_rows_are_refused(make: str) -> None:
    shape = {"row_shape": [3]} if make == "sparse_batch" else {}
    ds = getattr(Dataset.range(1, 3).map(np.arange), make)(2, **shape)

    with pytest.raises(SpecError, match="not ragged or sparse ones"):
        next(iter(ds.rebatch(1)))
