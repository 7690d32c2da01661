"""padded_batch, ragged_batch, sparse_batch, batch_by_cost: what is refused when they are built."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tundish import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, ArraySpec, Dataset, Ragged
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
    ds = Dataset.range(4).map(dict, output_signature=signature)
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
