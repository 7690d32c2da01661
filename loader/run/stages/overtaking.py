"""Items that came out of turn before a state was taken: those after its position that have already come.

With ``deterministic=False`` they have come in part, and the state of a stage says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.protocols.stated import (
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


class LeftOut:
    """A stream without some of its next items: what came out of turn before a state was taken.

    With ``deterministic=False`` the items behind a state's position have come in part. The ranges
    are of ordinals counted from that position.
    """

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
        return with_left_out(self._up.dump(up), left)

    def load(self, state: Any) -> None:
        with within("ahead"):
            pairs = [entries(pair, 2) for pair in items(state, "ahead")]
            self._ranges = tuple((check_whole(a), check_whole(b)) for a, b in pairs)
        load_part(self._up, state)


def with_left_out(state: Any, ranges: list[list[int]]) -> Any:
    """Return a stage's state together with what has come out of turn after it."""
    return {"ahead": ranges, "up": state} if ranges else state


class Counted(Protocol):
    """The counts of a stage; see `tundish.loader.run.inline.stage.Counts`."""

    by_event: dict[str, int]


def load_stage(up: Machine, state: Any, counted: Counted) -> Machine:
    """Bring a stage's input, and what it has counted, to a state.

    What has come out of turn already is left out.
    """
    where: tuple[str, ...] = ()
    if own(state, "counts"):
        counted.by_event = counts(state)
        state, where = part(state, "up"), ("up",)
    if own(state, "ahead"):
        up = LeftOut(up)
    with within(*where):
        up.load(state)
    return up
