"""Decisions of a job whose elements each of several trainers gets: a window, and a cursor a trainer. Pure, as `job`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tundish.loader.service.jobs.claims import Claim, Common
from tundish.loader.service.jobs.members import JobMember, JobMembers
from tundish.loader.service.jobs.production import MakeOrder, Production
from tundish.loader.service.jobs.requests import (
    MOST_ANSWER_BYTES,
    MOST_GIVEN_BYTES,
    Answer,
    DealtElements,
    Declined,
    ElementRequest,
    JoinAnew,
    NothingMore,
    NothingYet,
)

_EVERY = 16
"""The number of elements after which trainers get a newer state of the iterator."""


@dataclass
class _Trainer(JobMember):
    cursor: int = 0
    given: dict[int, range] = field(default_factory=dict)  # request -> numbers
    skipped: int = 0  # and not told yet
    told: int = -1  # at which number the state stood that it knows

    @property
    def first(self) -> int:
        """The first number that it may ask for."""
        return min((numbers.start for numbers in self.given.values()), default=self.cursor)


class SharedWindow:
    """A job that gives all of its elements to each trainer.

    Parameters
    ----------
    waits : bool
        True if no trainer skips elements: the slowest trainer holds up the others. If False, a trainer that falls out of the
        window goes on with the oldest element there.
    most, most_bytes : int
        Bounds of the window.
    lease_s : float
        The seconds for which a trainer that is not connected still holds up the others.
    """

    def __init__(
        self,
        *,
        waits: bool = False,
        most: int = 64,
        most_bytes: int = 1 << 30,
        lease_s: float = 30.0,
    ) -> None:
        self._waits, self._most, self._most_bytes = waits, most, most_bytes
        self.members: JobMembers[_Trainer] = JobMembers(lease_s)
        self._first = 0  # of the window
        self._made = Production()

    # -- who takes part -------------------------------------------------------------------------

    def join(self, claim: Claim, life: str, now: float) -> Declined | None:
        """Continue a trainer at the position of its state, or at the nearest one in the window."""
        run, name, made = claim.base.run, claim.consumer, self._made
        if not name:
            return Declined("the name of a trainer of a job must not be empty")
        if None not in {made.run, run} and run != made.run:
            return Declined(
                f"the state is of another run: [fingerprint, iteration, seed, graph_seed] are {run} in the state, "
                f"{made.run} in the running job; start without it, or use another job name"
            )
        if made.began_apart(run):  # the trainers that are here join anew
            self.members.clear()
            made = self._made = Production(made.turn + 1)
        if run is None:
            cursor = self._first
        else:
            ends = [stop for _, stop in claim.had] + [number + 1 for _, number in claim.hand]
            made.run, cursor = run, max(ends, default=claim.base.low)
            if not made.begun and not self.members:
                self._first = made.frontier = cursor
            made.states.setdefault(claim.base.at, claim.base.state)
        self.members[name] = _Trainer(life, cursor=cursor)
        if (
            self._waits and cursor < self._first
        ):  # it has gone back: everything from there is made again
            self._first = cursor
            made.begin_at(cursor)
        return None

    def leave(self, consumer: str, life: str) -> None:
        """Let a trainer go; the others do not wait for it."""
        if self.members.in_life(consumer, life) is not None:
            del self.members[consumer]
            self._trim()

    def tick(self, now: float) -> None:
        """End the leases that have run out by now."""
        for name, reader in self.members.ended(now):
            self.leave(name, reader.life)

    def next_tick(self) -> float | None:
        """Return when `tick` has something to do."""
        return self.members.next_end()

    # -- elements -------------------------------------------------------------------------------

    def ask(self, consumer: str, life: str, ask: ElementRequest) -> Answer:
        """Answer a request; the same request again is answered with the same elements, as long as they are there."""
        reader = self.members.get(consumer)
        if reader is None:
            return JoinAnew()
        if reader.life != life:
            return Declined(
                f"another trainer has joined this job as {consumer!r} since: give each its own trainer_id"
            )
        for request in [r for r in reader.given if r < ask.received]:
            del reader.given[request]
        self._trim()
        if ask.request is None:
            return NothingYet()
        given = reader.given.get(ask.request)
        if given is None:
            given = range(reader.cursor, reader.cursor + ask.most)
            if self._made.nbytes_of(chain.from_iterable(reader.given.values())) > MOST_GIVEN_BYTES:
                return NothingYet()
        first = given.start
        if first < self._first and not self._waits:
            reader.skipped += self._first - first
            first = self._first
        if first not in self._made.values:
            over = self._made.total is not None and first >= self._made.total
            return NothingMore(self._made.total or 0) if over else NothingYet()
        numbers = range(first, self._stop(first, max(given.stop, first + 1)))
        reader.given[ask.request] = numbers
        reader.cursor = max(reader.cursor, numbers.stop)
        skipped, reader.skipped = reader.skipped, 0
        elements = tuple((number, self._made.values[number][0]) for number in numbers)
        return DealtElements(elements, self._tell(reader, first), skipped)

    def _stop(self, first: int, stop: int) -> int:
        """Return where an answer ends that begins with an element, within the bounds of an answer."""
        values = self._made.values
        nbytes = values[first][1]
        for number in range(first + 1, stop):
            nbytes += values.get(number, (None, MOST_ANSWER_BYTES + 1))[1]
            if nbytes > MOST_ANSWER_BYTES:
                return number
        return stop

    def _tell(self, reader: _Trainer, number: int) -> Any:
        at = self._made.state_at(number)
        if at is None or (reader.told >= 0 and number < reader.told + _EVERY):
            return None
        reader.told = number
        return Common(number, at=at, state=self._made.states[at]), ()

    def _trim(self) -> None:
        """Drop the elements that no trainer will ask for."""
        if self._waits and self.members:
            first = min(reader.first for reader in self.members.values())
            while self._first < min(first, self._made.frontier):
                self._drop()

    def _drop(self) -> None:
        self._made.drop(self._first)
        self._first += 1

    # -- the iterator ---------------------------------------------------------------------------

    @property
    def finished(self) -> None:
        """The number of elements; always None, since another trainer may come."""

    def order(self) -> MakeOrder | None:
        """Return the next order; None if there is none until something changes."""
        readers, made = self.members.values(), self._made
        if not readers or made.whole:
            return None
        if self._waits:
            if self._is_full(0) and min(reader.cursor for reader in readers) < made.frontier:
                return None
        elif made.frontier - max(reader.cursor for reader in readers) > self._most // 4:
            return None
        return made.order(made.frontier)

    def _is_full(self, beyond: int) -> bool:
        """Return True if there are as many elements as may be, and `beyond` more; or so many bytes."""
        there, nbytes = len(self._made.values), self._made.nbytes
        return there >= self._most + beyond or nbytes >= self._most_bytes + beyond

    def began(self, turn: int, state: Mapping[str, Any]) -> None:
        """Record the first state of an iterator that started from the beginning, with its seeds."""
        self._made.began(turn, state)

    def made(
        self, turn: int, value: Any, nbytes: int = 0, state: Mapping[str, Any] | None = None
    ) -> None:
        """Record the requested element; `state`, if one was taken, is the iterator's state after it."""
        made = self._made
        number = made.made(turn, state)
        if number is None:
            return
        if number < made.frontier:
            return
        made.frontier = number + 1
        made.keep(number, value, nbytes)
        if not self._waits:
            newest = max((reader.cursor for reader in self.members.values()), default=number)
            while self._first < min(newest, number) and self._is_full(1):
                self._drop()

    def end(self, turn: int) -> None:
        """Record that there is no element at the requested position."""
        self._made.ended(turn)
