"""Ranges of a chunk's rows: those between failed elements, and those of each user shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tundish.snapshot.encoding.forms import Columns


def row_count(pieces: Sequence[Columns]) -> int:
    """Return the total number of rows."""
    return sum(piece.rows for piece in pieces)


def segments(
    start: int, pieces: Sequence[Columns], failed: Sequence[int]
) -> Iterator[tuple[int, list[Columns]]]:
    """Yield the ranges of rows without a gap: (number of the first element, pieces).

    Parameters
    ----------
    start : int
        The number of the chunk's first element, which may have failed.
    pieces : sequence of Columns
        The elements that did not fail, in order.
    failed : sequence of int
        The numbers of the failed elements.
    """
    rows = row_count(pieces)
    done = 0
    for number in [*sorted(failed), start + rows + len(failed)]:
        length = number - start
        if length:
            yield start, between(pieces, done, done + length)
        done += length
        start = number + 1


def by_shard(
    start: int, pieces: Sequence[Columns], failed: Sequence[int], shards: np.ndarray
) -> Iterator[tuple[int, np.ndarray, list[Columns]]]:
    """Yield the rows of each user shard, in order: (shard, numbers of the elements, pieces).

    Parameters
    ----------
    start, pieces, failed : int, sequence of Columns, sequence of int
        As for `segments`.
    shards : numpy.ndarray of shape (rows,)
        The user shard of each row.
    """
    rows = row_count(pieces)
    numbers = np.arange(start, start + rows + len(failed))
    numbers = numbers[~np.isin(numbers, np.asarray(failed, dtype=np.int64))]
    order = np.argsort(shards, kind="stable")
    found, firsts = np.unique(shards[order], return_index=True)
    bounds = np.cumsum([0, *(piece.rows for piece in pieces)])
    for shard, chosen in zip(found.tolist(), np.split(order, firsts[1:]), strict=True):
        cuts = np.searchsorted(chosen, bounds)
        taken = [
            picked(piece, chosen[first:stop] - bound)
            for piece, bound, first, stop in zip(pieces, bounds, cuts, cuts[1:], strict=False)
            if first < stop
        ]
        yield shard, numbers[chosen], taken


def between(pieces: Sequence[Columns], first: int, stop: int) -> list[Columns]:
    """Return a range of rows, as views."""
    found = []
    for piece in pieces:
        low, high = max(first, 0), min(stop, piece.rows)
        if low < high:
            whole = (low, high) == (0, piece.rows)
            found.append(piece if whole else cut(piece, low, high))
        first, stop = first - piece.rows, stop - piece.rows
    return found


def cut(piece: Columns, first: int, stop: int) -> Columns:
    """Return a range of one piece."""
    return Columns(piece.tree, tuple(leaf[first:stop] for leaf in piece.leaves), stop - first)


def picked(piece: Columns, rows: np.ndarray) -> Columns:
    """Return some rows of one piece; copied unless they are all."""
    if len(rows) == piece.rows:
        return piece

    def one(leaf: Any) -> Any:
        return leaf[rows] if isinstance(leaf, np.ndarray) else [leaf[k] for k in rows.tolist()]

    return Columns(piece.tree, tuple(one(leaf) for leaf in piece.leaves), len(rows))
