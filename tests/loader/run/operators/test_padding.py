"""Batches of uneven elements: what tf.data does, and what is ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tundish import ArraySpec, Dataset, Ragged, Sparse
from tundish.errors import SpecError

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def fill(n: Any) -> np.ndarray:
    return np.full(n, n)


def uneven(*sizes: int) -> Dataset:
    return Dataset.from_tensor_slices(list(sizes)).map(fill)


def outcomes(ds: Dataset, workers: int = 0) -> list[Any]:
    """Elements as lists, and errors."""
    found: list[Any] = []
    with ds.iterator(workers=workers) as it:
        while True:
            try:
                element = next(it)
            except StopIteration:
                return found
            except Exception as error:  # noqa: BLE001 - it is what is looked at
                found.append(error)
            else:
                found.append(element.tolist() if isinstance(element, np.ndarray) else element)


def test_the_longest_of_each_batch_decides() -> None:
    assert outcomes(uneven(1, 3, 2, 2).padded_batch(2, [None])) == [
        [[1, 0, 0], [3, 3, 3]],
        [[2, 2], [2, 2]],
    ]


@pytest.mark.parametrize("shape", [4, [4], (4,), np.array([4])])
def test_a_fixed_shape_as_tf_data_takes_it(shape: Any) -> None:
    assert outcomes(uneven(1, 2).padded_batch(2, shape, -1)) == [[[1, -1, -1, -1], [2, 2, -1, -1]]]


def test_of_empty_arrays() -> None:
    (batch,) = uneven(0, 0).padded_batch(2, [-1])

    assert batch.shape == (2, 0)


def test_str_and_bytes_are_filled_with_empty_ones() -> None:
    words = Dataset.range(3).map(lambda n: ["a"] * int(n)).map(lambda x: np.array(x, object))
    assert outcomes(words.padded_batch(3)) == [[["", ""], ["a", ""], ["a", "a"]]]
    data = Dataset.range(2).map(lambda n: np.array([b"a"] * int(n), object))
    assert outcomes(data.padded_batch(2)) == [[[b""], [b"a"]]]
    others = Dataset.range(2).map(lambda n: np.array([{1}] * int(n), object))
    assert outcomes(others.padded_batch(2)) == [[[None], [{1}]]]
    assert outcomes(words.padded_batch(3, [None], "-")) == [[["-", "-"], ["a", "-"], ["a", "a"]]]


def nest(n: Any) -> Any:
    return {"x": fill(n), "y": (np.full((n, 2), 0.5, np.float32), n), "name": f"n{n}"}


def test_a_nest_has_an_argument_for_each_leaf() -> None:
    shapes = {"x": [4], "y": ([None, 3], []), "name": []}
    values = {"x": -1, "y": (None, None), "name": None}
    ds = Dataset.range(1, 3).map(nest).padded_batch(2, shapes, values)
    (batch,) = ds

    assert batch["x"].tolist() == [[1, -1, -1, -1], [2, 2, -1, -1]]
    assert batch["y"][0].shape == (2, 2, 3)
    assert batch["y"][0].dtype == np.float32
    assert batch["y"][0][0].tolist() == [[0.5, 0.5, 0], [0, 0, 0]]
    assert batch["y"][1].tolist() == [1, 2]
    assert batch["name"].tolist() == ["n1", "n2"]


def test_one_value_stands_for_all_but_scalars() -> None:
    (batch,) = Dataset.range(1, 3).map(nest).padded_batch(2, None, 7)

    assert batch["x"].tolist() == [[1, 7], [2, 2]]
    assert batch["y"][0][0].tolist() == [[0.5, 0.5], [7, 7]]
    (batch,) = Dataset.range(2).map(lambda n: (fill(n), n > 0)).padded_batch(2, None, 7)
    assert [leaf.tolist() for leaf in batch] == [[[7], [1]], [False, True]]


def test_multiples_round_what_is_not_fixed() -> None:
    ds = Dataset.range(1, 3).map(lambda n: np.ones((n, n)))

    assert [b.shape for b in ds.padded_batch(2, pad_to_multiple_of=4)] == [(2, 4, 4)]
    assert [b.shape for b in ds.padded_batch(2, [None, 5], pad_to_multiple_of=4)] == [(2, 4, 5)]
    assert [b.shape for b in ds.padded_batch(1, pad_to_multiple_of=2)] == [(1, 2, 2), (1, 2, 2)]
    nested = Dataset.range(1, 3).map(lambda n: (fill(n), fill(n)))
    (batch,) = nested.padded_batch(2, pad_to_multiple_of=(8, None))
    assert [leaf.shape for leaf in batch] == [(2, 8), (2, 2)]


def test_the_left_side() -> None:
    (batch,) = Dataset.range(1, 3).map(lambda n: np.full((n, n), n)).padded_batch(2, side="left")

    assert batch.tolist() == [[[0, 0], [0, 1]], [[2, 2], [2, 2]]]


@WORKERS
@pytest.mark.parametrize(
    ("ds", "words"),
    [
        (uneven(1, 2, 6, 3, 4).padded_batch(2, [5]), "it is [5], the element is int64 (6,)"),
        (uneven(1, 2, 6, 3, 4).sparse_batch(2, [5]), "row_shape must be at least"),
    ],
)
def test_too_long_stands_at_the_batch_s_place(ds: Dataset, words: str, workers: int) -> None:
    first, error, last = outcomes(ds, workers)

    assert not isinstance(first, Exception)
    assert isinstance(error, SpecError)
    assert words in str(error)
    assert not isinstance(last, Exception)
    assert len(getattr(last, "dense_shape", last)) == 2


def odd(n: Any) -> Any:
    match int(n):
        case 2:
            return np.zeros((2, 2), np.int64)
        case 5:
            return np.zeros(5)
        case 8:
            raise KeyError("eight")
    return fill(n)


@WORKERS
@pytest.mark.parametrize("operator", ["padded_batch", "ragged_batch"])
def test_a_misfit_gives_up_what_was_gathered(operator: str, workers: int) -> None:
    ds = getattr(Dataset.range(1, 12).map(odd), operator)(2)
    found = outcomes(ds, workers)

    kinds = [type(x) if isinstance(x, Exception) else "batch" for x in found]
    assert kinds == [SpecError, "batch", SpecError, KeyError, "batch", "batch"]
    assert "float64 (5,)" not in str(found[0])
    assert "element 1 of the batch is int64 (2, 2), its first element is int64 (1,)" in str(
        found[0]
    )
    assert any(
        "1 element(s) of the batch before it were given up: 0" in n for n in found[0].__notes__
    )


@WORKERS
def test_a_padding_value_that_is_none_is_the_elements_error(workers: int) -> None:
    found = outcomes(uneven(1, 2).padded_batch(2, [None], 0.5), workers)

    assert [type(x) for x in found] == [SpecError, SpecError]
    assert "padding_values is 0.5, which int64 cannot hold" in str(found[0])


@WORKERS
def test_keys_in_another_order_are_put_right(workers: int) -> None:
    def either(n: Any) -> Any:
        return {"a": fill(n), "b": n} if n % 2 else {"b": n, "a": fill(n)}

    for operator in ("padded_batch", "ragged_batch"):
        (batch,) = outcomes(getattr(Dataset.range(1, 4).map(either), operator)(3), workers)
        assert list(batch) == ["a", "b"]
        assert batch["b"].tolist() == [1, 2, 3]


@WORKERS
def test_ragged_is_values_and_splits(workers: int) -> None:
    found = outcomes(Dataset.range(5).map(np.arange).ragged_batch(2), workers)

    assert all(type(x) is Ragged for x in found)
    assert [x.to_list() for x in found] == [[[], [0]], [[0, 1], [0, 1, 2]], [[0, 1, 2, 3]]]
    assert found[1].row_splits.tolist() == [0, 2, 5]
    assert found[1].row_splits.dtype == np.int64
    assert found[1].nrows == 2


def test_ragged_splits_may_be_int32() -> None:
    (batch,) = uneven(1, 2).ragged_batch(2, row_splits_dtype=np.int32)

    assert batch.row_splits.dtype == np.int32


def test_what_the_plan_knows_stays_dense() -> None:
    rows = Dataset.from_tensor_slices(np.arange(6).reshape(2, 3))
    known = ArraySpec((3,), np.int64)

    for ds in (rows, rows.map(np.abs, output_signature=known), rows.shuffle(2, seed=1).cache()):
        (batch,) = ds.ragged_batch(2)
        assert batch.shape == (2, 3)
    (batch,) = rows.map(np.abs).ragged_batch(2)
    assert batch.to_list() == [[0, 1, 2], [3, 4, 5]]
    (batch,) = Dataset.range(4).batch(2, drop_remainder=True).ragged_batch(2)
    assert batch.tolist() == [[0, 1], [2, 3]]
    (batch,) = Dataset.range(3).batch(2).ragged_batch(2)
    assert batch.to_list() == [[0, 1], [2]]


def test_only_the_first_dimension_is_ragged() -> None:
    boxes = Dataset.range(3).map(lambda n: np.ones((n, 4), np.float32))
    (batch,) = boxes.ragged_batch(3)
    assert batch.values.shape == (3, 4)
    assert batch.row_lengths.tolist() == [0, 1, 2]

    images = Dataset.range(1, 3).map(lambda n: np.ones((2, n)))
    assert [type(x) for x in outcomes(images.ragged_batch(2))] == [SpecError]


@WORKERS
def test_a_ragged_batch_is_taken_apart_again(workers: int) -> None:
    ds = Dataset.range(5).map(lambda n: {"x": np.arange(n), "n": n}).ragged_batch(2).unbatch()
    found = outcomes(ds, workers)

    assert [x["x"].tolist() for x in found] == [list(range(n)) for n in range(5)]
    assert [int(x["n"]) for x in found] == list(range(5))


def test_rows_are_views() -> None:
    (batch,) = uneven(1, 0, 2).ragged_batch(3)
    rows = batch.rows()

    assert [row.tolist() for row in rows] == [[1], [], [2, 2]]
    assert all(row.base is not None for row in rows)
    assert Ragged(np.zeros(0), np.zeros(1, np.int64)).rows() == []


def test_sparse_keeps_zeros() -> None:
    (batch,) = Dataset.from_tensors(np.array([[0, 1], [2, 0]])).sparse_batch(2, [3, None])

    assert type(batch) is Sparse
    assert batch.indices.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]
    assert batch.values.tolist() == [0, 1, 2, 0]
    assert batch.dense_shape.tolist() == [1, 3, 2]
    assert batch.to_dense().tolist() == [[[0, 1], [2, 0], [0, 0]]]


@pytest.mark.parametrize("element", [{"a": np.zeros(2)}, "text", np.zeros((1, 1))])
def test_sparse_takes_one_array_of_the_rank(element: Any) -> None:
    ds = Dataset.range(2).map(lambda _: element).sparse_batch(2, [3])

    assert [type(x) for x in outcomes(ds)] == [SpecError, SpecError]


@WORKERS
def test_by_cost_of_stacked_elements(workers: int) -> None:
    ds = Dataset.from_tensor_slices([3, 4, 2, 2, 0, 9, 1, 1])

    assert outcomes(ds.batch_by_cost(7, int), workers)[:2] == [[3, 4], [2, 2, 0]]
    error, last = outcomes(ds.batch_by_cost(7, int), workers)[2:]
    assert isinstance(error, SpecError)
    assert "costs 9, and max_cost is 7" in str(error)
    assert last == [1, 1]


@WORKERS
def test_by_cost_of_padded_elements(workers: int) -> None:
    ds = uneven(1, 2, 3, 1, 4, 4, 1)

    found = outcomes(ds.batch_by_cost(8, len, True, padding_values=-1), workers)
    assert [np.shape(x) for x in found] == [(2, 2), (2, 3), (2, 4), (1, 1)]
    found = outcomes(ds.batch_by_cost(8, len, True, max_elements=1), workers)
    assert len(found) == 7
    dropped = outcomes(ds.batch_by_cost(8, len, True, drop_remainder=True), workers)
    assert len(dropped) == 3


@WORKERS
def test_a_failed_cost_is_the_elements_error(workers: int) -> None:
    def cost(n: Any) -> float:
        return {3: -1.0, 5: float("nan")}.get(int(n), 1)

    found = outcomes(Dataset.range(8).batch_by_cost(2, cost), workers)
    kinds = [type(x) if isinstance(x, Exception) else x for x in found]
    assert kinds == [[0, 1], SpecError, SpecError, [6, 7]]
    assert "cost must return a number of at least 0, not -1.0" in str(found[1])


@pytest.mark.parametrize("kind", [np.int8, np.uint8, float, np.float32])
def test_costs_of_any_type_of_number_are_added_as_plain_ones(kind: Any) -> None:
    ds = Dataset.range(5).batch_by_cost(250, lambda _: kind(100))

    assert [x.tolist() for x in ds] == [[0, 1], [2, 3], [4]]


def test_a_cost_is_a_number() -> None:
    with pytest.raises(SpecError, match="cost must return a number, not None"):
        next(iter(Dataset.range(3).batch_by_cost(2, lambda _: None)))


def test_a_batch_by_cost_continues_before_the_element_that_filled_it() -> None:
    ds = Dataset.from_tensor_slices([3, 4, 2, 5, 1]).batch_by_cost(7, int)
    with ds.iterator(workers=0) as it:
        assert next(it).tolist() == [3, 4]
        state = it.state_dict()

    assert state["position"] == {"n": 1, "up": 2}
    with ds.iterator(workers=2) as it:
        it.load_state_dict(state)
        assert [x.tolist() for x in it] == [[2, 5], [1]]
