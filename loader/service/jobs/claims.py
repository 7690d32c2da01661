"""The part of a shared job that its consumers hold: what each has had, and what lies below that.

Elements are numbered in the job's order. A consumer's state says which numbers it has had; it is the only record of a
delivery. So that it stays small, it says so from a *low* on only: everything below was had by somebody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tundish.loader.protocols.state_parsing import (
    InvalidStateField,
    check_whole,
    count,
    entries,
    items,
    part,
    shown,
    within,
)
from tundish.loader.service.jobs.ranges import Ranges, numbers_of, of_numbers, union
from tundish.loader.service.jobs.ranges import within as inside


@dataclass(frozen=True)
class Common:
    """The elements that all consumers of a job have had together, as far as one of them was told.

    Parameters
    ----------
    low : int
        All elements below this number were had, and were in the newest states of those who had them.
    counts : mapping of str to int
        How many of them each consumer has had.
    members : tuple of str
        The consumers that took part.
    generation : (int, str)
        How often states were merged before, and the digest of the last merger.
    origin : int
        The low with which the generation began.
    ahead : ranges
        The numbers from the origin on that were had before the generation began.
    at : int
        The number of the element before which `state` stands, at most `low`.
    state : dict or None
        A state of the job's iterator; None before the first element.
    """

    low: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    generation: tuple[int, str] = (0, "")
    origin: int = 0
    ahead: Ranges = ()
    at: int = 0
    state: Mapping[str, Any] | None = None

    @property
    def run(self) -> tuple[Any, ...] | None:
        """The plan, iteration and seeds of the job's iterator, by which runs are told apart; None before the first element."""
        if self.state is None:
            return None
        names = ("fingerprint", "iteration", "seed", "graph_seed")
        return tuple(self.state.get(name) for name in names)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "low": self.low,
            "counts": dict(sorted(self.counts.items())),
            "members": list(self.members),
            "generation": list(self.generation),
            "origin": self.origin,
            "ahead": [list(pair) for pair in self.ahead],
            "at": self.at,
            "state": self.state,
        }

    @classmethod
    def from_json(cls, data: Any) -> Common:
        """Read what `to_json` gave.

        Raises
        ------
        InvalidStateField
            A part of it is not as it was written.
        """
        counts = part(data, "counts")
        if not isinstance(counts, dict):
            raise InvalidStateField(f"is {shown(counts)}, not an object of counts", "counts")
        state = part(data, "state")
        if state is not None and not isinstance(state, dict):
            raise InvalidStateField(f"is {shown(state)}, not a state", "state")
        low = count(data, "low")
        with within("generation"):
            depth, digest = entries(part(data, "generation"), 2)
            check_whole(depth, 0)
        return cls(
            low,
            {_name(k, "counts"): check_whole(n, "counts", k) for k, n in counts.items()},
            tuple(_name(each, "members") for each in items(data, "members")),
            (depth, _name(digest, "generation")),
            count(data, "origin", most=low),
            read_ranges(data, "ahead"),
            count(data, "at", most=low),
            state,
        )


@dataclass(frozen=True)
class Claim:
    """The message with which a consumer joins a job; most of it is the consumer's state.

    Parameters
    ----------
    consumer : str
        Its name, which stays the same when it goes on from a state.
    base : Common
        What it knows of all.
    had : ranges
        What it has delivered itself, from the base's low on.
    hand : tuple of (request, number)
        What is its own and not delivered yet.
    """

    consumer: str
    base: Common = field(default_factory=Common)
    had: Ranges = ()
    hand: tuple[tuple[int, int], ...] = ()

    @property
    def is_first(self) -> bool:
        """True if the consumer begins at a merged state."""
        base = self.base
        nothing = not (self.had or self.hand or base.counts)
        return nothing and base.generation[0] > 0 and base.low == base.origin

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; without `hand` it is the state of a consumer."""
        return {
            "consumer": self.consumer,
            "base": self.base.to_json(),
            "had": [list(pair) for pair in self.had],
            **({"hand": [list(pair) for pair in self.hand]} if self.hand else {}),
        }

    @classmethod
    def from_json(cls, data: Any) -> Claim:
        """Read what `to_json` gave; raise `InvalidStateField` for a part that is not as it was written."""
        consumer = _name(part(data, "consumer"), "consumer")
        with within("base"):
            base = Common.from_json(part(data, "base"))
        hand: tuple[tuple[int, int], ...] = ()
        if "hand" in data:
            with within("hand"):
                pairs = [entries(pair, 2) for pair in items(data, "hand")]
                hand = tuple((check_whole(r), check_whole(n)) for r, n in pairs)
        return cls(consumer, base, inside(read_ranges(data, "had"), base.low), hand)


def read_ranges(data: Any, name: str) -> Ranges:
    """Read ranges of numbers; raise `InvalidStateField` if they are none."""
    with within(name):
        pairs = [entries(pair, 2) for pair in items(data, name)]
        return union((check_whole(a), check_whole(b)) for a, b in pairs)


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidStateField(f"is {shown(value)}, not a name", where)
    return value


Told = tuple[Common, Ranges]
"""A base, and what the consumer itself has had from its low on where that is lower than before."""

Mark = tuple[Common, Any, int]
"""A base, the numbers delivered from its low on as a chain, and how many requests were delivered."""


class Holding:
    """A consumer's side of a job: what it asks for, holds and has delivered.

    An element that has come is delivered only when the job has heard of that: then it is the consumer's for good, and
    nobody else's if the consumer is cut off.

    Parameters
    ----------
    consumer : str
        The consumer's name.
    ahead : int
        How many elements are asked for, or held, at most.
    """

    def __init__(self, consumer: str, ahead: int = 2) -> None:
        self.consumer, self.ahead = consumer, ahead
        self.base = Common()
        self.ended = self.joined = False
        self._chain: Any = None
        self._hand: deque[tuple[int, int, Any, Told | None]] = deque()
        self._asked = self._received = self._acked = self._delivered = 0
        self._kept: int | None = None  # up to which request the newest state goes, if one was taken

    # -- what is said to the job ----------------------------------------------------------------

    def claim(self) -> Claim:
        """Return what to join with. All that is not the consumer's own by now is given up."""
        self._hand = deque(held for held in self._hand if held[0] < self._acked)
        self._asked = self._received = self._acked
        self.joined = self.ended = False
        hand = tuple((request, number) for request, number, _, _ in self._hand)
        return Claim(self.consumer, self.base, self._had(), hand)

    def join(self) -> None:
        """Take in that the job has heard the claim."""
        self.joined = True

    @property
    def wants(self) -> bool:
        """True if another element is to be asked for now."""
        waiting = self._asked - self._received
        return self.joined and not self.ended and waiting + len(self._hand) < self.ahead

    @property
    def owes(self) -> bool:
        """True if the job is to hear of what has come, so that it may be delivered."""
        return self.joined and self._acked < self._received

    @property
    def waiting(self) -> int:
        """The number of requests without an answer."""
        return self._asked - self._received

    def request(self) -> int:
        """Return the number of the next request."""
        self._asked += 1
        return self._asked - 1

    def unasked(self) -> None:
        """Take back the last request: it was answered that there is nothing yet."""
        self._asked -= 1

    @property
    def received(self) -> int:
        """The number of requests whose elements have come."""
        return self._received

    @property
    def kept(self) -> int:
        """The number of requests whose elements are in the newest state, or are delivered where none was taken."""
        return self._delivered if self._kept is None else self._kept

    # -- what the job says ----------------------------------------------------------------------

    def came(self, request: int, number: int, value: Any, told: Told | None = None) -> None:
        """Take in an element; one that has come before is passed over."""
        if request == self._received < self._asked:
            self._received += 1
            self._hand.append((request, number, value, told))

    def heard(self, received: int) -> None:
        """Take in that the job has heard of the elements of so many requests."""
        self._acked = max(self._acked, min(received, self._received))

    # -- what is delivered ----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if an element may be delivered."""
        return bool(self._hand) and self._hand[0][0] < self._acked

    @property
    def done(self) -> bool:
        """True if the job has ended for this consumer."""
        return self.ended and not self._hand

    def deliver(self) -> tuple[int, Any]:
        """Return the next element, with its number."""
        request, number, value, told = self._hand.popleft()
        if told is not None:
            self._rebase(*told)
        self._chain = (number, self._chain)
        self._delivered = request + 1
        return number, value

    def _rebase(self, base: Common, own: Ranges) -> None:
        if base.state is None:  # it has not changed
            base = replace(base, at=self.base.at, state=self.base.state)
        numbers = dict.fromkeys(n for n in _unchained(self._chain) if n >= base.low)
        self.base, self._chain = base, None
        for number in (*reversed(numbers), *(n for n in numbers_of(own) if n not in numbers)):
            self._chain = (number, self._chain)

    def _had(self) -> Ranges:
        return of_numbers(_unchained(self._chain))

    # -- state ----------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """Return where the last delivered element left the consumer."""
        return self.base, self._chain, self._delivered

    def dump(self, mark: Mark) -> dict[str, Any]:
        """Return a mark as JSON; the job hears of it with the next request."""
        base, chain, delivered = mark
        self._kept = max(delivered, self._kept or 0)
        return Claim(self.consumer, base, of_numbers(_unchained(chain))).to_json()

    def load(self, claim: Claim) -> None:
        """Go to what `dump` gave."""
        self.consumer = claim.consumer or self.consumer
        self.base, self._chain = claim.base, None
        for first, stop in claim.had:
            for number in range(first, stop):
                self._chain = (number, self._chain)
        self._hand.clear()
        self.ended = self.joined = False
        self._asked = self._received = self._acked = self._delivered = 0
        self._kept = 0


def _unchained(chain: Any) -> list[int]:
    numbers = []
    while chain is not None:
        number, chain = chain
        numbers.append(number)
    return numbers
