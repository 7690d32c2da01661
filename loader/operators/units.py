"""shuffle(None, units=k): a permutation of the units of storage, then of the records of k units at a time.

The records of all units, one unit after another in their permuted order, are the *line*. It is divided into *windows* of k
units each, and each window is permuted by itself. So an element's record follows from its position by searching the
ends of windows and units, and a batch is made from the records of k units.

A shard is a range of the line, divided into windows of its own: it shares only the units at its two ends.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.checks import check_count
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.permuting import permute
from tundish.loader.protocols.positional import check_positions, is_awaited
from tundish.loader.protocols.refs import array_of

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.refs import Positions, Refs

_LINES_KEPT = 4  # orders of passes that run at the same time
_SHARDS_KEPT = 16  # shards of such an order


@dataclass(frozen=True, eq=False)
class UnitShuffle(Unary):
    """A keyed permutation of storage units, then of the records of `units` of them at a time."""

    units: int
    seed: int | None
    reshuffle: bool

    op = "shuffle"
    seeded = shuffles = passes = choosing = distributive = asks_numbers = deals = True

    @property
    def seedless(self) -> bool:
        return self.seed is None

    @property
    def layout(self) -> str:
        sizes = self.up.unit_sizes
        digest = b"" if sizes is None else sizes.astype("<i8").tobytes()
        return f"{hashlib.blake2b(digest, digest_size=8).hexdigest()}{super().layout}"

    def check(self) -> None:
        check_positions(self)
        if self.up.unit_sizes is None:
            raise no_units(self.up, self.units)

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        return self.dealt_at(where, 1, 0, pass_, context)

    def dealt_at(
        self, where: Positions, count: int, index: int, pass_: int, context: Context
    ) -> Refs:
        line = line_of(self, context.seed_of(self), pass_ if self.reshuffle else 0)
        moved = line.numbers(array_of(where), count, index)
        return self.up.refs_at(moved, pass_, context)


def check_units(node: Operator, buffer_size: int | None, units: Any) -> int:
    """Check how many units `shuffle` permutes at a time."""
    count = check_count("units", units, least=1)
    if buffer_size is not None:
        raise ValueError(
            f"units={count} says how much shuffle(None) permutes at a time, and buffer_size={buffer_size} is a window that "
            "elements are drawn from: give one of the two"
        )
    if not is_awaited(node) and node.unit_sizes is None:
        raise no_units(node, count)
    return count


def no_units(node: Operator, count: int) -> SpecError:
    """Return the error of `units` after a node whose elements are not stored in units."""
    return SpecError(
        f"shuffle(None, units={count}) permutes the units in which files are stored (row groups of Parquet, "
        "record batches of "
        f"Arrow, batches of a snapshot, runs of records), and {node.label} has none: leave out units=, since "
        "any element there costs the same; or put the shuffle directly after the reader"
    )


_LINES: WeakKeyDictionary[UnitShuffle, OrderedDict[tuple[int, int], Line]] = WeakKeyDictionary()


def line_of(node: UnitShuffle, seed: int, key: int) -> Line:
    """Return the order of the records in a pass, from a small cache."""
    lines = _LINES.setdefault(node, OrderedDict())
    line = lines.get((seed, key))
    if line is None:
        sizes = node.up.unit_sizes
        assert sizes is not None  # `check` has seen to that
        line = lines[seed, key] = Line(sizes, node.units, seed, key)
        while len(lines) > _LINES_KEPT:
            lines.popitem(last=False)
    return line


class Line:
    """The records of all units in their permuted order, permuted again within windows of units.

    Parameters
    ----------
    sizes : (units,) int64 ndarray
        The number of records of each unit, in the order of the source; none of them 0.
    at_once : int
        The number of units of a window.
    seed, key : int
        The seed, and the number of the pass.

    Examples
    --------
    >>> line = Line(np.array([2, 3, 1]), 2, seed=1, key=0)
    >>> sorted(line.numbers(np.arange(6)).tolist())
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, sizes: np.ndarray, at_once: int, seed: int, key: int) -> None:
        order = permute(np.arange(len(sizes)), len(sizes), seed, key)
        ends = np.cumsum(sizes[order])
        # Where units start in the order, and the distances from there to their starts in the source.
        self._starts = np.concatenate([[0], ends]).astype(np.int64)
        self._moved = (np.cumsum(sizes) - sizes)[order] - self._starts[:-1]
        self._at_once, self._seed, self._key = at_once, seed, key
        self._windows: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()

    def numbers(self, where: np.ndarray, count: int = 1, index: int = 0) -> np.ndarray:
        """Return the numbers of the source's records at positions of one of `count` shards.

        Parameters
        ----------
        where : (k,) int64 ndarray
            Positions, each less than the shard's length.
        count, index : int
            The number of shards, and the number of this one.
        """
        windows = self._windows_of(count, index)
        order = np.argsort(where, kind="stable")  # fast, since they mostly are in order
        places = where[order] + windows[0]
        found: np.ndarray = np.empty_like(places)
        k = 0
        while k < len(places):
            each = int(windows.searchsorted(places[k], "right"))
            first, stop = int(windows[each - 1]), int(windows[each])
            here = slice(k, k := int(places.searchsorted(stop)))
            # The start tells a window from those of other shards, in bits that no seed of a user's has.
            seed = (first + 1 << 66) + self._seed
            moved = first + permute(places[here] - first, stop - first, seed, self._key)
            begin, end = self._starts.searchsorted((first, stop - 1), "right")
            unit = self._starts[begin:end].searchsorted(moved, "right") + (begin - 1)
            found[order[here]] = moved + self._moved[unit]
        return found

    def _windows_of(self, count: int, index: int) -> np.ndarray:
        """Return the bounds of a shard's windows in the line."""
        found = self._windows.get((count, index))
        if found is None:
            size, rest = divmod(int(self._starts[-1]), count)
            first = size * index + min(index, rest)
            stop = first + size + (index < rest)
            inner = self._starts[(self._starts > first) & (self._starts < stop)]
            found = np.array([*[first, *inner.tolist()][:: self._at_once], stop], np.int64)
            self._windows[count, index] = found
            while len(self._windows) > _SHARDS_KEPT:
                self._windows.popitem(last=False)
        return found
