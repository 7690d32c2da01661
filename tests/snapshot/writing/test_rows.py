"""Rows of chunks in several pieces, cut at elements that failed and sorted by user shard."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tundish.snapshot.encoding.forms import Columns
from tundish.snapshot.writing.rows import by_shard, row_count, segments

LENGTHS = ([7], [3, 4], [1, 0, 5, 1], [2, 2, 2, 1])
FAILED: tuple[list[int], ...] = ([], [10], [12, 13], [17], [10, 14, 19])


def pieces_of(numbers: list[int], lengths: list[int]) -> list[Columns]:
    """Elements that are their numbers, as an array and as a list."""
    ends = np.cumsum([0, *lengths])
    parts = [numbers[a:b] for a, b in itertools.pairwise(ends)]
    return [Columns(None, (np.array(p) if k % 2 else p,), len(p)) for k, p in enumerate(parts)]


def values(pieces: list[Columns]) -> list[int]:
    return [int(value) for piece in pieces for value in piece.leaves[0]]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("failed", FAILED)
def test_segments_have_no_gap(lengths: list[int], failed: list[int]) -> None:
    numbers = [n for n in range(10, 10 + 7 + len(failed)) if n not in failed]
    assert row_count(pieces_of(numbers, lengths)) == 7

    found = []
    for first, pieces in segments(10, pieces_of(numbers, lengths), failed):
        rows = values(pieces)
        assert rows == list(range(first, first + len(rows)))
        found += rows
    assert found == numbers


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("failed", FAILED)
def test_rows_of_each_shard_keep_their_order(lengths: list[int], failed: list[int]) -> None:
    numbers = [n for n in range(10, 10 + 7 + len(failed)) if n not in failed]
    shards = np.array([n * 7 % 3 for n in numbers])

    found = {
        shard: (at.tolist(), values(pieces))
        for shard, at, pieces in by_shard(10, pieces_of(numbers, lengths), failed, shards)
    }

    for shard, (at, rows) in found.items():
        assert at == rows == [n for n in numbers if n * 7 % 3 == shard]
    assert sorted(n for at, _ in found.values() for n in at) == numbers
