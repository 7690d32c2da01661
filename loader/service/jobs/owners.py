"""The consumers that have had the elements of a job, by number from a floor on; below it only how many each has had."""

from __future__ import annotations

from array import array
from collections import Counter

import numpy as np

from tundish.loader.service.jobs.claims import Common
from tundish.loader.service.jobs.ranges import numbers_of, within

FREE, SOMEBODY = 0, 1
"""The owners of free numbers, and of numbers that were had before the generation began."""

_MOST = 1 << 22


class Owners:
    """The owner of each number.

    Parameters
    ----------
    base : Common
        The numbers that were had when the job began to deal.

    Attributes
    ----------
    low : int
        All numbers below it were had, and are in the newest states of their consumers.
    floor : int
        The number from which on owners are known.
    counts, floor_counts : dict
        How many numbers below the low, and below the floor, each consumer has had.
    unsaved : set of int
        Numbers that were had, but are in no state yet.
    """

    def __init__(self, base: Common | None = None) -> None:
        base = Common() if base is None else base
        self.low = self.floor = base.low
        self.counts: dict[str, int] = dict(base.counts)
        self.unsaved: set[int] = set()
        self.floor_counts = dict(base.counts)
        self._owners = array("H")
        self._names = ["", ""]
        self._above = Counter[int]()  # how many numbers from the low on each owner has had
        for number in numbers_of(within(base.ahead, base.low)):
            self.give(number, SOMEBODY)

    @property
    def nbytes(self) -> int:
        """The bytes of the owners from the floor on."""
        return self._owners.itemsize * len(self._owners)

    def knows(self, name: str) -> bool:
        """Return True if a consumer has ever had a number here, or may have had."""
        return name in self._names[2:]

    def index(self, name: str) -> int:
        """Return the owner that a consumer is."""
        if not self.knows(name):
            self._names.append(name)
        return self._names.index(name, 2)

    def of(self, number: int) -> int:
        """Return the owner of a number."""
        at = number - self.floor
        return self._owners[at] if at < len(self._owners) else FREE

    def give(self, number: int, owner: int) -> None:
        """Make a consumer the owner of a number."""
        at = number - self.floor
        if at >= len(self._owners):
            self._owners.extend([FREE] * (at + 1 - len(self._owners)))
        if number >= self.low:
            self._above[self._owners[at]] -= 1
            self._above[owner] += 1
        self._owners[at] = owner

    def free(self, number: int) -> None:
        """Take a number from its owner; the low sinks to it."""
        while self.low > number:
            self.low -= 1
            owner = self.of(self.low)
            self._above[owner] += 1
            if self._names[owner]:
                self.counts[self._names[owner]] -= 1
        self.give(number, FREE)
        self.unsaved.discard(number)

    def advance(self) -> None:
        """Move the low up to the first number that was not had, or that is in no state yet."""
        while (owner := self.of(self.low)) != FREE and self.low not in self.unsaved:
            name = self._names[owner]
            if name:
                self.counts[name] = self.counts.get(name, 0) + 1
            self._above[owner] -= 1
            self.low += 1
        if self.low - self.floor > 2 * _MOST:
            cut = np.frombuffer(self._owners, np.uint16)[:_MOST].copy()
            for index, name in enumerate(self._names):
                if name:
                    count = int(np.count_nonzero(cut == index))
                    self.floor_counts[name] = self.floor_counts.get(name, 0) + count
            del self._owners[:_MOST]
            self.floor += _MOST

    def count(self, name: str, stop: int) -> int:
        """Return how many numbers below `stop` a consumer has had."""
        owners = np.frombuffer(self._owners, np.uint16)[: stop - self.floor]
        return self.floor_counts.get(name, 0) + int(np.count_nonzero(owners == self.index(name)))

    def had(self, name: str, first: int) -> list[int]:
        """Return the numbers from `first` on that a consumer has had."""
        owners = np.frombuffer(self._owners, np.uint16)[first - self.floor :]
        found: list[int] = (np.flatnonzero(owners == self.index(name)) + first).tolist()
        return found

    def free_below(self, stop: int) -> list[int]:
        """Return the free numbers from the floor up to `stop`."""
        owners = np.frombuffer(self._owners, np.uint16)[: stop - self.floor]
        found: list[int] = (np.flatnonzero(owners == FREE) + self.floor).tolist()
        return [*found, *range(self.floor + len(self._owners), stop)]

    def above_low(self) -> set[str]:
        """Return the consumers that have had numbers from the low on."""
        return {self._names[owner] for owner, count in self._above.items() if count > 0} - {""}
