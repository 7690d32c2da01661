"""Decisions of a shared job: which consumer gets which element. Pure: no clock, no socket, no iterator.

Elements are numbered in the order of the job's iterator. A number is *free*, *given* (on its way to a consumer), or *had*.
A number is had when its consumer has reported that the element came; the consumer delivers the element only after the job has
confirmed the report. The consumers' states record the numbers that were had; the job knows them only while it lives. So a job that
begins again waits until all earlier consumers have joined with their numbers, or have lost their leases.

The thread that runs the iterator asks `order` for the next order, and reports the result to `made`. Times are arguments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Self

from tundish.loader.service.jobs.claims import Claim, Common, Told
from tundish.loader.service.jobs.free import FreeNumbers
from tundish.loader.service.jobs.members import JobMember, JobMembers
from tundish.loader.service.jobs.owners import FREE, Owners
from tundish.loader.service.jobs.production import MakeOrder, Production
from tundish.loader.service.jobs.ranges import Ranges, numbers_of, of_numbers, size, within
from tundish.loader.service.jobs.requests import (
    MOST_GIVEN_BYTES,
    Answer,
    DealtElements,
    Declined,
    ElementRequest,
    JoinAnew,
    NothingMore,
    NothingYet,
)

_MOST_FRESH = 1 << 16
_FIRST = -1  # the request of numbers that a consumer had when it joined


@dataclass
class _Member(JobMember):
    given: dict[int, tuple[int, ...]] = field(default_factory=dict)  # request -> numbers
    fresh: deque[tuple[int, int]] = field(default_factory=deque)  # had, but in no state yet
    told: Common | None = None
    doubted: bool = False  # it may be of a training that has gone back, and is no more
    refused: str | None = None


class SharedJob:
    """A shared job.

    Parameters
    ----------
    rounds : int, optional
        The number of consumers that read in step: consumer i of n gets the i-th element of each n. None: elements go
        to the consumer that asks first.
    most, most_bytes : int
        Limits on the elements that are made and not yet delivered.
    lease_s : float
        The seconds for which a consumer that is not connected still takes part.
    again : bool
        True if the job was running before, so that earlier consumers may come back.
    now : float
        The time.
    every : int
        The number of elements after which consumers get a new low.
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
        self.rounds, self._lease_s, self._every = rounds, lease_s, every
        self._most, self._most_bytes = max(most, 2 * (rounds or 1)), most_bytes
        self._made = Production()
        self._reset((0, ""), now, again=again)

    def _reset(self, generation: tuple[int, str], now: float, *, again: bool) -> None:
        self.generation, self.dealing, self._again = generation, False, again
        self._began = now
        self.members: JobMembers[_Member] = JobMembers(self._lease_s)
        self._claims: dict[str, Claim] = {}  # until it deals
        self._origin = 0
        self._ahead: Ranges = ()
        self._owners = Owners()
        self._made = Production(self._made.turn + 1)
        self._free = FreeNumbers(self._made, self.rounds)
        self._earlier: set[str] = set()  # consumers of the job before this one
        self._ended = False  # a consumer was told so

    def rested(self) -> Self | None:
        """Return the job as it goes on with another iterator, when all consumers have left; None if it has dealt nothing."""
        if not self.dealing:
            return None
        other = copy(self)
        other.begin_anew()
        return other

    def begin_anew(self) -> None:
        """Drop everything but who has had which element."""
        made, owners, earlier, ended = self._made, self._owners, self._earlier, self._ended
        origin, ahead = self._origin, self._ahead
        self._reset(self.generation, self._began, again=False)
        self.dealing, self._ended = True, ended
        self._origin, self._ahead, self._owners, self._earlier = origin, ahead, owners, earlier
        self._free = FreeNumbers(self._made, self.rounds, origin, ahead)
        # Whoever has left waits for no state, so all numbers below the low were had.
        self._made.go_on(made, owners.low)

    @property
    def nbytes(self) -> int:
        """The bytes of what it knows about elements that were had."""
        return self._owners.nbytes

    # -- who takes part -------------------------------------------------------------------------

    def join(self, claim: Claim, life: str, now: float) -> Declined | None:
        """Accept a consumer with the numbers that it has had; its earlier lives end."""
        why = self._misfit(claim)
        if why is not None:
            return Declined(why)
        if claim.base.generation > self.generation:
            self._reset(claim.base.generation, now, again=self._again and not self.dealing)
        elif self.dealing and self._made.run is None and claim.base.run is not None:
            # Nothing is made yet, and an iterator without this state may have other seeds.
            self._reset(self.generation, now, again=False)
        elif claim.is_first and not self._owners.knows(claim.consumer):
            connected = any(member.until is None for member in self.members.values())
            if self._ended and not connected:
                return Declined(
                    "this job has ended: if a training goes back to an earlier step, use another job name"
                )
            self._doubt(now, reset=not connected)
        self._give_back(claim.consumer)
        self.members[claim.consumer] = _Member(life)
        if claim.base.run is not None:
            self._made.run = claim.base.run
        if not self.dealing:
            self._claims[claim.consumer] = claim
            self._settle(now)
        else:
            why = self._apply(claim)
            if why is not None:
                del self.members[claim.consumer]
        return None if why is None else Declined(why)

    def leave(self, consumer: str, life: str) -> None:
        """Let a consumer go at once; the numbers that it has had stay had."""
        if self.members.in_life(consumer, life) is not None:
            self._give_back(consumer, gone=True)
            del self.members[consumer]
            self._claims.pop(consumer, None)

    def tick(self, now: float) -> None:
        """End the leases that have run out by now."""
        for name, member in self.members.ended(now):
            self.leave(name, member.life)
            if member.doubted:
                self._reset(self.generation, now, again=True)
                return
        if not self.dealing:
            self._settle(now)

    def _doubt(self, now: float, *, reset: bool) -> None:
        """Doubt all others, as a consumer begins where the states were merged.

        Either that consumer is late, or the whole training has gone back to the merged state. In the second case the consumers
        that do not come back no longer exist, and their later elements are dealt again.
        """
        if reset:
            self._reset(self.generation, now, again=False)
        for member in self.members.values():
            member.doubted = True

    def next_tick(self) -> float | None:
        """Return when `tick` has something to do, as far as is known."""
        times = [self.members.next_end()]
        if not self.dealing and (self._claims or self._again):
            times.append(self._began + self._lease_s)
        return min((each for each in times if each is not None), default=None)

    def _misfit(self, claim: Claim) -> str | None:
        """Return why a claim is of no consumer of this job; None if it may be."""
        if not claim.consumer:
            return "the name of a consumer of a job must not be empty"
        if self.rounds is not None and claim.consumer not in map(str, range(self.rounds)):
            return f"the job deals in rounds to consumers 0 to {self.rounds - 1}; there is no {claim.consumer!r}"
        return self._misfit_of(claim.base)

    def continues(self, claim: Claim) -> bool:
        """Return True if a consumer with this claim may join; False if its state is of another run."""
        return self._misfit_of(claim.base) is None

    def _misfit_of(self, base: Common) -> str | None:
        """Return why a base is of another run than this job; None if it may be of this one."""
        mine, its = self.generation, base.generation
        if its > mine:
            return None
        if its != mine and (its[0] or base.run is not None):
            return "the job continues from a merged state that this consumer did not load: start from that state, or use another job name"
        run = self._made.run
        if None not in {run, base.run} and base.run != run:
            return (
                f"the state is of another run: [fingerprint, iteration, seed, graph_seed] are {base.run} in the "
                f"state, {run} in the running job; start without it, or use another job name"
            )
        return None

    def _settle(self, now: float) -> None:
        """Start to distribute if all earlier consumers have joined, or had time to."""
        claims = self._claims
        known = [claim for claim in claims.values() if claim.base.state is not None]
        absent = {name for claim in known for name in claim.base.members} - claims.keys()
        # One that begins where states were merged does not know who has had elements since.
        unknown = self._again and all(claim.is_first for claim in known)
        if not claims or ((absent or unknown) and now < self._began + self._lease_s):
            return
        self.dealing = True
        newest = max((claim.base for claim in known), key=lambda base: base.low, default=Common())
        # Whoever brought another generation or run may have left meanwhile.
        self.generation = max(claim.base.generation for claim in claims.values())
        self._made.run = newest.run
        self._origin, self._ahead = newest.origin, newest.ahead
        self._free = FreeNumbers(self._made, self.rounds, newest.origin, newest.ahead)
        self._owners = Owners(newest)
        self._earlier = {*absent, *newest.counts}
        self._made.frontier = newest.low
        self._made.states = {claim.base.at: claim.base.state for claim in known}
        for name, claim in claims.items():
            self.members[name].refused = self._apply(claim)
        self._claims = {}
        self._owners.advance()

    def _apply(self, claim: Claim) -> str | None:
        """Make a consumer's claim that of the job; return why that cannot be, and change nothing then."""
        name, base, owners = claim.consumer, claim.base, self._owners
        me, floor = owners.index(name), owners.floor
        first = max(base.low, floor)
        have = owners.count(name, first)
        mine = base.counts.get(name, 0) + size(within(claim.had, base.low, floor))
        mine += sum(base.low <= number < floor for _, number in claim.hand)
        again = f"some elements that consumer {name!r} has had were given to others while it was away: restore all consumers to states of one step, or merge those (td.service.merge_states)"
        if mine < have:
            return (
                f"consumer {name!r} comes with a state in which it has had {mine} of the first {first} elements, and in "
                f"the states of others it has had {have}: restore all consumers to states of one step, or "
                "merge those (td.service.merge_states)"
            )
        # Below its low a claim has no numbers. The consumer gave up the free ones there when it joined without its state.
        given_up = owners.free_below(first)
        if mine - have not in {0, len(given_up)} or (
            mine > have and self._free.given.keys() & given_up
        ):
            return again
        hand = {number: request for request, number in claim.hand}
        wanted = dict.fromkeys(numbers_of(within(claim.had, first)), _FIRST)
        wanted |= {number: request for number, request in hand.items() if number >= first}
        for number in wanted:
            if owners.of(number) not in {FREE, me} or number in self._free.given:
                return again
        for number in owners.had(name, first):
            if number not in wanted:
                self._give_up(number)
        for number in given_up if mine > have else ():
            self._take(number, me)
        member = self.members[name]
        for number, request in sorted(wanted.items(), key=lambda each: (each[1], each[0])):
            self._take(number, me)
            owners.unsaved.add(number)
            member.fresh.append((request, number))
        return None

    def _give_back(self, consumer: str, *, gone: bool = False) -> None:
        """Take back the elements that a consumer was given and has not had; if the consumer is gone, others do not wait for its states."""
        member = self.members.get(consumer)
        if member is None:
            return
        for number in chain.from_iterable(member.given.values()):
            self._free.given.pop(number, None)
            self._free.offer(number)
        member.given.clear()
        self._owners.unsaved.difference_update(number for _, number in member.fresh)
        member.fresh.clear()
        if gone:
            if self.rounds is not None:
                self._free.set_aside(int(consumer))
            self._owners.advance()

    def _take(self, number: int, owner: int) -> None:
        self._owners.give(number, owner)
        self._made.drop(number)
        self._free.no_longer_missing(number)

    def _give_up(self, number: int) -> None:
        """Release a number that had been delivered, so that it is made again."""
        self._owners.free(number)
        if number < self._made.frontier:
            self._free.miss(number)

    # -- elements -------------------------------------------------------------------------------

    def ask(self, consumer: str, life: str, ask: ElementRequest) -> Answer:
        """Answer a request; the same request again is answered with the same elements."""
        member = self.members.get(consumer)
        if member is None:
            return JoinAnew()
        if member.life != life:
            return Declined(
                f"another consumer has joined this job as {consumer!r} since: each consumer needs a state of its own (or "
                "that of merge_states), and its own consumer_index"
            )
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
            if self._made.nbytes_of(chain.from_iterable(member.given.values())) > MOST_GIVEN_BYTES:
                return NothingYet()
            numbers = tuple(self._free.choose(self._free.queue(consumer), ask.most))
            if not numbers:
                if not self._is_over(consumer, member):
                    return NothingYet()
                self._ended = True
                total = self._made.total or 0
                return NothingMore(total - total % (self.rounds or 1))
            member.given[ask.request] = numbers
            self._free.given.update(dict.fromkeys(numbers, consumer))
        elements = tuple((number, self._made.values[number][0]) for number in numbers)
        return DealtElements(elements, self._tell(consumer, member))

    def _hear(self, consumer: str, member: _Member, ask: ElementRequest) -> None:
        """Take in which elements have come, and which are in a state."""
        owners = self._owners
        me = owners.index(consumer)
        for request in sorted(r for r in member.given if r < ask.received):
            for number in member.given.pop(request):
                del self._free.given[number]
                self._take(number, me)
                owners.unsaved.add(number)
                member.fresh.append((request, number))
        fresh = member.fresh
        while fresh and (fresh[0][0] < ask.kept or len(fresh) > _MOST_FRESH):
            owners.unsaved.discard(fresh.popleft()[1])
        owners.advance()

    def _is_over(self, consumer: str, member: _Member) -> bool:
        """Return True if nothing can come any more for a consumer."""
        if not self._made.whole:
            return False
        if any(each.doubted for each in self.members.values()):
            return False
        awaited = self._free.given if self.rounds is None else member.given
        return not awaited and self._free.first_missing(self._free.queue(consumer)) is None

    def _tell(self, consumer: str, member: _Member) -> Told | None:
        """Return the news for a consumer; None if there is none."""
        before, owners, states = member.told, self._owners, self._made.states
        low, counts = owners.low, owners.counts
        if any(each.doubted for each in self.members.values()):
            if before is not None:
                return None  # what those have had may be void
            # It has to know the run of its elements, and what is certain.
            low, counts = owners.floor, owners.floor_counts
        at = self._made.state_at(low)
        if at is None:
            return None
        # The consumers whose states are needed: members, and consumers that have left lately.
        names = tuple(sorted(owners.above_low() | self.members.keys()))
        news = before is None or before.members != names or low < before.low
        if not news and before is not None and low < before.low + self._every:
            return None
        state = None if before is not None and before.at == at else states[at]
        base = Common(
            low, dict(counts), names, self.generation, self._origin, self._ahead, at, state
        )
        own: Ranges = ()
        if before is None or low < before.low:
            own = of_numbers(owners.had(consumer, low))
        member.told = replace(base, state=None)
        return base, own

    # -- the iterator ---------------------------------------------------------------------------

    @property
    def finished(self) -> int | None:
        """The number of elements, once consumers have had all of them; None before."""
        made = self._made
        return made.total if made.whole and not (made.values or self._free.any_missing) else None

    def order(self) -> MakeOrder | None:
        """Return the next order; None if there is none until something changes."""
        if not self.dealing:
            return None
        made, missing = self._made, self._free.missing(self.members)
        ahead = len(made.values) - len(self._free.given)
        full = ahead >= self._most or made.nbytes >= self._most_bytes
        if full and self._free.any_ready:
            return None
        if missing is None and made.whole:
            return None
        return made.order(made.frontier if missing is None else missing)

    def began(self, turn: int, state: Mapping[str, Any]) -> None:
        """Record the first state of an iterator that started from the beginning, with its seeds."""
        self._made.began(turn, state)

    def made(
        self, turn: int, value: Any, nbytes: int = 0, state: Mapping[str, Any] | None = None
    ) -> None:
        """Record the requested element; `state`, if one was taken, is the iterator's state after it."""
        made = self._made
        number = made.made(turn, state, self._owners.low)
        if number is None:
            return
        if number < made.frontier:
            if self._free.no_longer_missing(number):
                made.keep(number, value, nbytes)
                self._free.offer(number)
            return
        made.frontier = number + 1
        free = self._owners.of(number) == FREE
        if free:
            made.keep(number, value, nbytes)
        if self.rounds is not None:
            self._made_in_round(number, self.rounds, free=free)
        elif free:
            self._free.offer(number)

    def _made_in_round(self, number: int, rounds: int, *, free: bool) -> None:
        """Offer the elements of a round when its last one was made."""
        if free:
            self._free.hold(number)
        if not self._free.ends_round(number):
            return
        self._free.offer_round()
        for each in range(rounds):
            index = str(each)
            took_part = self._owners.knows(index) or index in self._earlier
            if took_part and index not in self.members:
                self._free.set_aside(each)  # it has taken part, and is gone

    def end(self, turn: int) -> None:
        """Record that there is no element at the requested position."""
        if self._made.ended(turn):
            self._free.drop_round()
