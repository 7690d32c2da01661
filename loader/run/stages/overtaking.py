"""Restoring a stage that delivers out of order (``deterministic=False``).

Its state lists the items after its position that had already been delivered; they are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.state_parsing import (
    check_whole,
    counts,
    entries,
    items,
    load_part,
    own,
    part,
    within,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Machine, Mark
    from tundish.loader.protocols.machines import Counts
    from tundish.loader.protocols.operator import Operator


class SkipDelivered:
    """A stream that skips the items which were delivered out of order before the state was taken.

    With ``deterministic=False`` some items after the state's position have been delivered already. They are
    stored as ranges of ordinals, counted from that position.
    """

    entry = "ahead"
    """The entry of a state with the ranges."""

    def __init__(self, up: Machine) -> None:
        self._up = up
        self._seen = 0
        self._ranges: tuple[tuple[int, int], ...] = ()

    def next(self) -> Any:
        while True:
            item = self._up.next()
            at = self._seen
            self._seen += 1
            if not any(first <= at < stop for first, stop in self._ranges):
                return item

    def mark(self) -> Mark:
        return (self._seen, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        seen, up = mark
        left = [[max(a - seen, 0), b - seen] for a, b in self._ranges if b > seen]
        return with_left_out(self._up.dump(up), left, self.entry)

    def load(self, state: Any) -> None:
        with within(self.entry):
            pairs = [entries(pair, 2) for pair in items(state, self.entry)]
            self._ranges = tuple((check_whole(a), check_whole(b)) for a, b in pairs)
        load_part(self._up, state)


class LeaveOut(SkipDelivered):
    """The elements of a plan without those that were delivered elsewhere, to other consumers of a shared job."""

    entry = "out"


def left_out(network: Machine, position: Any) -> Machine:
    """Return a network that can go to a position: it leaves out the elements that the position lists."""
    return LeaveOut(network) if own(position, LeaveOut.entry) else network


def with_left_out(state: Any, ranges: list[list[int]], entry: str = SkipDelivered.entry) -> Any:
    """Return a state together with the ranges that were delivered out of order after it."""
    return {entry: ranges, "up": state} if ranges else state


def passed(position: Any, count: int) -> Any:
    """Return a network's position with `count` more elements left out after it."""
    if not count:
        return position
    state, ranges = position, []
    if own(position, LeaveOut.entry):
        state, ranges = position["up"], position[LeaveOut.entry]
    found, at = list(ranges), 0
    for first, stop in [*ranges, [at + count + sum(b - a for a, b in ranges)] * 2]:
        more = min(count, first - at)
        if more:
            found.append([at, at + more])
        count, at = count - more, stop
    return with_left_out(state, sorted(found), LeaveOut.entry)


def delivered(root: Operator, position: Any) -> int:
    """Return how many elements of a positional plan come before a position, or are left out after it."""
    left: list[list[int]] = []
    if own(position, LeaveOut.entry):
        position, left = position["up"], position[LeaveOut.entry]
    return int(root.contract(position)) + sum(b - a for a, b in left)


def load_stage(up: Machine, state: Any, counted: Counts) -> Machine:
    """Load a state into a stage's input and its counts; return the input.

    If items were delivered out of order, the returned machine skips them.
    """
    where: tuple[str, ...] = ()
    if own(state, "counts"):
        counted.by_event = counts(state)
        state, where = part(state, "up"), ("up",)
    if own(state, "ahead"):
        up = SkipDelivered(up)
    with within(*where):
        up.load(state)
    return up
