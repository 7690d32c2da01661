"""Orders of windows equal tf.data's, are fast, and cost nothing where they are only looked up."""

from __future__ import annotations

import random
import time
import tracemalloc
from itertools import islice

import pytest

from tundish import Dataset, set_seed
from tundish.loader.protocols.shuffling import philox32
from tundish.testing.orders import seed_words, window_shuffle, words


@pytest.mark.parametrize("first", [0, 2**64 - 2, 2**64 + 9, 2**93])
@pytest.mark.parametrize("seed2", [3, 2**64 - 1])
def test_the_counter_has_128_bits(first: int, seed2: int) -> None:
    expected = list(islice(words(7, seed2, 4 * first), 16))

    assert philox32(7, seed2, first, 4).tolist() == expected


@pytest.mark.parametrize("part", range(4))
def test_200_random_configurations_equal_the_reference(part: int) -> None:
    rng = random.Random(part)
    for _ in range(50):
        n = rng.choice((0, 1, 2, 17, 100, rng.randint(0, 1500)))
        size = rng.choice((1, 2, 3, 64, rng.randint(1, 2000)))
        seed = rng.choice((0, 2**31 - 1, rng.randrange(2**31), rng.randrange(-(2**62), 2**63)))
        graph_seed = rng.choice((None, None, 0, rng.randrange(2**40)))
        reshuffle = rng.random() < 0.6
        below, above, epochs = rng.choice((1, 1, 2)), rng.choice((1, 1, 3)), rng.choice((1, 2))
        if above > 1:
            epochs = 1  # what number a later iteration's passes have is our own
        told = f"{n}, {size}, {seed}, {graph_seed}, {reshuffle}, {below}, {above}"
        pair = seed_words(seed, graph_seed)
        seeds = words(*pair)
        expected: list[int] = []
        for _ in range(epochs * above):
            draws = words(next(seeds), next(seeds)) if reshuffle else words(*pair)
            expected += window_shuffle(list(range(n)) * below, size, draws)

        set_seed(graph_seed)
        try:
            ds = Dataset.range(n).repeat(below)
            ds = ds.shuffle(size, seed, reshuffle_each_iteration=reshuffle)
            ds = ds.repeat(above) if above > 1 else ds
            assert [int(x) for _ in range(epochs) for x in ds] == expected, told
            # Of elements that have no positions, one by one.
            ds = Dataset.range(n).repeat(below).filter(lambda _: True)
            ds = ds.shuffle(size, seed, reshuffle_each_iteration=reshuffle).repeat(above)
            assert [int(x) for _ in range(epochs) for x in ds] == expected, f"a stream: {told}"
        finally:
            set_seed(None)


@pytest.mark.parametrize("window", [1, 5, 100, 3000])
def test_states_within_elements_that_came_at_once(window: int) -> None:
    ds = Dataset.range(2500).shuffle(window, seed=3)
    expected = [int(x) for x in ds.iterator()]
    with ds.iterator() as iterator:
        for step, _ in enumerate(iterator, 1):
            assert iterator.stats.elements == step
            if step % 97 == 0 or step in (1, 1023, 1024, 1025, 2048, 2499, 2500):
                with ds.iterator() as other:
                    other.load_state_dict(iterator.state_dict())
                    assert [int(x) for x in other] == expected[step:], step


def test_a_million_indices_in_a_second() -> None:
    ds = Dataset.range(10**6).shuffle(1000, seed=1)
    next(iter(ds))
    began = time.process_time()

    count = sum(1 for _ in ds)

    assert time.process_time() - began < 1
    assert count == 10**6


def test_a_place_in_a_permutation_of_a_billion_is_looked_up() -> None:
    def look() -> list[int]:
        ds = Dataset.range(10**9).shuffle(None, seed=1).shard(8, 3).skip(10**8).take(5)
        return [int(x) for x in ds]

    found = look()
    assert len(set(found)) == 5
    times = []
    for _ in range(3):
        began = time.process_time()
        assert look() == found
        times.append(time.process_time() - began)
    tracemalloc.start()
    try:
        look()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert min(times) < 0.010
    assert peak < 10**6
