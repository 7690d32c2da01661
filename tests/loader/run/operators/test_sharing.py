"""One process's part of every batch, dealt before anything is computed."""

from __future__ import annotations

from typing import Any

import pytest

from tundish import Dataset, InputContext
from tundish.loader.operators.sharing import BatchShare, NoRows, part_of
from tundish.loader.protocols.items import End, Failure, NotReady
from tundish.loader.run.operators.sharing import PartsOfBatches
from tundish.testing import assert_resumes_anywhere, assert_workers_do_not_show
from tundish.testing.functions import Draw, Keep


def share(rows: int, count: int, index: int, short: Any = "keep") -> BatchShare:
    return BatchShare(Dataset.range(9)._node, InputContext(count, index, count), rows, short)


class Slow:
    """Items of which every other one is not ready when it is asked for first."""

    def __init__(self, count: int) -> None:
        self._count, self._at, self._asked = count, 0, False

    def next(self) -> int:
        self._asked = not self._asked
        if self._asked:
            raise NotReady
        if self._at == self._count:
            raise End
        self._at += 1
        return self._at - 1

    def mark(self) -> int:
        return self._at

    def dump(self, mark: int) -> int:
        return mark

    def load(self, state: int) -> None:
        self._at = state


def test_marks_are_between_two_batches_whatever_is_ready() -> None:
    machine = PartsOfBatches(share(4, 2, 1), Slow(9))
    found: list[Any] = []
    places = []
    while True:
        try:
            item = machine.next()
        except NotReady:
            places.append(machine.mark())
            continue
        except End:
            break
        found.append(type(item.error) if isinstance(item, Failure) else item)
        places.append(machine.mark())

    assert found == [2, 3, 6, 7, NoRows]
    assert set(places) == {0, 4, 8, 9}


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
    """Of the elements that one process has; errors and what comes behind them are `distribute`'s."""
    ds = Dataset.range(60).shuffle(7, seed=1).filter(Keep(1)).map(Draw(1), seed=2)
    node = BatchShare(ds._node, InputContext(3, 1, 3), 6, "drop")
    mine = Dataset._of(node).batch(2)

    assert_workers_do_not_show(mine, workers=(0, 2))
    assert_resumes_anywhere(mine, workers=(0, 2), steps=4)
