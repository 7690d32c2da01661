"""Parts that machines of several operators share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.items import Failure
from tundish.loader.protocols.state_parsing import count, load_part

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Machine, Mark


class Counts:
    """Counts of elements skipped and of functions called again, up to the last item."""

    __slots__ = ("by_event",)

    def __init__(self) -> None:
        self.by_event: dict[str, int] = {}

    def add(self, events: list[str]) -> None:
        """Add events that evaluators reported; earlier marks keep their own counts."""
        if events:
            self.by_event = dict(self.by_event)
            for event in events:
                self.by_event[event] = self.by_event.get(event, 0) + 1
            events.clear()


def added(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Return the sums of two stages' counts by event."""
    return {each: counts.get(each, 0) + more.get(each, 0) for each in {**counts, **more}}


class Enumerated:
    """A stream of items numbered within their pass."""

    def __init__(self, up: Machine) -> None:
        self._up = up
        self._count = 0

    def next(self) -> Any:
        item = self._up.next()
        n = self._count
        self._count += 1
        if type(item) is Failure:
            return Failure((n, item.ref), item.error)
        return (n, item)

    def mark(self) -> Mark:
        return (self._count, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        load_part(self._up, state)


class Rerun:
    """A machine whose state is only the number of items it has given.

    What it has done depends on everything before and may be large, so restoring runs the pass again up to that number.
    """

    def __init__(self) -> None:
        self._given = self._made = 0

    def make(self) -> Any:
        """Return the next item of the pass; raise End or NotReady."""
        raise NotImplementedError

    def next(self) -> Any:
        while True:
            item = self.make()
            self._made += 1
            if self._made > self._given:
                self._given = self._made
                return item

    def mark(self) -> Mark:
        return self._given

    def dump(self, mark: Mark) -> Any:
        return {"n": mark}

    def load(self, state: Any) -> None:
        self._given = count(state, "n")
