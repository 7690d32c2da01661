"""Arguments and cardinalities of mixtures and of sources that are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish import Dataset
from tundish.errors import SpecError

A, B = Dataset.range(2), Dataset.range(3)
EVER = Dataset.range(3).repeat()
INFINITE, UNKNOWN = td.INFINITE_CARDINALITY, td.UNKNOWN_CARDINALITY


@pytest.mark.parametrize(
    ("datasets", "weights", "error", "says"),
    [
        ([], None, ValueError, "datasets must hold at least one"),
        ({}, None, ValueError, "datasets must hold at least one"),
        (A, None, TypeError, "datasets must be a list or tuple of datasets, not Dataset"),
        ([A, 3], None, TypeError, r"datasets\[1\] must be a Dataset, not int"),
        ({"a": 3}, None, TypeError, r"datasets\['a'\] must be a Dataset, not int"),
        ({1: A}, None, TypeError, "names of datasets must be str, not 1"),
        (
            [A, B],
            [1.0],
            ValueError,
            "weights must have one number for each of the 2 datasets, not 1",
        ),
        ([A, B], 0.5, TypeError, "weights must be a list of floats, not float"),
        ([A, B], [1, 2], TypeError, "weights must be floats, not"),
        ([A, B], ["a", 1.0], TypeError, "weights must be floats, not 'a'"),
        ([A, B], [1.0, -0.5], ValueError, "weights must be 0 or from .* not -0.5"),
        ([A, B], [1.0, float("nan")], ValueError, "not nan"),
        ([A, B], [1.0, float("inf")], ValueError, "not inf"),
        ([A, B], [1.0, 1e-60], ValueError, "not 1e-60"),
        ({"a": A, "b": B}, [0.5, 0.5], TypeError, "a dict with its names, not list"),
        ({"a": A, "b": B}, {"a": 1.0}, ValueError, r"names of datasets, \['a', 'b'\], not \['a'\]"),
        ({"a": A, "b": B}, EVER, TypeError, "must be a dict, not a Dataset"),
    ],
)
def test_sample_refuses(datasets: Any, weights: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Dataset.sample_from_datasets(datasets, weights)


def test_sample_refuses_a_seed_that_is_none() -> None:
    with pytest.raises(TypeError, match="seed must be an int"):
        Dataset.sample_from_datasets([A, B], seed="x")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("datasets", "choice", "error", "says"),
    [
        ([], A, ValueError, "datasets must hold at least one"),
        ({"a": A}, A, TypeError, "datasets must be a list or tuple of datasets, not dict"),
        ([A], [0, 1], TypeError, "choice_dataset must be a Dataset, not list"),
        ("ab", A, TypeError, "datasets must be a list or tuple of datasets, not str"),
    ],
)
def test_choose_refuses(datasets: Any, choice: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Dataset.choose_from_datasets(datasets, choice)


def test_cardinalities() -> None:
    sample, choose = Dataset.sample_from_datasets, Dataset.choose_from_datasets
    expected = [
        (sample([A, B], stop_on_empty_dataset=True), UNKNOWN),
        (sample([A, B]), UNKNOWN),
        (sample([EVER, B]), INFINITE),
        (sample([EVER, B], stop_on_empty_dataset=True), UNKNOWN),
        (sample([EVER, EVER], stop_on_empty_dataset=True), INFINITE),
        (sample([EVER, B], [0.0, 1.0]), 3),
        (sample([EVER, B], [0.0, 0.0]), 0),
        (sample({"a": EVER, "b": B}, {"a": 0, "b": 1}), UNKNOWN),
        (choose([A, B], A.repeat(2)), UNKNOWN),
        (choose([A, B], A.repeat(2), False), UNKNOWN),
        (choose([EVER, EVER], A.repeat()), INFINITE),
        (choose([EVER, EVER], A), UNKNOWN),
        (Dataset.counter(), INFINITE),
        (Dataset.counter().take(5), 5),
        (Dataset.random(seed=4), INFINITE),
        (Dataset.from_list([1, 2, 3]), 3),
        (Dataset.range(3, output_type=np.int32), 3),
    ]
    for at, (made, count) in enumerate(expected):
        assert made.cardinality() == count, f"number {at}"


@pytest.mark.parametrize(
    ("source", "given", "error", "says"),
    [
        ("counter", {"start": 0.5}, TypeError, "start must be an int, not float"),
        ("counter", {"step": "x"}, TypeError, "step must be an int, not str"),
        ("counter", {"start": "x", "dtype": float}, TypeError, "start must be a number, not str"),
        ("counter", {"start": 300, "dtype": "u1"}, SpecError, "start gives 300, which uint8"),
        ("counter", {"dtype": str}, TypeError, "dtype must be an integer or float dtype"),
        ("counter", {"dtype": "no"}, TypeError, "dtype must be an integer or float dtype"),
        ("random", {"seed": 0.5}, TypeError, "seed must be an int, not float"),
        ("from_list", {"elements": []}, ValueError, "elements must hold at least one"),
        ("from_list", {"elements": 3}, TypeError, "elements must be a list of elements, not int"),
        ("from_list", {"elements": [1, (2, 3)]}, SpecError, "one structure: element 1 is"),
        ("from_list", {"elements": [{"a": 1}, {"a": 2.5}]}, SpecError, "a.* is float64 in elem"),
        ("from_list", {"elements": [1, [[1], [2, 3]]]}, SpecError, "ragged"),
    ],
)
def test_sources_refuse(
    source: str, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        getattr(Dataset, source)(**given)


@pytest.mark.parametrize(
    ("span", "dtype", "error", "says"),
    [
        ((3,), bool, TypeError, "output_type must be an integer"),
        ((3,), None, TypeError, "output_type must be an integer or float dtype, not None"),
        ((300,), np.int8, SpecError, "range gives 299, which int8"),
        ((-1, 3), "u4", SpecError, "range gives -1, which uint32"),
    ],
)
def test_range_refuses(span: Any, dtype: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Dataset.range(*span, output_type=dtype)


def test_dtypes() -> None:
    assert next(iter(Dataset.range(1, 5, 2, output_type=np.float32))).dtype == np.float32
    assert next(iter(Dataset.range(3, output_type="i2").map(lambda x: x))).dtype == np.int16
    assert next(iter(Dataset.random(seed=4))).dtype == np.int64
    assert next(iter(Dataset.counter())).dtype == np.int64
    assert next(iter(Dataset.counter(dtype=np.float16))).dtype == np.float16


def test_a_single_dataset_is_passed_through() -> None:
    assert list(Dataset.sample_from_datasets([B], weights=[1.0])) == [0, 1, 2]
    assert Dataset.sample_from_datasets([A, B], [0.0, 1.0]).cardinality() == 3
