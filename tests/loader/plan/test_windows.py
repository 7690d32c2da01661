"""window: its arguments, and what the plan knows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish import ArraySpec, Dataset, DatasetSpec


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"size": 0}, ValueError, "size must be at least 1, not 0"),
        ({"size": 2, "shift": 0}, ValueError, "shift must be at least 1, not 0"),
        ({"size": 2, "stride": -1}, ValueError, "stride must be at least 1, not -1"),
        ({"size": 2.0}, TypeError, "size must be an int, not float"),
        ({"size": 2, "shift": True}, TypeError, "shift must be an int, not bool"),
    ],
)
def test_arguments(arguments: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Dataset.range(3).window(**arguments)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 10, 11])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("shift", [None, 1, 2, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("drop", [False, True])
def test_the_cardinality_is_what_comes(
    n: int, size: int, shift: int | None, stride: int, drop: bool
) -> None:
    ds = Dataset.range(n).window(size, shift, stride, drop)

    assert ds.cardinality() == len(list(ds))


def test_cardinality_as_in_tf_data() -> None:
    """The recorded case ``w_card``."""
    found = [
        Dataset.range(5).window(2, shift=2),
        Dataset.range(5).window(2, shift=2, drop_remainder=True),
        Dataset.range(10).window(3, shift=1),
        Dataset.range(10).window(3, shift=1, stride=2, drop_remainder=True),
    ]

    assert [ds.cardinality() for ds in found] == [3, 2, 10, 6]
    endless = Dataset.range(5).repeat().window(2)
    assert endless.cardinality() == td.INFINITE_CARDINALITY
    unknown = Dataset.range(5).filter(bool).window(2)
    assert unknown.cardinality() == td.UNKNOWN_CARDINALITY


def test_specs() -> None:
    rows = {"x": np.zeros((4, 2), np.float32), "y": np.arange(4)}
    ds = Dataset.from_tensor_slices(rows).window(2)

    x, y = DatasetSpec(ArraySpec((2,), "float32")), DatasetSpec(ArraySpec((), "int64"))
    assert ds.element_spec == {"x": x, "y": y}
    assert ds.map(lambda w: w["x"]).element_spec == x
    assert Dataset.range(4).window(2).window(2).element_spec == DatasetSpec(y)
    empty = Dataset.range(1).map(lambda _: (Dataset.range(0).map(abs), 1))
    assert empty.element_spec == (DatasetSpec(), ArraySpec((), "int64"))


def test_a_dataset_is_an_element_that_counts_no_iterations() -> None:
    inner = Dataset.range(9).shuffle(9, seed=1)
    (one,) = Dataset.from_tensors(inner)

    assert [int(x) for x in inner] != [int(x) for x in inner]
    assert [int(x) for x in one] == [int(x) for x in one]
    again = pickle.loads(pickle.dumps(one))
    assert [int(x) for x in again] == [int(x) for x in again] == [int(x) for x in one]


def test_a_list_of_datasets_is_an_array_of_them() -> None:
    (pair,) = Dataset.from_tensors([Dataset.range(2), Dataset.range(2)])

    assert pair.dtype == object
    assert [[int(x) for x in ds] for ds in pair] == [[0, 1], [0, 1]]


def test_an_output_signature_may_hold_datasets() -> None:
    spec = DatasetSpec(ArraySpec((), "int64"))
    ds = Dataset.range(3).map(Dataset.range, output_signature=spec)

    assert ds.element_spec == spec
    assert [len(x) for x in ds] == [0, 1, 2]
    with pytest.raises(td.errors.SpecError, match="DatasetSpec"):
        list(Dataset.range(3).map(int, output_signature=spec))
    with pytest.raises(TypeError, match="output_signature holds ArraySpec and DatasetSpec"):
        Dataset.range(3).map(int, output_signature=int)


def test_repr() -> None:
    assert repr(Dataset.range(4).window(3)) == (
        "<Dataset range(start=0, stop=4, step=1) -> "
        "window(size=3, shift=3, stride=1, drop_remainder=False); 2 elements>"
    )
    (first, _) = Dataset.range(4).window(3)
    assert repr(first) == "<Dataset elements(count=3); 3 elements>"
