"""Decisions of a shared job: who gets which element. Pure: no clock, no socket, no iterator.

Elements are numbered in the order of the job's iterator. A number is *free*, *given* (on its way to a consumer), or *had*.
It is had when its consumer has said that it came; the consumer delivers it after it has heard so. What was had stands in
the consumers' states, and here only as long as the job lives. A job that begins again therefore waits until everybody
who took part has joined with what it has had, or has lost its lease.

Whoever runs the iterator asks `order` what to do next, and tells `made` what came of it. Times are arguments.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from tundish.loader.service.jobs.claims import Claim, Common, Told
from tundish.loader.service.jobs.ranges import Ranges, numbers_of, of_numbers, size, within
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

_FREE, _SOMEBODY = 0, 1
_MOST_OWNERS = 1 << 22
_MOST_FRESH = 1 << 16
_MOST_STATES = 64
_FIRST = -1  # the request of what a consumer had when it joined


@dataclass(frozen=True)
class MakeOrder:
    """An order for whoever runs the iterator.

    Parameters
    ----------
    turn : int
        To be told with what came of it.
    number : int
        The number of the element to make.
    begin : bool
        True: first begin a new iterator, at `state`, whose next element is that.
    state : dict or None
        A state of the iterator; None is its start.
    """

    turn: int
    number: int
    begin: bool = False
    state: Mapping[str, Any] | None = None


@dataclass
class _Member:
    life: str
    given: dict[int, tuple[int, ...]] = field(default_factory=dict)  # request -> numbers
    fresh: deque[tuple[int, int]] = field(default_factory=deque)  # had, but in no state yet
    told: Common | None = None
    until: float | None = None  # its lease, when it is not connected
    doubted: bool = False  # it may be of a training that has gone back, and is no more
    refused: str | None = None


class SharedJob:
    """A shared job.

    Parameters
    ----------
    rounds : int, optional
        The number of consumers that read in step: consumer i of n gets the i-th element of each n. None: elements go
        to whoever asks first.
    most, most_bytes : int
        Bounds of what is made and not yet had.
    lease_s : float
        How long a consumer that is not connected still takes part.
    again : bool
        True if the job was running before, so that there may be consumers who are about to come back.
    now : float
        The time.
    every : int
        Consumers are told what all have had when it has grown by so much.
    """

    def __init__(
        self,
        *,
        rounds: int | None = None,
        most: int = 64,
        most_bytes: int = 1 << 30,
        lease_s: float = 30.0,
        again: bool = False,
        now: float = 0.0,
        every: int = 16,
    ) -> None:
        self.rounds, self.lease_s, self._every = rounds, lease_s, every
        self._most, self._most_bytes = max(most, 2 * (rounds or 1)), most_bytes
        self._turn = 0
        self._reset((0, ""), now, again=again)

    def _reset(self, generation: tuple[int, str], now: float, *, again: bool) -> None:
        self.generation, self.dealing, self._again = generation, False, again
        self._began = now
        self.members: dict[str, _Member] = {}
        self._claims: dict[str, Claim] = {}  # until it deals
        self._run: Any = None
        # Who has had which number, from the floor on; below it only how many each has had.
        self._floor = self.low = self._origin = 0
        self._ahead: Ranges = ()
        self._floor_counts: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._owners = array("H")
        self._names: list[str] = ["", ""]
        self._fresh: set[int] = set()
        # Elements that are made and free or given, and who they are for.
        self._values: dict[int, tuple[Any, int]] = {}
        self._nbytes = 0
        self._out: dict[int, str] = {}
        self._ready: dict[int, list[int]] = {}
        self._missing: dict[int, list[int]] = {}  # free, and to be made again
        self._missed: set[int] = set()
        self._round: list[int] = []  # the elements of one that is not whole yet
        self._states: dict[int, Mapping[str, Any] | None] = {}
        self._position: int | None = None  # of the iterator
        self._frontier = 0  # all below it was made
        self._total: int | None = None
        self._turn += 1
        self._ended = False  # somebody was told so

    # -- who takes part -------------------------------------------------------------------------

    def join(self, claim: Claim, life: str, now: float) -> Declined | None:
        """Take in what a consumer has had; its earlier lives end with that."""
        why = self._misfit(claim)
        if why is not None:
            return Declined(why)
        if claim.base.generation > self.generation:
            self._reset(claim.base.generation, now, again=False)
        elif claim.is_first and claim.consumer not in self._names:
            connected = any(member.until is None for member in self.members.values())
            if self._ended and not connected:
                return Declined(
                    "this job has come to its end: where a training goes back behind that, give it another job name"
                )
            self._doubt(now, reset=not connected)
        self._give_back(claim.consumer)
        self.members[claim.consumer] = _Member(life)
        if claim.base.run is not None:
            self._run = claim.base.run
        if not self.dealing:
            self._claims[claim.consumer] = claim
            self._settle(now)
        else:
            why = self._apply(claim)
            if why is not None:
                del self.members[claim.consumer]
        return None if why is None else Declined(why)

    def cut(self, consumer: str, life: str, now: float) -> None:
        """Note that a consumer is not connected any more: its lease begins to run."""
        member = self.members.get(consumer)
        if member is not None and member.life == life and member.until is None:
            member.until = now + self.lease_s

    def leave(self, consumer: str, life: str) -> None:
        """Let a consumer go at once; what it has had it has had."""
        member = self.members.get(consumer)
        if member is not None and member.life == life:
            self._give_back(consumer, gone=True)
            del self.members[consumer]
            self._claims.pop(consumer, None)

    def tick(self, now: float) -> None:
        """End the leases that have run out by now."""
        for name, member in list(self.members.items()):
            if member.until is not None and now >= member.until:
                self.leave(name, member.life)
                if member.doubted:
                    self._reset(self.generation, now, again=True)
                    return
        if not self.dealing:
            self._settle(now)

    def _doubt(self, now: float, *, reset: bool) -> None:
        """Doubt all others, as a consumer begins where the states were merged.

        Either it is late, or the whole training has gone back to there. Then those who do not come back are no more,
        and what they had since is dealt again.
        """
        if reset:
            self._reset(self.generation, now, again=False)
        for member in self.members.values():
            member.doubted = True

    def next_tick(self) -> float | None:
        """Return when `tick` has something to do, as far as is known."""
        times = [m.until for m in self.members.values() if m.until is not None]
        if not self.dealing and (self._claims or self._again):
            times.append(self._began + self.lease_s)
        return min(times, default=None)

    def _misfit(self, claim: Claim) -> str | None:
        """Return why a claim is of no consumer of this job; None if it may be."""
        if not claim.consumer:
            return "a consumer of a job has a name, and this one's is empty"
        if self.rounds is not None and claim.consumer not in map(str, range(self.rounds)):
            return f"the job deals in rounds to consumers 0 to {self.rounds - 1}; there is no {claim.consumer!r}"
        mine, its = self.generation, claim.base.generation
        if its > mine:
            return None
        if its != mine and (its[0] or claim.base.run is not None):
            return (
                "the job has gone on from a merged state that is not this consumer's: begin with that state, "
                "or under another job name"
            )
        if None not in {self._run, claim.base.run} and claim.base.run != self._run:
            return (
                f"the state is of another run: [fingerprint, iteration, seed, graph_seed] are {claim.base.run} in the "
                f"state, {self._run} in the job that runs; begin without it, or under another job name"
            )
        return None

    def _settle(self, now: float) -> None:
        """Begin to deal if everybody who took part has joined, or had the time to."""
        claims = self._claims
        known = [claim for claim in claims.values() if claim.base.state is not None]
        absent = {name for claim in known for name in claim.base.members} - claims.keys()
        if not claims or (
            (absent or (self._again and not known)) and now < self._began + self.lease_s
        ):
            return
        self.dealing = True
        newest = max((claim.base for claim in known), key=lambda base: base.low, default=Common())
        self._floor = self.low = self._frontier = newest.low
        self._origin, self._ahead = newest.origin, newest.ahead
        self._floor_counts, self._counts = dict(newest.counts), dict(newest.counts)
        self._states = {claim.base.at: claim.base.state for claim in known}
        for number in numbers_of(within(self._ahead, self._floor)):
            self._own(number, _SOMEBODY)
        for name, claim in claims.items():
            self.members[name].refused = self._apply(claim)
        self._claims = {}
        self._advance()

    def _apply(self, claim: Claim) -> str | None:
        """Make a consumer's claim that of the job; return why that cannot be, and change nothing then."""
        name, base = claim.consumer, claim.base
        me, floor = self._index(name), self._floor
        first = max(base.low, floor)
        owners = np.frombuffer(self._owners, np.uint16)
        have = self._floor_counts.get(name, 0)
        have += int(np.count_nonzero(owners[: first - floor] == me))
        mine = base.counts.get(name, 0) + size(within(claim.had, base.low, floor))
        mine += sum(base.low <= number < floor for _, number in claim.hand)
        again = (
            f"some elements that consumer {name!r} has had were given to others while it was away: let all consumers go "
            "back to states of one step, or merge those (td.service.merge_states)"
        )
        if mine < have:
            return (
                f"consumer {name!r} comes with a state in which it has had {mine} of the first {first} elements, and in "
                f"the states of others it has had {have}: let all consumers go back to states of one step, or merge "
                "those (td.service.merge_states)"
            )
        # Below its low a claim has no numbers. What is free there, the consumer gave up when it joined without its state.
        given_up = (np.flatnonzero(owners[: first - floor] == _FREE) + floor).tolist()
        given_up += range(floor + len(owners), first)
        if mine - have not in {0, len(given_up)} or (mine > have and self._out.keys() & given_up):
            return again
        hand = {number: request for request, number in claim.hand}
        wanted = dict.fromkeys(numbers_of(within(claim.had, first)), _FIRST)
        wanted |= {number: request for number, request in hand.items() if number >= first}
        for number in wanted:
            if self._owner(number) not in {_FREE, me} or number in self._out:
                return again
        had = (np.flatnonzero(owners[first - floor :] == me) + first).tolist()
        del owners  # it holds the array's memory
        for number in had:
            if number not in wanted:
                self._free(number)
        for number in given_up if mine > have else ():
            self._take(number, me)
        member = self.members[name]
        for number, request in sorted(wanted.items(), key=lambda each: (each[1], each[0])):
            self._take(number, me)
            self._fresh.add(number)
            member.fresh.append((request, number))
        return None

    def _give_back(self, consumer: str, *, gone: bool = False) -> None:
        """Take back what a consumer was given and has not had; if it is gone, others do not wait for its states."""
        member = self.members.get(consumer)
        if member is None:
            return
        for number in chain.from_iterable(member.given.values()):
            self._out.pop(number, None)
            self._offer(number)
        member.given.clear()
        self._fresh.difference_update(number for _, number in member.fresh)
        member.fresh.clear()
        if gone:
            self._set_aside(consumer)
            self._advance()

    # -- numbers --------------------------------------------------------------------------------

    def _index(self, name: str) -> int:
        if name not in self._names[2:]:
            self._names.append(name)
        return self._names.index(name, 2)

    def _owner(self, number: int) -> int:
        at = number - self._floor
        return self._owners[at] if at < len(self._owners) else _FREE

    def _own(self, number: int, owner: int) -> None:
        at = number - self._floor
        if at >= len(self._owners):
            self._owners.extend([_FREE] * (at + 1 - len(self._owners)))
        self._owners[at] = owner

    def _take(self, number: int, owner: int) -> None:
        self._own(number, owner)
        value = self._values.pop(number, None)
        if value is not None:
            self._nbytes -= value[1]
        self._missed.discard(number)

    def _free(self, number: int) -> None:
        """Make a number free that was had: it is made again."""
        while self.low > number:
            self.low -= 1
            owner = self._names[self._owner(self.low)]
            if owner:
                self._counts[owner] -= 1
        self._own(number, _FREE)
        self._fresh.discard(number)
        if number < self._frontier:
            self._miss(number)

    def _miss(self, number: int) -> None:
        self._missed.add(number)
        heapq.heappush(self._missing.setdefault(self._whose(number), []), number)

    def _whose(self, number: int) -> int:
        """Return which consumer of a round a number is for; 0 where they are for all."""
        if self.rounds is None:
            return 0
        return self._ordinal(number) % self.rounds

    def _ordinal(self, number: int) -> int:
        return number - self._origin - size(within(self._ahead, self._origin, number))

    def _offer(self, number: int) -> None:
        heapq.heappush(self._ready.setdefault(self._whose(number), []), number)

    def _set_aside(self, consumer: str) -> None:
        """Drop the elements that wait for a consumer of rounds that is gone: they are made again when it is back."""
        if self.rounds is not None:
            for number in self._ready.pop(int(consumer), []):
                if number in self._values:
                    self._nbytes -= self._values.pop(number)[1]
                    self._miss(number)

    def _advance(self) -> None:
        """Move the low up to the first number that was not had, or that is in no state yet."""
        while (owner := self._owner(self.low)) != _FREE and self.low not in self._fresh:
            name = self._names[owner]
            if name:
                self._counts[name] = self._counts.get(name, 0) + 1
            self.low += 1
        if self.low - self._floor > 2 * _MOST_OWNERS:
            cut = np.frombuffer(self._owners, np.uint16)[:_MOST_OWNERS].copy()
            for index, name in enumerate(self._names):
                if name:
                    count = int(np.count_nonzero(cut == index))
                    self._floor_counts[name] = self._floor_counts.get(name, 0) + count
            del self._owners[:_MOST_OWNERS]
            self._floor += _MOST_OWNERS

    # -- elements -------------------------------------------------------------------------------

    def ask(self, consumer: str, life: str, ask: ElementRequest) -> Answer:
        """Answer a request; the same request again is answered with the same elements."""
        member = self.members.get(consumer)
        if member is None:
            return JoinAnew()
        if member.life != life:
            return Declined(f"another consumer has joined this job as {consumer!r} since")
        if member.refused is not None:
            del self.members[consumer]
            return Declined(member.refused)
        if not self.dealing:
            return NothingYet(heard=False)
        member.doubted = False
        self._hear(consumer, member, ask)
        if ask.request is None:
            return NothingYet()
        numbers = member.given.get(ask.request)
        if numbers is None:
            numbers = tuple(self._choose(consumer, ask.most))
            if not numbers:
                if not self._is_over(consumer, member):
                    return NothingYet()
                self._ended = True
                return NothingMore()
            member.given[ask.request] = numbers
            self._out.update(dict.fromkeys(numbers, consumer))
        elements = tuple((number, self._values[number][0]) for number in numbers)
        return DealtElements(elements, self._tell(consumer, member))

    def _hear(self, consumer: str, member: _Member, ask: ElementRequest) -> None:
        """Take in which elements have come, and which are in a state."""
        me = self._index(consumer)
        for request in sorted(r for r in member.given if r < ask.received):
            for number in member.given.pop(request):
                del self._out[number]
                self._take(number, me)
                self._fresh.add(number)
                member.fresh.append((request, number))
        fresh = member.fresh
        while fresh and (fresh[0][0] < ask.kept or len(fresh) > _MOST_FRESH):
            self._fresh.discard(fresh.popleft()[1])
        self._advance()

    def _choose(self, consumer: str, most: int) -> Iterator[int]:
        """Yield the numbers of elements for a request: what is ready, within the bounds of an answer."""
        key = int(consumer) if self.rounds is not None else 0
        nbytes = 0
        for count in range(most):
            if not self._is_ready(key):
                return
            nbytes += self._values[self._ready[key][0]][1]
            if count and nbytes > MOST_ANSWER_BYTES:
                return
            yield heapq.heappop(self._ready[key])

    def _is_ready(self, key: int) -> bool:
        """Return True if there is an element to give; one before it that is made again comes first."""
        ready = self._ready.get(key, [])
        while ready and (ready[0] not in self._values or ready[0] in self._out):
            heapq.heappop(ready)
        least = self._least(self._missing.get(key, []))
        return bool(ready) and (least is None or ready[0] < least)

    def _is_over(self, consumer: str, member: _Member) -> bool:
        """Return True if nothing can come any more for a consumer."""
        if self._total is None or self._frontier < self._total:
            return False
        if any(each.doubted for each in self.members.values()):
            return False
        key = 0 if self.rounds is None else int(consumer)
        awaited = self._out if self.rounds is None else member.given
        return not awaited and self._least(self._missing.get(key, [])) is None

    def _tell(self, consumer: str, member: _Member) -> Told | None:
        """Return what a consumer is to know by now; None if it knows enough."""
        if any(each.doubted for each in self.members.values()):
            return None  # what those have had may be void
        before, names = member.told, self._taking_part()
        at = max((at for at in self._states if at <= self.low), default=None)
        if at is None:
            return None
        news = before is None or before.members != names or self.low < before.low
        if not news and before is not None and self.low < before.low + self._every:
            return None
        state = None if before is not None and before.at == at else self._states[at]
        base = Common(
            self.low,
            dict(self._counts),
            names,
            self.generation,
            self._origin,
            self._ahead,
            at,
            state,
        )
        own: Ranges = ()
        if before is None or self.low < before.low:
            owners = np.frombuffer(self._owners, np.uint16)[self.low - self._floor :]
            own = of_numbers((np.flatnonzero(owners == self._index(consumer)) + self.low).tolist())
        member.told = replace(base, state=None)
        return base, own

    def _taking_part(self) -> tuple[str, ...]:
        """Return the consumers whose states are needed to know what was had: members, and who has left lately."""
        owners = np.unique(np.frombuffer(self._owners, np.uint16)[self.low - self._floor :])
        left = {self._names[owner] for owner in owners.tolist()} - {""}
        return tuple(sorted(left | self.members.keys()))

    # -- the iterator ---------------------------------------------------------------------------

    def order(self) -> MakeOrder | None:
        """Return what is to be done next; None if nothing is, until something changes."""
        if not self.dealing:
            return None
        here = {key for key in self._missing if self.rounds is None or str(key) in self.members}
        least = [n for key in here if (n := self._least(self._missing[key])) is not None]
        full = len(self._values) - len(self._out) >= self._most or self._nbytes >= self._most_bytes
        if full and any(self._is_ready(key) for key in self._ready):
            return None
        wanted = min(least, default=self._frontier)
        if not least and self._total is not None and self._frontier >= self._total:
            return None
        if wanted == self._position:
            return MakeOrder(self._turn, wanted)
        at = max((at for at in self._states if at <= wanted), default=0)
        if self._position is None or wanted < self._position or at > self._position:
            self._turn += 1
            self._position = at
            return MakeOrder(self._turn, at, begin=True, state=self._states.get(at))
        return MakeOrder(self._turn, self._position)

    def _least(self, missing: list[int]) -> int | None:
        while missing and missing[0] not in self._missed:
            heapq.heappop(missing)
        return missing[0] if missing else None

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
        number = self._position
        self._position += 1
        if state is not None:
            self._states[number + 1] = state
            self._thin_out()
        again = number < self._frontier
        if again and number in self._missed:
            self._missed.discard(number)
            self._keep(number, value, nbytes)
        if not again:
            self._frontier = number + 1
            free = self._owner(number) == _FREE
            if self.rounds is None:
                if free:
                    self._keep(number, value, nbytes)
                return
            if free:
                self._values[number] = value, nbytes
                self._nbytes += nbytes
                self._round.append(number)
            if number >= self._origin and (self._ordinal(number) + 1) % self.rounds == 0:
                for each in self._round:
                    self._offer(each)
                self._round.clear()
                for index in range(self.rounds):
                    if self._began_without(index):
                        self._set_aside(str(index))

    def _keep(self, number: int, value: Any, nbytes: int) -> None:
        self._values[number] = value, nbytes
        self._nbytes += nbytes
        self._offer(number)

    def _began_without(self, index: int) -> bool:
        """Return True if a consumer of rounds has taken part, and is gone."""
        return str(index) in self._names[2:] and str(index) not in self.members

    def end(self, turn: int) -> None:
        """Take in that there is no element at the place that was ordered."""
        if turn == self._turn and self._position is not None:
            self._total = self._position
            for number in self._round:  # rounds end together: there is no part of one
                self._nbytes -= self._values.pop(number, (None, 0))[1]
            self._round.clear()

    def _thin_out(self) -> None:
        """Forget every second state among those from long ago."""
        old = sorted(at for at in self._states if at < self.low)
        if len(old) > _MOST_STATES:
            for at in old[1:-1:2]:
                del self._states[at]
