"""Positions give the refs that the tree has there, however they are asked for, and look ahead where that is cheaper."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from tundish import Dataset
from tundish.loader.operators.shuffle import Shuffle
from tundish.loader.protocols.context import Context
from tundish.loader.protocols.items import End
from tundish.loader.protocols.positional import Positions, listed
from tundish.loader.protocols.refs import ints

if TYPE_CHECKING:
    from collections.abc import Iterator

PLANS = {
    "range": Dataset.range(9000),
    "passes": Dataset.range(100).repeat(90),
    "shuffled": Dataset.range(9000).shuffle(None, seed=1),
    "small, endless": Dataset.range(7).shuffle(None, seed=1).repeat(),
    "shard": Dataset.range(40_000).shuffle(None, seed=1).shard(3, 1),
    "joined": Dataset.range(5000).concatenate(Dataset.range(4500).shuffle(None, seed=2)),
    "numbered": Dataset.range(9000).shuffle(None, seed=1).enumerate(),
    "batches": Dataset.range(90_000).batch(10).shuffle(None, seed=1),
}


def positions(ds: Any) -> Positions:
    node = ds._node
    return Positions(node, 0, Context(node, 0, 1, None))


@contextmanager
def asked() -> Iterator[list[int]]:
    """Yield a list of how many positions shuffles are asked for at once within a block."""
    sizes: list[int] = []
    before = Shuffle.refs_at

    def counted(node: Shuffle, where: Any, *rest: Any) -> Any:
        sizes.append(len(where))
        return before(node, where, *rest)

    with patch.object(Shuffle, "refs_at", counted):
        yield sizes


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("seed", range(4))
def test_any_way_of_asking_gives_what_stands_there(name: str, seed: int) -> None:
    ds, rng = PLANS[name], random.Random(seed)
    node = ds._node
    every = ints(node.refs_at(range(8900), 0, Context(node, 0, 1, None)))
    stream, at = positions(ds), 0
    while at < 8000:
        assert stream.mark() == at
        count = rng.choice((1, 3, 64, 300, 900))
        way = rng.randrange(4)
        if way == 0:
            assert [stream.next() for _ in range(count)] == list(every[at : at + count])
        elif way == 1:
            refs = stream.take(count)
            assert 0 < len(refs) <= count  # fewer where what was computed ahead ends
            count = len(refs)
            assert listed(refs) == list(every[at : at + count])
            assert stream.mark(count - 1) == at + 1
        elif way == 2:
            stream.advance(count)
        else:
            count = -rng.randint(0, min(at, count))
            stream.load(stream.dump(at + count))
        at += count


@pytest.mark.parametrize("name", [name for name in PLANS if "endless" not in name])
def test_the_end_is_where_it_was(name: str) -> None:
    stream, count = positions(PLANS[name]), len(PLANS[name])
    found = 0
    while len(refs := stream.take(700)):
        found += len(refs)
    assert found == stream.mark() == count
    with pytest.raises(End):
        stream.next()


def test_a_permutation_is_asked_for_few_positions_first_and_for_many_soon() -> None:
    ds = Dataset.range(10**6).shuffle(None, seed=1)
    with asked() as sizes:
        take_all(ds, 10, 200_000)

    assert sizes[0] == 10
    assert max(sizes) >= 16_384
    assert len(sizes) < 30


def test_how_far_it_looks_is_bounded_by_what_refs_hold() -> None:
    ds = Dataset.range(10**6).batch(1000).shuffle(None, seed=1)
    with asked() as sizes:
        take_all(ds, 1, 200)

    assert max(sizes) <= 40


def test_few_elements_many_times_are_not_looked_at_far_ahead() -> None:
    ds = Dataset.range(20).shuffle(None, seed=1).repeat()
    with asked() as sizes:
        take_all(ds, 10, 5000)

    assert sum(sizes) < 5200


def take_all(ds: Any, each: int, count: int) -> None:
    stream = positions(ds)
    while stream.mark() < count:
        stream.take(each)


def test_refs_of_batches_are_made_few_at_a_time() -> None:
    """A ref of a batch has as many numbers as the batch has rows."""
    ds = Dataset.range(10**6).concatenate(Dataset.range(10)).batch(1000)
    machine = Positions(ds._node, 0, Context(ds._node, 0, 0))
    made: list[int] = []
    ask = machine._made

    def counted(first: int, stop: int) -> Any:
        made.append(stop - first)
        return ask(first, stop)

    machine._made = counted  # type: ignore[method-assign]
    for _ in range(200):
        machine.next()
    assert max(made) <= 8
