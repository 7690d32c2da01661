"""Decisions of a job whose elements each of several trainers gets: a window, and a cursor a trainer. Pure, as `job`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tundish.loader.service.jobs.claims import Claim, Common
from tundish.loader.service.jobs.job import MakeOrder
from tundish.loader.service.jobs.requests import (
    MOST_ANSWER_BYTES,
    Answer,
    DealtElements,
    Declined,
    ElementRequest,
    JoinAnew,
    NothingMore,
    NothingYet,
)

_MOST_STATES = 64


@dataclass
class _Trainer:
    life: str
    cursor: int
    given: dict[int, range] = field(default_factory=dict)  # request -> numbers
    skipped: int = 0  # and not told yet
    told: int = -1  # at which number the state stood that it knows
    until: float | None = None

    @property
    def first(self) -> int:
        """The first number that it may ask for."""
        return min((numbers.start for numbers in self.given.values()), default=self.cursor)


class SharedWindow:
    """A job that gives all of its elements to each trainer.

    Parameters
    ----------
    waits : bool
        True if nobody skips: a trainer that is slower than the others holds them up. Else who falls out of the window goes
        on with what is oldest there.
    most, most_bytes : int
        Bounds of the window.
    lease_s : float
        How long a trainer that is not connected still holds the others up.
    every : int
        Trainers are told a newer state of the iterator after so many elements.
    """

    def __init__(
        self,
        *,
        waits: bool = False,
        most: int = 64,
        most_bytes: int = 1 << 30,
        lease_s: float = 30.0,
        every: int = 16,
    ) -> None:
        self._waits, self._most, self._most_bytes = waits, most, most_bytes
        self.lease_s, self._every = lease_s, every
        self.members: dict[str, _Trainer] = {}
        self._values: dict[int, tuple[Any, int]] = {}
        self._nbytes = 0
        self._first = self._frontier = 0  # of the window; behind the last that was made
        self._states: dict[int, Mapping[str, Any] | None] = {}
        self._run: Any = None
        self._position: int | None = None
        self._total: int | None = None
        self._turn = 0

    # -- who takes part -------------------------------------------------------------------------

    def join(self, claim: Claim, life: str, now: float) -> Declined | None:
        """Let a trainer go on where its state says, or as near to that as the window is."""
        run, name = claim.base.run, claim.consumer
        if not name:
            return Declined("a trainer of a job has a name, and this one's is empty")
        if None not in {self._run, run} and run != self._run:
            return Declined(
                f"the state is of another run: [fingerprint, iteration, seed, graph_seed] are {run} in the state, "
                f"{self._run} in the job that runs; begin without it, or under another job name"
            )
        if run is None:
            cursor = self._first
        else:
            ends = [stop for _, stop in claim.had] + [number + 1 for _, number in claim.hand]
            self._run, cursor = run, max(ends, default=claim.base.low)
            if self._position is None and not self.members:  # nobody has begun
                self._first = self._frontier = cursor
            self._states.setdefault(claim.base.at, claim.base.state)
        self.members[name] = _Trainer(life, cursor)
        if self._waits and cursor < self._first:
            self._rewind(cursor)
        return None

    def _rewind(self, cursor: int) -> None:
        """Make everything from a number on again, for a trainer that has gone back."""
        self._values.clear()
        self._nbytes = 0
        self._first = self._frontier = cursor
        self._position = None
        self._turn += 1

    def cut(self, consumer: str, life: str, now: float) -> None:
        """Note that a trainer is not connected any more: its lease begins to run."""
        reader = self.members.get(consumer)
        if reader is not None and reader.life == life and reader.until is None:
            reader.until = now + self.lease_s

    def leave(self, consumer: str, life: str) -> None:
        """Let a trainer go: nobody waits for it."""
        reader = self.members.get(consumer)
        if reader is not None and reader.life == life:
            del self.members[consumer]
            self._trim()

    def tick(self, now: float) -> None:
        """End the leases that have run out by now."""
        for name, reader in list(self.members.items()):
            if reader.until is not None and now >= reader.until:
                self.leave(name, reader.life)

    def next_tick(self) -> float | None:
        """Return when `tick` has something to do."""
        return min((r.until for r in self.members.values() if r.until is not None), default=None)

    # -- elements -------------------------------------------------------------------------------

    def ask(self, consumer: str, life: str, ask: ElementRequest) -> Answer:
        """Answer a request; the same request again is answered with the same elements, as long as they are there."""
        reader = self.members.get(consumer)
        if reader is None:
            return JoinAnew()
        if reader.life != life:
            return Declined(f"another trainer has joined this job as {consumer!r} since")
        for request in [r for r in reader.given if r < ask.received]:
            del reader.given[request]
        self._trim()
        if ask.request is None:
            return NothingYet()
        given = reader.given.get(ask.request, range(reader.cursor, reader.cursor + ask.most))
        first = given.start
        if first < self._first and not self._waits:
            reader.skipped += self._first - first
            first = self._first
        if first not in self._values:
            over = self._total is not None and first >= self._total
            return NothingMore() if over else NothingYet()
        numbers = range(first, self._stop(first, max(given.stop, first + 1)))
        reader.given[ask.request] = numbers
        reader.cursor = max(reader.cursor, numbers.stop)
        skipped, reader.skipped = reader.skipped, 0
        elements = tuple((number, self._values[number][0]) for number in numbers)
        return DealtElements(elements, self._tell(reader, first), skipped)

    def _stop(self, first: int, stop: int) -> int:
        """Return where an answer ends that begins with an element, within the bounds of an answer."""
        nbytes = self._values[first][1]
        for number in range(first + 1, stop):
            nbytes += self._values.get(number, (None, MOST_ANSWER_BYTES + 1))[1]
            if nbytes > MOST_ANSWER_BYTES:
                return number
        return stop

    def _tell(self, reader: _Trainer, number: int) -> Any:
        at = max((at for at in self._states if at <= number), default=None)
        if at is None or (reader.told >= 0 and number < reader.told + self._every):
            return None
        reader.told = number
        return Common(number, at=at, state=self._states[at]), ()

    def _trim(self) -> None:
        """Drop what nobody will ask for any more."""
        if self._waits and self.members:
            first = min(reader.first for reader in self.members.values())
            while self._first < min(first, self._frontier):
                self._drop()

    def _drop(self) -> None:
        value = self._values.pop(self._first, None)
        if value is not None:
            self._nbytes -= value[1]
        self._first += 1

    # -- the iterator ---------------------------------------------------------------------------

    def order(self) -> MakeOrder | None:
        """Return what is to be done next; None if nothing is, until something changes."""
        readers = self.members.values()
        if not readers or (self._total is not None and self._frontier >= self._total):
            return None
        ahead = self._frontier - max(reader.cursor for reader in readers)
        full = len(self._values) >= self._most or self._nbytes >= self._most_bytes
        if self._waits:
            least = min(reader.cursor for reader in readers)
            if full and least < self._frontier:
                return None
        elif ahead > self._most // 4:
            return None
        if self._frontier == self._position:
            return MakeOrder(self._turn, self._frontier)
        at = max((at for at in self._states if at <= self._frontier), default=0)
        if self._position is None or self._frontier < self._position or at > self._position:
            self._turn += 1
            self._position = at
            return MakeOrder(self._turn, at, begin=True, state=self._states.get(at))
        return MakeOrder(self._turn, self._position)

    def began(self, turn: int, state: Mapping[str, Any]) -> None:
        """Take in the state of an iterator that was begun at its start: with its seeds."""
        if turn == self._turn and self._position is not None:
            self._states.setdefault(self._position, state)
            if self._run is None:
                self._run = Common(state=state).run

    def made(
        self, turn: int, value: Any, nbytes: int = 0, state: Mapping[str, Any] | None = None
    ) -> None:
        """Take in the element that was ordered; `state`, if it was taken, is the iterator's behind it."""
        if turn != self._turn or self._position is None:
            return
        number, self._position = self._position, self._position + 1
        if state is not None:
            self._states[number + 1] = state
            if len(self._states) > _MOST_STATES:
                for at in sorted(self._states)[1:-1:2]:
                    del self._states[at]
        if number < self._frontier:
            return
        self._frontier = number + 1
        self._values[number] = value, nbytes
        self._nbytes += nbytes
        if not self._waits:
            newest = max((reader.cursor for reader in self.members.values()), default=number)
            while self._first < min(newest, number) and (
                len(self._values) > self._most or self._nbytes > self._most_bytes
            ):
                self._drop()

    def end(self, turn: int) -> None:
        """Take in that there is no element at the place that was ordered."""
        if turn == self._turn and self._position is not None:
            self._total = self._position
