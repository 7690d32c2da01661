"""Padded, ragged and sparse batches, and batches by cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.outcomes import outcomes

from tundish import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, ArraySpec, Dataset, Ragged, Sparse
from tundish.errors import SpecError

ROWS = np.arange(12, dtype=np.int32).reshape(4, 3)
NEST = {"x": ROWS, "y": (np.zeros((4, 2, 2), np.float32), np.arange(4) > 2)}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, not 0"),
        ({"batch_size": 2.0}, TypeError, "batch_size must be an int"),
        ({"padded_shapes": [3.5]}, TypeError, "padded_shapes holds ints"),
        ({"padded_shapes": [-2]}, ValueError, "padded_shapes holds sizes.*not -2"),
        ({"padded_shapes": [True]}, TypeError, "padded_shapes holds ints"),
        ({"padded_shapes": [[3]]}, TypeError, "padded_shapes holds ints"),
        (
            {"padded_shapes": [2]},
            SpecError,
            r"padded_shapes must be at least as large.*\[2\].*shape=\(3,\)",
        ),
        ({"padded_shapes": [3, 3]}, SpecError, r"padded_shapes is \[3, 3\], of rank 2"),
        ({"padded_shapes": {"x": [3]}}, SpecError, "padded_shapes must be a shape"),
        ({"padded_shapes": ([3], [3])}, SpecError, "padded_shapes must be a shape"),
        ({"padding_values": [0]}, TypeError, "padding_values holds one value"),
        ({"padding_values": 0.5}, SpecError, "padding_values is 0.5, which int32 cannot hold"),
        ({"padding_values": 2**31}, SpecError, "which int32 cannot hold"),
        ({"padding_values": True}, SpecError, "which int32 cannot hold"),
        ({"padding_values": "x"}, SpecError, "which int32 cannot hold"),
        ({"padding_values": (1,)}, SpecError, "padding_values must have the structure"),
        ({"pad_to_multiple_of": 0}, ValueError, "pad_to_multiple_of must be at least 1, not 0"),
        ({"pad_to_multiple_of": "8"}, TypeError, "pad_to_multiple_of must be an int"),
        ({"pad_to_multiple_of": {"x": 8}}, SpecError, "pad_to_multiple_of must have the structure"),
        ({"side": "up"}, ValueError, "side must be one of left, right, not 'up'"),
    ],
)
def test_bad_arguments_of_padded_batch(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Dataset.from_tensor_slices(ROWS).padded_batch(**{"batch_size": 2, **arguments})


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": [3]},
        {"x": [3], "z": ([2, 2], [])},
        {"x": [3], "y": ([2, 2],)},
        {"x": [3], "y": [[2, 2], []]},
        [3],
    ],
)
def test_shapes_must_have_the_elements_structure(shapes: Any) -> None:
    with pytest.raises((SpecError, TypeError), match="padded_shapes"):
        Dataset.from_tensor_slices(NEST).padded_batch(2, shapes)


def test_what_is_not_known_is_not_refused() -> None:
    Dataset.from_tensor_slices(ROWS).map(lambda row: row).padded_batch(2, [2], 0.5)


@pytest.mark.parametrize(
    ("value", "dtype", "fits"),
    [
        (1, "float32", True),
        (2**53 + 1, "float64", False),
        (np.float64(0.1), "float32", False),
        (0.1, "float32", True),
        (1e300, "float32", False),
        (float("inf"), "float16", True),
        (float("nan"), "float32", True),
        (float("nan"), "int64", False),
        (2.0, "int8", True),
        (np.int64(300), "uint8", False),
        (-1, "uint8", False),
        (np.uint8(7), "int64", True),
        (1j, "float32", False),
        (1j, "complex64", True),
        (0, "bool", False),
        (False, "bool", True),
        (np.datetime64("2024-01-01"), "datetime64[s]", True),
        (np.datetime64("2024-01-01T01"), "datetime64[D]", False),
        (np.datetime64("NaT"), "datetime64[D]", True),
        (0, "datetime64[D]", False),
        (b"", "int64", False),
    ],
)
def test_a_value_is_the_same_in_the_dtype(value: Any, dtype: str, fits: bool) -> None:
    ds = Dataset.from_tensor_slices(np.zeros((2, 1), dtype))

    if fits:
        (batch,) = ds.padded_batch(2, [2], value)
        assert batch.dtype == dtype
        assert str(batch[0, 1]) == str(np.array(value).astype(dtype))
    else:
        with pytest.raises(SpecError, match="padding_values"):
            ds.padded_batch(2, [2], value)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda ds: ds.ragged_batch(0), ValueError, "batch_size"),
        (lambda ds: ds.ragged_batch(2, row_splits_dtype=np.int16), ValueError, "row_splits_dtype"),
        (lambda ds: ds.sparse_batch(0, [3]), ValueError, "batch_size must be at least 1, not 0"),
        (lambda ds: ds.sparse_batch(2, None), TypeError, "row_shape"),
        (lambda ds: ds.sparse_batch(2, [-2]), ValueError, "row_shape"),
        (lambda ds: ds.sparse_batch(2, ["a"]), TypeError, "a size of row_shape"),
        (lambda ds: ds.batch_by_cost(0, len), ValueError, "max_cost must be more than 0"),
        (lambda ds: ds.batch_by_cost(float("nan"), len), ValueError, "max_cost"),
        (lambda ds: ds.batch_by_cost("5", len), TypeError, "max_cost must be a number"),
        (lambda ds: ds.batch_by_cost(5, 5), TypeError, "cost must be callable"),
        (lambda ds: ds.batch_by_cost(5, len, max_elements=0), ValueError, "max_elements"),
        (lambda ds: ds.batch_by_cost(5, len, side="left"), ValueError, "only with pad=True"),
        (
            lambda ds: ds.batch_by_cost(5, len, True, padded_shapes=[2]),
            SpecError,
            "at least as large",
        ),
    ],
)
def test_bad_arguments_of_the_others(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build(Dataset.from_tensor_slices(ROWS))


def test_cardinalities() -> None:
    for name, more in (("padded_batch", ()), ("ragged_batch", ())):
        for n in (0, 5, 6):
            ds = getattr(Dataset.range(n), name)
            assert ds(3, *more).cardinality() == -(-n // 3) == len(list(ds(3)))
            assert ds(3, drop_remainder=True).cardinality() == n // 3
        assert getattr(Dataset.range(5).repeat(), name)(3).cardinality() == INFINITE_CARDINALITY
    assert Dataset.range(5).sparse_batch(3, []).cardinality() == 2
    by_cost = Dataset.range(5).batch_by_cost(3, int)
    assert by_cost.cardinality() == UNKNOWN_CARDINALITY
    endless = Dataset.range(5).repeat().batch_by_cost(3, int)
    assert endless.cardinality() == INFINITE_CARDINALITY


def test_what_a_plan_tells_of_its_elements() -> None:
    vector = ArraySpec((3,), np.int32)
    rows = Dataset.from_tensor_slices(ROWS)

    assert rows.element_spec == vector
    assert (
        rows.shuffle(3).repeat(2).skip(1).take(9).shard(2, 0).cache().prefetch(1).element_spec
        == vector
    )
    assert rows.filter(np.any).element_spec == vector
    assert rows.map(lambda row: row, output_signature=vector).element_spec == vector
    assert rows.batch(2).element_spec == ArraySpec((None, 3), np.int32)
    assert rows.batch(2, drop_remainder=True).element_spec == ArraySpec((2, 3), np.int32)
    assert rows.batch(2).unbatch().element_spec == vector
    assert rows.enumerate().element_spec == (ArraySpec((), np.int64), vector)
    assert Dataset.zip({"a": rows, "b": Dataset.range(3)}).element_spec["b"] == ArraySpec(
        (), np.int64
    )
    wider = Dataset.from_tensor_slices(np.zeros((2, 5), np.int32))
    assert rows.concatenate(wider).element_spec == ArraySpec((None,), np.int32)
    flat = Dataset.from_tensor_slices(np.zeros(2, np.int32))
    assert rows.concatenate(flat).element_spec == ArraySpec(None, np.int32)
    objects = np.array([np.zeros(2), "a"], object)
    assert Dataset.from_tensor_slices(objects).element_spec == ArraySpec(None, object)


def test_what_a_plan_tells_of_batches_of_uneven_elements() -> None:
    signature = {"x": ArraySpec((None,), np.int32), "y": ArraySpec((), np.int64)}
    ds: Dataset = Dataset.range(4).map(dict, output_signature=signature)
    scalar = ArraySpec((), np.int64)
    vectors, scalars = ArraySpec((2, None), np.int32), ArraySpec((2,), np.int64)

    assert ds.padded_batch(2, drop_remainder=True).element_spec == {"x": vectors, "y": scalars}
    fixed = ds.padded_batch(2, {"x": [7], "y": []})
    assert fixed.element_spec["x"] == ArraySpec((None, 7), np.int32)
    rows = Dataset.from_tensor_slices(ROWS)
    assert rows.padded_batch(2, pad_to_multiple_of=8).element_spec == ArraySpec((None, 8), np.int32)
    ragged = ds.ragged_batch(2, row_splits_dtype="int32").element_spec
    assert tuple(ragged["x"]) == (ArraySpec((None,), np.int32),) * 2
    assert type(ragged["x"]) is Ragged
    assert ds.ragged_batch(2).unbatch().element_spec == {
        "x": ArraySpec((None,), np.int32),
        "y": scalar,
    }
    assert rows.batch_by_cost(9, np.sum).element_spec == ArraySpec((None, 3), np.int32)
    sparse = rows.sparse_batch(2, [5]).element_spec
    assert sparse.indices == ArraySpec((None, 2), np.int64)


def test_element_specs_of_what_no_plan_tells() -> None:
    ds = Dataset.range(1, 5).map(lambda n: (np.ones(n), n))

    padded = ds.padded_batch(2).element_spec
    assert padded == (ArraySpec((None, None), np.float64), ArraySpec((None,), np.int64))
    ragged = ds.ragged_batch(2).element_spec
    assert type(ragged[0]) is Ragged
    assert ragged[1] == ArraySpec((None,), np.int64)
    fixed = ds.padded_batch(2, ([7], []), drop_remainder=True).element_spec
    assert fixed[0] == ArraySpec((2, 7), np.float64)


WORKERS = pytest.mark.parametrize("workers", [0, 2])


def fill(n: Any) -> np.ndarray:
    return np.full(n, n)


def uneven(*sizes: int) -> Dataset:
    return Dataset.from_tensor_slices(list(sizes)).map(fill)


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
        "1 element(s) before it in the batch were given up: 0" in n for n in found[0].__notes__
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
