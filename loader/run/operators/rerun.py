"""Machines that go to a state by running their pass again up to there.

What they have done depends on all that came before, and is not small: a state of it would hold
data. So it holds a number, and restoring takes as long as it took the first time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.stated import count

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Mark


class Rerun:
    """A machine whose state is how many items it has given."""

    def __init__(self) -> None:
        self._given = self._made = 0

    def make(self) -> Any:
        """The next item of the pass; raises End or NotReady."""
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
