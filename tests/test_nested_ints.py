"""Ints beyond 64 bits are refused wherever they stand in a list, since numpy would round them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tundish import Dataset
from tundish.errors import SpecError
from tundish.normalising import normalise

BIG = 2**63 + 1


class Pair(NamedTuple):
    left: int
    right: int


@pytest.mark.parametrize(
    "value",
    [
        [BIG, 1],
        [[BIG], [1]],
        [(BIG, 1), (2, 3)],
        [[(1, 2)], [(3, BIG)]],
        [Pair(1, 2), Pair(3, BIG)],
        [1.5, BIG],
        [(1, -BIG)],
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_they_are_refused(value: Any, workers: int) -> None:
    ds = Dataset.range(1).map(lambda _: value)
    with ds.iterator(workers=workers) as it, pytest.raises(SpecError, match=str(BIG)):
        next(it)


def test_those_that_fit_are_integers() -> None:
    found: Any = next(iter(Dataset.range(1).map(lambda _: [(2**63 - 1, 1), (2, 3)])))
    assert found.tolist() == [[2**63 - 1, 1], [2, 3]]


@pytest.mark.parametrize(
    "value",
    [[2**63], [[2**63, 2**63]], [np.uint64(BIG), 3], [[np.uint64(BIG)], [np.int8(1)]]],
)
def test_those_that_numpy_makes_unsigned_or_rounds(value: Any) -> None:
    with pytest.raises(SpecError, match=r"does not fit 64 bits|rounds"):
        normalise(value)


def test_unsigned_ints_of_numpy_s_are_what_they_are() -> None:
    assert normalise([np.uint64(BIG)]).tolist() == [BIG]
    assert normalise([np.uint64(2**63), 0]).tolist() == [2.0**63, 0]


def test_what_is_masked_or_missing_within_a_list() -> None:
    for value in (
        [np.ma.array([1, 2], mask=[False, True])],
        [[1, 2], np.ma.array([1, 2], mask=[False, True])],
    ):
        with pytest.raises(SpecError, match="masked"):
            normalise(value)
    with pytest.raises(SpecError, match="missing"):
        normalise([pa.array([1, None])])
    assert normalise([np.ma.array([1, 2])]).tolist() == [[1, 2]]


def test_a_list_that_contains_itself_ends() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(SpecError, match="ragged"):
        normalise(value)
