"""Ints beyond 64 bits are refused wherever they stand in a list, since numpy would round them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tundish import Dataset
from tundish.errors import SpecError

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
