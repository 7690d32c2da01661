"""ignore_errors, assert_cardinality, pad_to_cardinality: arguments, cardinalities, random access."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import SpecError

NO_STR: Any = 1
ROWS = td.Dataset.from_tensor_slices({"a": [1, 2]})


@pytest.mark.parametrize("count", [-2, -3])
def test_a_number_of_elements_is_at_least_0_or_infinite(count: int) -> None:
    with pytest.raises(
        ValueError, match=f"expected_cardinality must be at least 0, .* not {count}"
    ):
        td.Dataset.range(5).assert_cardinality(count)


def test_a_number_of_elements_is_an_int() -> None:
    with pytest.raises(TypeError, match="expected_cardinality must be an int"):
        td.Dataset.range(5).assert_cardinality("5")  # type: ignore[arg-type]  # on purpose


def test_what_was_said_is_the_cardinality() -> None:
    ds = td.Dataset.range(10).filter(lambda x: x > 4)

    assert len(ds.assert_cardinality(5)) == 5
    assert len(ds.assert_cardinality(7)) == 7
    assert ds.repeat().assert_cardinality(-1).cardinality() == td.INFINITE_CARDINALITY
    assert ds.assert_cardinality(5).ignore_errors().cardinality() == td.UNKNOWN_CARDINALITY


def test_random_access_stays_where_the_number_is_right() -> None:
    assert int(td.Dataset.range(5).assert_cardinality(5)[3]) == 3
    with pytest.raises(TypeError, match="no random access"):
        td.Dataset.range(5).assert_cardinality(4)[3]


@pytest.mark.parametrize(
    ("build", "error", "told"),
    [
        (lambda: ROWS.pad_to_cardinality(1), SpecError, "at least what there is, 2 elements"),
        (lambda: ROWS.repeat().pad_to_cardinality(5), SpecError, "and it is infinite"),
        (lambda: ROWS.filter(bool).pad_to_cardinality(5), SpecError, "and it is not known"),
        (lambda: ROWS.pad_to_cardinality(3, "a"), SpecError, "mask_key 'a' is a key"),
        (lambda: ROWS.pad_to_cardinality(3, NO_STR), TypeError, "mask_key must be a str"),
        (lambda: ROWS.pad_to_cardinality(-1), ValueError, "cardinality must be at least 0"),
        (lambda: td.Dataset.range(2).pad_to_cardinality(3), SpecError, "elements that are dicts"),
        (lambda: ROWS.take(0).pad_to_cardinality(3), SpecError, "there is none"),
        (lambda: ROWS.map(lambda _: 1 // 0).pad_to_cardinality(3), SpecError, "ZeroDivisionError"),
        (
            lambda: ROWS.map(lambda _: {"o": object()}).pad_to_cardinality(3),
            SpecError,
            "there is none of",
        ),
    ],
)
def test_padding_names_what_is_wrong(build: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        build()


def test_a_padded_dataset_has_random_access() -> None:
    ds = ROWS.pad_to_cardinality(4)

    assert len(ds) == 4
    assert ds[3] == {"a": 0, "valid": np.False_}
    assert ds[1] == {"a": 2, "valid": np.True_}
