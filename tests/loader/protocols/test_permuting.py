"""The keyed permutation is bit for bit that of its arithmetic, which the first version did for each position."""

from __future__ import annotations

import hashlib
import random
from functools import cache

import numpy as np
import pytest

from tundish.loader.protocols import permuting
from tundish.loader.protocols.permuting import permute

BITS = 2**64 - 1


def mixed(x: int, key: int) -> int:
    """splitmix64's finaliser."""
    z = (x + key) & BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
    return z ^ (z >> 31)


@cache
def hashed_order(n: int, key: int) -> list[int]:
    """The order of a small domain."""
    hashes = [mixed((k * 0x9E3779B97F4A7C15) & BITS, key) for k in range(n)]
    return sorted(range(n), key=hashes.__getitem__)


def reference(position: int, n: int, seed: int, pass_: int) -> int:
    """Return where one position goes, in Python's ints."""
    digest = hashlib.blake2b(f"tundish permutation {seed} {pass_}".encode(), digest_size=48)
    words = [digest.digest()[8 * k : 8 * k + 8] for k in range(6)]
    keys = [int.from_bytes(word, "little") | 1 for word in words]
    if n <= 4096:
        return hashed_order(n, keys[0])[position]
    half = ((n - 1).bit_length() + 1) // 2
    x = position
    while True:
        left, right = x >> half, x & ((1 << half) - 1)
        for key in keys:
            left, right = right, left ^ (mixed(right, key) & ((1 << half) - 1))
        x = (left << half) | right
        if x < n:
            return x


DOMAINS = (1, 2, 100, 4096, 4097, 65_536, 65_537, 2**20, 2**20 + 1, 10**9, 2**32, 2**32 + 1)


@pytest.mark.parametrize("n", [*DOMAINS, 2**40 + 3, 2**63 - 1])
def test_positions_go_where_the_arithmetic_says(n: int) -> None:
    rng = random.Random(n)
    for seed, pass_ in ((0, 0), (1, 7), (-5, 2**40), (rng.getrandbits(64), 1)):
        positions = np.array([0, n - 1, *(rng.randrange(n) for _ in range(30))], np.int64)
        expected = [reference(int(k), n, seed, pass_) for k in positions]

        found = permute(positions, n, seed, pass_)  # few: without tables

        assert found.dtype == np.int64
        assert found.tolist() == expected
        many = np.resize(positions, 70_000)  # with tables, and in blocks
        assert permute(many, n, seed, pass_).tolist() == np.resize(expected, 70_000).tolist()
        assert permute(positions, n, seed, pass_).tolist() == expected
        assert permute(positions[:0], n, seed, pass_).tolist() == []


@pytest.mark.parametrize("n", [4097, 20_000, 70_001, 336_776])
def test_every_position_comes_once_however_many_are_asked_for_at_once(n: int) -> None:
    permuting._network.cache_clear()
    sizes, parts, first = random.Random(n), [], 0
    while first < n:
        stop = min(n, first + sizes.choice((1, 10, 1000, 40_000)))
        parts.append(permute(np.arange(first, stop), n, 3, 0))
        first = stop

    found = np.concatenate(parts)

    assert np.array_equal(found, permute(np.arange(n), n, 3, 0))
    assert np.array_equal(np.sort(found), np.arange(n))


def test_the_positions_that_are_given_stay_as_they_are() -> None:
    positions = np.arange(5000)
    permute(positions, 5000, 1, 0)
    assert np.array_equal(positions, np.arange(5000))


def test_few_positions_of_many_make_no_tables_and_the_tables_kept_are_few() -> None:
    permuting._network.cache_clear()

    def tables(n: int, seed: int) -> int:
        half = ((n - 1).bit_length() + 1) // 2
        return sum(table.nbytes for table in permuting._network(half, seed, 0)._tables)

    permute(np.arange(1000), 10**9, 1, 0)
    assert not tables(10**9, 1)
    for _ in range(40):
        permute(np.arange(1000), 10**9, 1, 0)
    assert tables(10**9, 1) == 6 * 8 * 2**15
    permute(np.arange(2**18), 2**33, 1, 0)
    assert not tables(2**33, 1)  # they would take more than 3 MB
    for seed in range(100):
        permute(np.arange(5000), 5000, seed, 0)
    assert permuting._network.cache_info().currsize <= 8
