"""unique."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.loader.operators.test_scanning import outcomes

import tundish as td
from tundish.errors import SpecError


@pytest.mark.parametrize(
    "ds",
    [
        td.Dataset.from_tensor_slices([1.0, 2.0]),
        td.Dataset.from_tensor_slices({"a": [1], "b": [1]}),
        td.Dataset.range(3).enumerate(),
        td.Dataset.from_tensor_slices(np.zeros(3, np.complex64)).shuffle(2).repeat(2),
    ],
)
def test_other_elements_are_refused_when_the_plan_tells(ds: td.Dataset) -> None:
    with pytest.raises(SpecError, match="unique takes elements of int, bool, str or bytes"):
        ds.unique()


def test_what_the_plan_does_not_tell_is_refused_later() -> None:
    with pytest.raises(SpecError, match=r"not ArraySpec.*float64"):
        list(td.Dataset.range(3).map(float).unique())


def test_cardinality() -> None:
    assert td.Dataset.range(5).unique().cardinality() == td.UNKNOWN_CARDINALITY
    assert td.Dataset.range(5).unique().element_spec == td.ArraySpec((), np.int64)


WORKERS = pytest.mark.parametrize("workers", [0, 2])


@WORKERS
def test_the_first_of_each_in_order_in_each_pass(workers: int) -> None:
    ds = td.Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).map(abs).unique()

    assert outcomes(ds, workers) == [1, 37, 2]
    assert outcomes(ds.repeat(2), workers) == [1, 37, 2] * 2


@WORKERS
def test_texts_and_arrays(workers: int) -> None:
    texts = td.Dataset.from_tensor_slices(["a", "b", "a"]).unique()
    arrays = td.Dataset.from_tensor_slices([[1, 2], [1, 2], [2, 1]]).unique()

    assert outcomes(texts, workers) == ["a", "b"]
    assert [x.tolist() for x in outcomes(arrays, workers)] == [[1, 2], [2, 1]]


@WORKERS
def test_an_error_is_an_element_and_no_key(workers: int) -> None:
    ds = td.Dataset.range(4).map(lambda x: 1 // (int(x) - 1)).unique()

    assert outcomes(ds, workers) == [-1, ZeroDivisionError, 1, 0]


MADE: dict[str, list[Any]] = {
    "texts": [
        "1",
        b"1",
        1,
        True,
        np.int8(1),
        [1],
        [True],
        ["1"],
        [b"1"],
        np.array([[1]]),
        "1" * 99,
    ],
    "long": ["a" * 65, b"a" * 65, "a" * 65 + "b", ["a" * 65]],
    "shapes": [np.zeros((2, 3), int), np.zeros((3, 2), int), np.zeros(6, int), np.zeros(6, "i4")],
    "texts in arrays": [
        ["a", "b"],
        ["ab"],
        ["ab", "c"],
        ["a", "bc"],
        ["a,b"],
        ["a', 'b"],
        [["a", "b"]],
    ],
    "bytes": [b"\0", b"", b"\0\0", "", "\0"],
}


@pytest.mark.parametrize("name", MADE)
def test_what_differs_in_anything_is_another(name: str) -> None:
    made = MADE[name]
    ds = td.Dataset.range(2 * len(made)).map(lambda k: made[int(k) % len(made)]).unique()

    assert len(list(ds)) == len(made)


@pytest.mark.parametrize("element", [1.5, {"a": 1, "b": 1}, (1, 2), [1.5], object(), 1j])
def test_another_kind_of_element_is_an_error_at_its_place(element: Any) -> None:
    ds = td.Dataset.range(3).map(lambda x: element if x == 1 else x).unique()

    assert outcomes(ds) == [0, SpecError, 2]


def test_a_nest_of_one_leaf_is_taken() -> None:
    ds = td.Dataset.from_tensor_slices({"a": [1, 1, 2]}).unique()

    assert outcomes(ds) == [{"a": 1}, {"a": 2}]


def test_a_state_is_a_number() -> None:
    ds = td.Dataset.range(1000).map(lambda x: x % 600).unique()
    with iter(ds) as it:
        for _ in range(500):
            next(it)
        assert it.state_dict()["position"] == {"n": 500}
