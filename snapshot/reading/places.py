"""Locations of elements: the batch and the row of each.

Batches are numbered over all runs of a reader, in the order of their first elements. A failed element is in no batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tundish.errors import SnapshotCorruptError

if TYPE_CHECKING:
    from tundish.snapshot.files.mapping import Mapping

Span = tuple[int, int, int]
"""A batch, and which rows of it: first, stop. Batch -1: one element that failed, and its index twice."""


class Spans:
    """Batches of consecutive elements.

    Parameters
    ----------
    starts, rows : numpy.ndarray
        The first element and the number of rows of each batch, ascending.
    total : int
        The number of elements.

    Attributes
    ----------
    width : int
        The number of rows of every batch (the last may have fewer); 0 if they differ or elements failed.
    """

    def __init__(self, starts: np.ndarray, rows: np.ndarray, total: int) -> None:
        self._starts, self._rows = starts.astype(np.int64), rows.astype(np.int64)
        self._list: list[int] = self._starts.tolist()
        self._lengths: list[int] = self._rows.tolist()
        self.width = self._lengths[0] if self._is_even(total) else 0

    def _is_even(self, total: int) -> bool:
        starts, rows = self._starts, self._rows
        if not len(rows) or not 0 < rows[-1] <= rows[0]:
            return False
        even = (rows[:-1] == rows[0]).all() and (starts == np.arange(len(rows)) * rows[0]).all()
        return bool(even) and int(starts[-1] + rows[-1]) == total

    def find(self, n: int, /) -> tuple[int, int]:
        """Return the batch and the row of an element; the batch is -1 if it failed."""
        b = bisect_right(self._list, n) - 1
        k = n - self._list[b] if b >= 0 else 0
        return (b, k) if b >= 0 and k < self._lengths[b] else (-1, n)

    def find_all(self, indices: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]:
        """Return the batches and the rows of many elements."""
        if not len(self._starts):
            return np.full(len(indices), -1), indices
        if self.width:
            batches, rows = np.divmod(indices, self.width)
            return batches, rows
        batches = np.searchsorted(self._starts, indices, "right") - 1
        rows = indices - self._starts[batches]
        missing = (batches < 0) | (rows >= self._rows[batches])
        return np.where(missing, -1, batches), rows

    def spans(self, start: int, stop: int) -> Iterator[Span]:
        """Yield the rows of a range of elements, in order."""
        while start < stop:
            b, k = self.find(start)
            if b < 0:
                yield b, start, start
                start += 1
                continue
            length = min(stop - start, self._lengths[b] - k)
            yield b, k, k + length
            start += length


class UserShardPlaces:
    """Locations in a run with user shards, where every element has one of its own.

    Parameters
    ----------
    order : numpy.ndarray of shape (rows, 2), int64
        The batch and the row of each element; (-1, -1) if it failed.
    mapping : Mapping, optional
        The file that `order` is a view of.
    """

    def __init__(self, order: np.ndarray, mapping: Mapping | None = None) -> None:
        self._order, self._mapping = order, mapping
        self._flat = memoryview(order.reshape(-1))  # type: ignore[arg-type]  # it has the buffer protocol

    def _look(self) -> None:
        """Raise if the file was truncated: accessing it would kill the process."""
        mapping = self._mapping
        if mapping is not None and mapping.size() != len(mapping):
            problem = f"has {mapping.size():,} bytes, {len(mapping):,} were written"
            raise SnapshotCorruptError(mapping.path, problem)

    def find(self, n: int, /) -> tuple[int, int]:
        self._look()
        return self._flat[2 * n], self._flat[2 * n + 1]

    def find_all(self, indices: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]:
        self._look()
        found = self._order[indices]
        return found[:, 0], found[:, 1]

    def spans(self, start: int, stop: int) -> Iterator[Span]:
        if stop <= start:
            return
        self._look()
        batches, rows = self._order[start:stop].T
        goes_on = (batches[1:] == batches[:-1]) & (rows[1:] == rows[:-1] + 1) & (batches[1:] >= 0)
        cuts = [0, *(np.flatnonzero(~goes_on) + 1).tolist(), stop - start]
        for first, end in pairwise(cuts):
            b, k = int(batches[first]), int(rows[first])
            yield (b, k, k + end - first) if b >= 0 else (-1, start + first, start + first)


class Chained:
    """Locations in several runs, one after the other.

    Parameters
    ----------
    parts : sequence of Places
        The locations in each run, counted from 0.
    firsts, batches : sequence of int
        The number of elements, and of batches, before each run.
    rows : int
        The number of elements.
    """

    def __init__(
        self, parts: Sequence[Places], firsts: Sequence[int], batches: Sequence[int], rows: int
    ) -> None:
        self._parts, self._firsts, self._batches = list(parts), list(firsts), list(batches)
        self._stops = [*self._firsts[1:], rows]

    def find(self, n: int, /) -> tuple[int, int]:
        which = bisect_right(self._firsts, n) - 1
        b, k = self._parts[which].find(n - self._firsts[which])
        return (b + self._batches[which], k) if b >= 0 else (-1, n)

    def find_all(self, indices: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]:
        which = np.searchsorted(self._firsts, indices, "right") - 1
        batches, rows = np.empty(len(indices), np.int64), np.empty(len(indices), np.int64)
        for part in np.unique(which):
            mine = which == part
            b, rows[mine] = self._parts[part].find_all(indices[mine] - self._firsts[part])
            batches[mine] = np.where(b >= 0, b + self._batches[part], -1)
        return batches, rows

    def spans(self, start: int, stop: int) -> Iterator[Span]:
        pieces = zip(self._parts, self._firsts, self._stops, self._batches, strict=True)
        for part, first, end, base in pieces:
            for b, k, until in part.spans(max(start - first, 0), min(stop, end) - first):
                yield (b + base, k, until) if b >= 0 else (-1, k + first, k + first)


Places: TypeAlias = Spans | UserShardPlaces | Chained
"""The places of the elements of a range."""
