"""Sets of element numbers as sorted ranges that neither touch nor overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Ranges = tuple[tuple[int, int], ...]
"""``((first, stop), ...)``: the numbers from `first` up to, not with, `stop`."""


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Combine ranges that may touch or overlap.

    Examples
    --------
    >>> union([(4, 6), (0, 2), (2, 3), (5, 9)])
    ((0, 3), (4, 9))
    """
    found: list[tuple[int, int]] = []
    for first, stop in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        elif first < stop:
            found.append((first, stop))
    return tuple(found)


def of_numbers(numbers: Iterable[int]) -> Ranges:
    """Return the ranges of single numbers."""
    return union((n, n + 1) for n in numbers)


def numbers_of(ranges: Ranges) -> Iterator[int]:
    """Return the numbers in ranges, ascending."""
    for first, stop in ranges:
        yield from range(first, stop)


def within(ranges: Ranges, first: int, stop: int | None = None) -> Ranges:
    """Return the part of ranges from `first` up to `stop` (None: all from there)."""
    return tuple(
        (max(a, first), b if stop is None else min(b, stop))
        for a, b in ranges
        if b > first and (stop is None or a < stop)
    )


def size(ranges: Ranges) -> int:
    """Return how many numbers there are in ranges."""
    return sum(stop - first for first, stop in ranges)


def moved(ranges: Ranges, by: int) -> Ranges:
    """Return ranges with `by` subtracted from each number."""
    return tuple((first - by, stop - by) for first, stop in ranges)
