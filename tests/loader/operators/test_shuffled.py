"""The window shuffle of positions is that of a stream: item for item, state for state."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tundish import Dataset
from tundish.loader.operators.shuffle import WindowShuffle
from tundish.loader.operators.shuffled import ShuffledPositions, draw
from tundish.loader.protocols.context import Context
from tundish.loader.protocols.items import End, Ref
from tundish.loader.protocols.positional import Positions, listed
from tundish.loader.protocols.shuffling import Draws, seed_pair

if TYPE_CHECKING:
    from collections.abc import Callable

INPUTS: dict[str, Callable[[int], Dataset]] = {
    "range": Dataset.range,
    "shuffled": lambda n: Dataset.range(n).shuffle(None, seed=2),
    "passes": lambda n: Dataset.range(n // 3).repeat(3),
    "joined": lambda n: Dataset.range(n // 2).concatenate(Dataset.range(n - n // 2)),
    "numbered": lambda n: Dataset.range(n).enumerate(),
    "zipped": lambda n: Dataset.zip(Dataset.range(n), Dataset.range(n).repeat(2)),
    "batches": lambda n: Dataset.range(3 * n).batch(3),
}


def node_of(ds: Dataset) -> Any:
    return ds._node


def machines(ds: Dataset, size: int, state: Any = None) -> tuple[WindowShuffle, ShuffledPositions]:
    """The window one by one, and by blocks, over positions of the same node."""
    node = node_of(ds.shuffle(size, seed=4))
    context = Context(node, 0, 1, None)
    ups = [Positions(node.up, 0, context) for _ in range(2)]
    draws = Draws(seed_pair(4), 0)
    one = WindowShuffle(node, ups[0], size, draws, pass_=0, context=context)
    many = ShuffledPositions(node.up, ups[1], size, draws, pass_=0, context=context)
    for machine in (one, many):
        if state is not None:
            machine.load(state)
    return one, many


def follow(one: WindowShuffle, many: ShuffledPositions, rng: random.Random) -> list[Any]:
    """Ask for all that is left, both ways, and compare each item and some states; those states."""
    states: list[Any] = []
    while True:
        alone, most = not rng.randrange(3), rng.choice((1, 2, 50, 400, 20_000))
        try:
            found: list[Ref] = [many.next()] if alone else listed(many.take(most))
        except End:
            with pytest.raises(End):
                one.next()
            return states
        marks = []
        for ref in found:
            assert ref == one.next()
            marks.append(one.mark())
        for left in {0, len(found) - 1, rng.randrange(len(found))}:
            expected = one.dump(marks[-1 - left])
            assert many.dump(many.mark(left)) == expected
            states.append(expected)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("seed", range(3))
def test_items_and_states_are_those_of_a_stream(name: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(8):
        size = rng.choice((1, 2, 7, 64, 65, 500, 3000))
        ds = INPUTS[name](rng.choice((0, 1, 3, 40, 700, 2500)))
        one, many = machines(ds, size)
        assert many.dump(many.mark()) == one.dump(one.mark())
        for state in rng.sample(states := follow(one, many, rng), min(2, len(states))):
            again = machines(ds, size, state)
            assert again[1].dump(again[1].mark()) == state
            follow(*again, rng)


@pytest.mark.parametrize("size", [300, 3000, 40_000])
def test_a_mark_stays_good_while_the_machine_runs_ahead(size: int) -> None:
    _, many = machines(Dataset.range(100_000), size)
    kept = []
    for _ in range(50):
        many.take(2000)
        kept.append((many.mark(), many.dump(many.mark())))
    for mark, state in kept:
        assert many.dump(mark) == state


@pytest.mark.parametrize("size", [1, 2, 30, 1000])
def test_draws_of_a_window_are_those_of_a_list(size: int) -> None:
    rng = np.random.default_rng(size)
    for length in (1, 2, 29, 31, 400, 999, 1500):
        buffer = rng.permutation(length)
        draws = rng.integers(0, 2**32, rng.integers(0, length + 1), np.uint64)
        window, expected = buffer.tolist(), []
        for head, number in enumerate(draws.tolist()):
            at = head + number % min(size, length - head)
            expected.append(window[at])
            window[at] = window[head]

        assert draw(buffer, size, draws).tolist() == expected
        assert buffer[len(draws) :].tolist() == window[len(draws) :]


def test_many_refs_come_as_an_array() -> None:
    _, many = machines(Dataset.range(50_000), 1000)
    sizes: list[int] = []
    while sum(sizes) < 50_000:
        refs = many.take(4096)
        assert isinstance(refs, np.ndarray)
        assert refs.dtype == np.int64
        sizes.append(len(refs))
    with pytest.raises(End):
        many.take(1)
    assert max(sizes) == 4096
    assert sizes[0] <= 64  # the first ones do not wait for many


def test_large_elements_are_not_drawn_far_ahead() -> None:
    node = node_of(Dataset.range(10**6).batch(2000).shuffle(100, seed=1))
    context = Context(node, 0, 1, None)
    up = Positions(node.up, 0, context)
    draws = Draws(seed_pair(1), 0)
    many = ShuffledPositions(node.up, up, 100, draws, pass_=0, context=context)
    for _ in range(200):
        many.next()
    assert up.mark() < 200 + 100 + 20
