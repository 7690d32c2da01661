"""One process's part of every batch, dealt before anything is computed."""

from __future__ import annotations

from typing import Any

import pytest

from tundish import Dataset, InputContext
from tundish.loader.operators.sharing import BatchShare, part_of
from tundish.testing import assert_resumes_anywhere, assert_workers_do_not_show
from tundish.testing.functions import Draw, Keep


def share(rows: int, count: int, index: int, short: Any = "keep") -> BatchShare:
    return BatchShare(Dataset.range(9)._node, InputContext(count, index, count), rows, short)


@pytest.mark.parametrize(("short", "items"), [("drop", [0, 1, 4, 5]), ("keep", [0, 1, 4, 5, 8])])
def test_a_last_batch_that_is_not_whole(short: str, items: list[int]) -> None:
    node = share(4, 2, 0, short)
    found = [int(x) for x in Dataset._of(node)]

    assert found == items
    assert node.cardinality == len(items)


def test_parts_are_side_by_side() -> None:
    for rows in range(20):
        for count in range(1, 7):
            parts = [part_of(rows, k, count) for k in range(count)]
            assert [x for a, b in parts for x in range(a, b)] == list(range(rows))
            assert sorted((b - a for a, b in parts), reverse=True) == [b - a for a, b in parts]


@pytest.mark.slow
def test_the_laws() -> None:
    """The laws hold for the elements that one process has; errors and what comes after them are `distribute`'s."""
    ds = Dataset.range(60).shuffle(7, seed=1).filter(Keep(1)).map(Draw(1), seed=2)
    node = BatchShare(ds._node, InputContext(3, 1, 3), 6, "drop")
    mine = Dataset._of(node).batch(2)

    assert_workers_do_not_show(mine, workers=(0, 2))
    assert_resumes_anywhere(mine, workers=(0, 2), steps=4)
