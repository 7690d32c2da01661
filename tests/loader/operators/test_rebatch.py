"""rebatch as tf.data has it, and what it copies; functions of batches, and what their errors tell."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np
import pytest

from tundish import AUTOTUNE, UNKNOWN_CARDINALITY, Dataset
from tundish.errors import IncompatibleCheckpointError, SpecError
from tundish.testing.functions import Become, Tag


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


# -- arguments, counts and states ------------------------------------------------------------------


def echo(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize(
    ("size", "kind", "told"),
    [
        (0, ValueError, "batch_size must be at least 1, not 0"),
        (-1, ValueError, "batch_size must be at least 1, not -1"),
        ([2, 0], ValueError, r"batch_size\[1\] must be at least 1, not 0"),
        ([], ValueError, "batch_size must hold at least one size"),
        (2.0, TypeError, r"batch_size must be an int, not float \(2.0\)"),
        ([2, "3"], TypeError, r"batch_size\[1\] must be an int, not str"),
        (True, TypeError, "batch_size must be an int, not bool"),
    ],
)
def test_rebatch_refuses_sizes(size: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        Dataset.range(4).batch(2).rebatch(size)


def test_rebatch_takes_any_sequence_of_ints() -> None:
    ds = Dataset.range(4).batch(2)
    sizes: list[tuple[Any, list[int]]] = [(np.array([1, 3]), [1, 3]), ((np.int64(3), 1), [3, 1])]

    for given, expected in sizes:
        assert [len(x) for x in ds.rebatch(given)] == expected


def test_map_batches_refuses() -> None:
    ds = Dataset.range(4)

    with pytest.raises(TypeError, match="map_func must be callable, not int"):
        ds.map_batches(3, 2)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        ds.map_batches(echo, 0)
    with pytest.raises(
        ValueError, match="num_parallel_calls must be at least 1 and at most 4096, or AUTOTUNE"
    ):
        ds.map_batches(echo, 2, 0)
    with pytest.raises(ValueError, match="on_error must be one of"):
        ds.map_batches(echo, 2, on_error="ignore")
    ds.map_batches(echo, 2, AUTOTUNE)


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ({"length": 0}, ValueError, "length must be at least 1, not 0"),
        ({"length": "8"}, TypeError, "length must be an int, not str"),
        ({"method": "best_fit"}, ValueError, "method must be one of concat, first_fit, not 'best"),
        ({"too_long": "split"}, ValueError, "too_long is of method='first_fit', not of 'concat'"),
        ({"open_rows": 3}, ValueError, "open_rows is of method='first_fit', not of 'concat': 3"),
        ({"method": "first_fit", "open_rows": 0}, ValueError, "open_rows must be at least 1"),
        ({"method": "first_fit", "too_long": "cut"}, ValueError, "too_long must be one of split"),
        ({"method": "first_fit", "drop_remainder": True}, ValueError, "needs method='concat'"),
        ({"separator": "</s>"}, TypeError, "separator must be a number, not str"),
        ({"separator": 1j}, TypeError, "separator must be a number, not complex"),
        ({"pad_value": {"labels": None}}, TypeError, r"pad_value\['labels'\] must be a number"),
        ({"tokens": None}, TypeError, "tokens must be a str, not NoneType"),
        ({"positions": 1}, TypeError, "positions must be a str, not int"),
        ({"positions": "tokens"}, ValueError, "must have different names"),
    ],
)
def test_pack_refuses(arguments: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        Dataset.range(4).batch(2).pack(**{"length": 8, **arguments})


def test_what_is_announced() -> None:
    ds = Dataset.range(6).batch(3)

    assert ds.rebatch(2).cardinality() == UNKNOWN_CARDINALITY
    assert ds.pack(2).cardinality() == UNKNOWN_CARDINALITY
    assert ds.map_batches(echo, 2).cardinality() == UNKNOWN_CARDINALITY


def test_a_plan_shows_the_users_function() -> None:
    assert "map(function=echo" in repr(Dataset.range(6).map_batches(echo, 2))
    one, other = (Dataset.range(6).map_batches(f, 2) for f in (echo, Tag(1)))
    with iter(one) as ours, iter(other) as theirs:
        state = ours.state_dict()
        with pytest.raises(IncompatibleCheckpointError, match="echo in the state"):
            theirs.load_state_dict(state)


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        ([1, 2], [1, 2]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ([[1, 2], []], [[1, 2], []]),
        ([["a"], []], [["a"], []]),
        ([[1], [0.5, 2]], [[1.0], [0.5, 2.0]]),
    ],
)
def test_lists_of_rows_are_arrays_of_one_dtype(result: Any, rows: Any) -> None:
    found = list(Dataset.range(2).map_batches(lambda _: result, 2))

    assert [row.tolist() for row in found] == rows
    assert len({row.dtype for row in found}) == 1


def test_arrays_in_a_list_keep_their_dtypes() -> None:
    result = [np.zeros(2, np.int16), np.ones(2, np.float32)]
    found = Dataset.range(2).map_batches(lambda _: result, 2)

    assert [row.dtype for row in found] == [np.int16, np.float32]


@pytest.mark.parametrize("keys", [("a", np.str_("a")), (True, 1)], ids=["text", "flag"])
@pytest.mark.parametrize(
    "rows",
    [
        lambda ds, _: ds.batch(4),
        lambda ds, _: ds.batch(3).rebatch(2).unbatch().batch(4),
        lambda ds, key: ds.window(4).flat_map(lambda window: window[key]).batch(4),
    ],
    ids=["batch", "rebatch", "window"],
)
def test_keys_in_another_order_are_equal_as_a_dicts_keys_are(keys: Any, rows: Any) -> None:
    key, equal = keys
    elements = [{"b": 0, key: 1}, {"b": 2, key: 3}, {equal: 5, "b": 4}, {"b": 6, key: 7}]
    (batch,) = rows(Dataset.range(4).map(lambda k: elements[k]), key)
    found = batch[equal] if isinstance(batch, dict) else batch
    assert found.tolist() == [1, 3, 5, 7]
