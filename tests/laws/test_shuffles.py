"""Law 8: shuffles are permutations, seeded orders are the field's, shards are fair."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tundish import Dataset
from tundish.testing.orders import permutation, window_shuffle, window_words

EDGES = sorted({2**k + d for k in range(1, 15) for d in (-1, 0, 1)})


def order(n: int, seed: int = 1, iteration: int = 0) -> list[int]:
    ds = Dataset.range(n).shuffle(None, seed=seed)
    return [int(x) for x in ds.iterator(iteration=iteration, workers=0)]


def test_it_is_a_permutation_of_every_small_number() -> None:
    for n in range(301):
        assert sorted(order(n)) == list(range(n)), n


def test_it_is_a_permutation_around_every_power_of_two() -> None:
    for n in EDGES:
        assert np.array_equal(np.sort(order(n, seed=n)), np.arange(n)), n


@pytest.mark.parametrize("n", [1, 17, 4096, 4097, 16384, 16385, 20_000])
def test_it_is_the_one_that_is_described(n: int) -> None:
    for seed, iteration in ((0, 0), (2**63 - 1, 3)):
        assert order(n, seed, iteration) == permutation(n, seed, iteration)


@pytest.mark.parametrize("n", [2, 3, 17, 100, 5000])
def test_it_moves_things(n: int) -> None:
    """Hardly one of several seeds leaves much in its place."""
    fixed = [np.mean(np.array(order(n, seed)) == np.arange(n)) for seed in range(20)]

    assert np.mean(fixed) < 4 / n + 0.01 or n < 4


def test_it_is_the_same_again() -> None:
    assert order(1000) == order(1000)


def test_passes_iterations_and_seeds_all_differ() -> None:
    orders = [order(200, seed, iteration) for seed in range(8) for iteration in range(8)]
    repeated = [int(x) for x in Dataset.range(200).shuffle(None, seed=0).repeat(3).iterator()]
    passes = [repeated[i : i + 200] for i in (0, 200, 400)]

    assert len({tuple(o) for o in orders}) == 64
    assert len({tuple(p) for p in passes}) == 3
    assert all(sorted(p) == list(range(200)) for p in passes)


def test_without_reshuffling_passes_are_alike() -> None:
    ds = Dataset.range(50).shuffle(None, seed=1, reshuffle_each_iteration=False).repeat(2)
    found = [int(x) for x in ds.iterator(iteration=3)]

    assert found[:50] == found[50:] == order(50)


@pytest.mark.parametrize("n", [4, 6, 5000])
def test_every_place_is_as_likely(n: int) -> None:
    """Chi-square of where the first elements land, over passes."""
    passes = 4000 if n < 100 else 800
    cells = min(n, 8)
    counts = np.zeros((3, cells))
    ds = Dataset.range(n).shuffle(None, seed=3)
    for number in range(passes):
        for place, x in enumerate(itertools.islice(ds.iterator(iteration=number, workers=0), 3)):
            counts[place, int(x) * cells // n] += 1
    expected = passes / cells
    chi = ((counts - expected) ** 2 / expected).sum(axis=1)

    assert (chi < cells - 1 + 5 * np.sqrt(2 * (cells - 1))).all(), chi


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
def test_the_window_is_tf_data_s_draw_for_draw(size: int) -> None:
    runs = itertools.product((0, 1, 10, 100, 700), ((0, 0), (42, 1), (2**40, 5)))
    for n, (seed, iteration) in runs:
        ds = Dataset.range(n).shuffle(size, seed=seed)
        found = [int(x) for x in ds.iterator(iteration=iteration, workers=0)]

        assert found == list(window_shuffle(range(n), size, window_words(seed, iteration)))


def test_a_recorded_order() -> None:
    """``shuffle(5, seed=7).repeat(3)`` as TensorFlow 2.21 gives it."""
    found = [int(x) for x in Dataset.range(5).shuffle(5, seed=7).repeat(3)]

    assert found == [2, 4, 0, 3, 1, 4, 3, 1, 0, 2, 1, 2, 3, 4, 0]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_are_disjoint_complete_and_fair(count: int) -> None:
    for n in (0, 1, 7, 12, 100):
        ds = Dataset.range(n).shuffle(None, seed=1)
        shards = [[int(x) for x in ds.shard(count, i).iterator(workers=0)] for i in range(count)]
        sizes = [len(shard) for shard in shards]

        assert sorted(itertools.chain(*shards)) == list(range(n))
        assert max(sizes) - min(sizes) <= 1
        assert sizes == [len(ds.shard(count, i)) for i in range(count)]
