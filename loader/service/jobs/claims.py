"""The part of a shared job that its consumers hold: the numbers that each has had, and a base below them.

Elements are numbered in the job's order. A consumer's state lists the numbers that it has had, and is the only record of a
delivery. To stay small, the list begins at a *low*: all numbers below were had by some consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
from tundish.loader.service.jobs.ranges import Ranges, union
from tundish.loader.service.jobs.ranges import within as inside


@dataclass(frozen=True)
class Common:
    """The elements that all consumers of a job have had together, as one of them was told.

    Parameters
    ----------
    low : int
        All elements below this number were had, and were in the newest states of their consumers.
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
        The base that the job told it last.
    had : ranges
        The numbers that it has delivered itself, from the base's low on.
    hand : tuple of (request, number)
        The numbers that belong to it and that it has not delivered yet.
    """

    consumer: str
    base: Common = field(default_factory=Common)
    had: Ranges = ()
    hand: tuple[tuple[int, int], ...] = ()

    @property
    def is_new(self) -> bool:
        """True if the consumer has had nothing, and knows of no iterator."""
        return self.base.run is None and not self.had

    @property
    def is_first(self) -> bool:
        """True if the consumer begins at a merged state."""
        base = self.base
        nothing = not (self.had or self.hand or base.counts)
        return nothing and base.generation[0] > 0 and base.low == base.origin

    def to_json(self) -> dict[str, Any]:
        """Return the claim as JSON; without `hand`, it is the consumer's state."""
        return {
            "consumer": self.consumer,
            "base": self.base.to_json(),
            "had": [list(pair) for pair in self.had],
            **({"hand": [list(pair) for pair in self.hand]} if self.hand else {}),
        }

    @classmethod
    def from_json(cls, data: Any) -> Claim:
        """Read a result of `to_json`; raise `InvalidStateField` for a part that was altered."""
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
    """Read ranges of numbers; raise `InvalidStateField` if the value is not a list of ranges."""
    with within(name):
        pairs = [entries(pair, 2) for pair in items(data, name)]
        return union((check_whole(a), check_whole(b)) for a, b in pairs)


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidStateField(f"is {shown(value)}, not a name", where)
    return value


Told = tuple[Common, Ranges]
"""A base, and the consumer's own numbers from its low on if that low is lower than before."""
