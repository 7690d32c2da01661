"""The output of a job's iterator: elements that are made and not had, states of the iterator, and where it stands.

The thread that runs the iterator asks a job for a `MakeOrder`, and reports the result. An order from before the iterator began
again has no effect: its turn is over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tundish.loader.service.jobs.claims import Common

_MOST_STATES = 64


@dataclass(frozen=True)
class MakeOrder:
    """An order for the thread that runs the iterator.

    Parameters
    ----------
    turn : int
        The number that the report of the result must have.
    begin : bool
        True: begin a new iterator, at `state`; False: make its next element.
    state : dict or None
        A state of the iterator; None is its start.
    """

    turn: int
    begin: bool = False
    state: Mapping[str, Any] | None = None


class Production:
    """The elements of a job that are made and not had, and the iterator that makes them.

    Parameters
    ----------
    turn : int
        A number that no earlier order had.

    Attributes
    ----------
    run : tuple or None
        The plan, iteration and seeds of the iterator; None until they are known.
    values : dict
        The value and the number of bytes of each element that is here, by its number.
    nbytes : int
        The bytes of all of them.
    states : dict
        States of the iterator, by the number of the element that comes next there.
    frontier : int
        All elements below it were made.
    total : int or None
        The number of elements, once the end was reached.
    """

    def __init__(self, turn: int = 0) -> None:
        self.turn = turn
        self.run: Any = None
        self.values: dict[int, tuple[Any, int]] = {}
        self.nbytes = 0
        self.states: dict[int, Mapping[str, Any] | None] = {}
        self.frontier = 0
        self.total: int | None = None
        self._position: int | None = None  # of the iterator

    @property
    def begun(self) -> bool:
        """True if an iterator was ordered."""
        return self._position is not None

    def began_apart(self, run: tuple[Any, ...] | None) -> bool:
        """Return True if an iterator has been ordered that may have other seeds than a run; it has made nothing yet."""
        return run is not None and self.run is None and self.begun

    @property
    def whole(self) -> bool:
        """True if all elements were made."""
        return self.total is not None and self.frontier >= self.total

    def begin_at(self, number: int) -> None:
        """Drop all elements; the first to be made is the one with this number."""
        self.values.clear()
        self.nbytes = 0
        self.frontier = number
        self._position = None
        self.turn += 1

    def go_on(self, before: Production, number: int) -> None:
        """Make the elements from a number on, as the iterator that is no more would have made them."""
        self.run, self.total, self.frontier = before.run, before.total, number
        # Where to go on, and the first one: a consumer may return to an earlier state.
        kept = {before.state_at(number), min(before.states, default=None)} - {None}
        self.states = {at: before.states[at] for at in kept if at is not None}

    def keep(self, number: int, value: Any, nbytes: int) -> None:
        """Keep an element until it is dropped."""
        self.values[number] = value, nbytes
        self.nbytes += nbytes

    def drop(self, number: int) -> bool:
        """Drop an element; return False if it was not here."""
        value = self.values.pop(number, None)
        if value is not None:
            self.nbytes -= value[1]
        return value is not None

    def nbytes_of(self, numbers: Iterable[int]) -> int:
        """Return the bytes that elements have together, as far as they are here."""
        return sum(self.values[number][1] for number in numbers if number in self.values)

    def state_at(self, number: int) -> int | None:
        """Return the position of the newest state that is not after `number`; None if there is none."""
        return max((at for at in self.states if at <= number), default=None)

    # -- the iterator ---------------------------------------------------------------------------

    def order(self, wanted: int) -> MakeOrder:
        """Return the next order on the way to an element."""
        if wanted == self._position:
            return MakeOrder(self.turn)
        at = self.state_at(wanted) or 0
        if self._position is None or wanted < self._position or at > self._position:
            self.turn += 1
            self._position = at
            return MakeOrder(self.turn, begin=True, state=self.states.get(at))
        return MakeOrder(self.turn)

    def began(self, turn: int, state: Mapping[str, Any]) -> None:
        """Record the first state of an iterator that started from the beginning, with its seeds."""
        if turn == self.turn and self._position is not None:
            self.states.setdefault(self._position, state)
            if self.run is None:
                self.run = Common(state=state).run

    def made(
        self, turn: int, state: Mapping[str, Any] | None, settled: float = float("inf")
    ) -> int | None:
        """Return the number of the element that was made; None if its turn is over.

        Parameters
        ----------
        turn : int
            The turn of the order.
        state : dict or None
            The iterator's state after the element, if one was taken.
        settled : float
            Of the states below this number, and of the others, every second one is dropped if they are many.
        """
        if turn != self.turn or self._position is None:
            return None
        number, self._position = self._position, self._position + 1
        if state is not None:
            self.states[number + 1] = state
            there = sorted(self.states)
            between = bisect_left(there, settled)
            for some in (there[:between], there[between:]):
                for at in some[1:-1:2] if len(some) > _MOST_STATES else ():
                    del self.states[at]
        return number

    def ended(self, turn: int) -> bool:
        """Record that there is no element at the requested position; return False if that turn is over."""
        if turn != self.turn or self._position is None:
            return False
        self.total = self._position
        return True
