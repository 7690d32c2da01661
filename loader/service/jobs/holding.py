"""`Holding`: the requests of a consumer of a shared job, and the elements that it holds and has delivered."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tundish.loader.service.jobs.claims import Claim, Common, Told
from tundish.loader.service.jobs.ranges import Ranges, of_numbers, union, within
from tundish.loader.service.jobs.requests import MOST_ANSWER_BYTES, ElementRequest

_ANSWER_S = 0.01
_MOST_ELEMENTS = 64
_SHARE = 16  # of the elements that were used, a request is for one in so many at most
_LINKS = 1024
"""The numbers of a chain, at least, before they are joined to the ranges."""

Mark = tuple[Common, Ranges, Any, int]
"""A base, the numbers delivered from its low on as ranges, the last of them as a chain, and how many requests were delivered."""


class Holding:
    """A consumer's side of a job: its requests, and the elements that it holds and has delivered.

    An element that has come is delivered only after the job has confirmed that it came. From then on the element belongs to this
    consumer, even if the consumer is cut off.

    Parameters
    ----------
    consumer : str
        The consumer's name.
    ahead : int
        The largest number of answers that are requested or held.

    Notes
    -----
    A request is for as many elements as the consumer uses in a hundredth of a second, and for at most a sixteenth of those it has
    used already. So a fast consumer needs few round trips, and no consumer holds much of a small dataset.
    """

    def __init__(self, consumer: str, ahead: int = 2) -> None:
        self.consumer, self.ahead = consumer, ahead
        self._step_s, self._used = 0.0, 0  # the mean time for an element; how many were used
        self._most = 1  # elements of a request
        self.base = Common()
        self.ended = self.joined = False
        self._ranges: Ranges = ()  # delivered from the base's low on
        self._chain: Any = None  # delivered since then
        self._links = 0
        self._hand: deque[tuple[int, int, Any, Told | None]] = deque()
        self._sizes: deque[int] = deque()  # of requests without an answer
        self._asked = self._received = self._acked = self._delivered = 0
        self._kept: int | None = None  # up to which request the newest state goes, if one was taken

    # -- what is said to the job ----------------------------------------------------------------

    def claim(self) -> Claim:
        """Return what to join with. All that is not the consumer's own by now is given up."""
        self._hand = deque(held for held in self._hand if held[0] < self._acked)
        self._asked = self._received = self._acked
        self._sizes.clear()
        self.joined = self.ended = False
        if self.is_new and self._hand and (told := self._hand[0][3]) is not None:
            # The job may be another one by now, which has to know the run of what is in hand.
            self._rebase(*told)
        hand = tuple((request, number) for request, number, _, _ in self._hand)
        return Claim(self.consumer, self.base, self._had(), hand)

    def join(self) -> None:
        """Take in that the job has heard the claim."""
        self.joined = True

    @property
    def wants(self) -> bool:
        """True if more elements are to be asked for now."""
        if not self.joined or self.ended:
            return False
        return sum(self._sizes) + len(self._hand) <= (self.ahead - 1) * self.size

    @property
    def size(self) -> int:
        """The number of elements that a request is for."""
        quick = int(_ANSWER_S / max(self._step_s, 1e-9))
        return max(1, min(self._most, quick, self._used // _SHARE))

    def used(self, seconds: float) -> None:
        """Take in how long the consumer was busy with an element."""
        self._used += 1
        self._step_s += (seconds - self._step_s) / min(self._used, _SHARE)

    @property
    def owes(self) -> bool:
        """True if elements have come that the job must confirm before they may be delivered."""
        return self.joined and self._acked < self._received

    def request(self) -> ElementRequest:
        """Return the next request."""
        self._asked += 1
        self._sizes.append(self.size)
        return ElementRequest(self._asked - 1, self._received, self.kept, self.size)

    def report(self) -> ElementRequest:
        """Return a request for no element, which reports the elements that have come."""
        return ElementRequest(None, self._received, self.kept)

    @property
    def kept(self) -> int:
        """The number of requests whose elements are in the newest state, or are delivered where none was taken."""
        return self._delivered if self._kept is None else self._kept

    # -- what the job says ----------------------------------------------------------------------

    def came(
        self,
        request: int,
        elements: Sequence[tuple[int, Any]],
        told: Told | None = None,
        nbytes: int = 0,
    ) -> None:
        """Record the elements of an answer, and their number of bytes; skip an answer that came before."""
        if request != self._received or request >= self._asked:
            return
        self._received += 1
        self._sizes.popleft()
        small = 2 * nbytes <= MOST_ANSWER_BYTES
        self._most = min(2 * self._most, _MOST_ELEMENTS) if small else len(elements)
        for number, value in elements:
            self._hand.append((request, number, value, told))
            told = None

    def heard(self, received: int) -> None:
        """Record that the job knows of the elements of this many requests."""
        self._acked = max(self._acked, min(received, self._received))

    # -- what is delivered ----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if an element may be delivered."""
        return bool(self._hand) and self._hand[0][0] < self._acked

    @property
    def is_new(self) -> bool:
        """True if nothing was delivered, now or before the state that was loaded."""
        return self.base.run is None and not self._had()

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
        self._links += 1
        if self._links >= max(_LINKS, len(self._ranges)):
            self._settle(self._had())
        whole = not self._hand or self._hand[0][0] > request
        self._delivered = request + whole
        return number, value

    def _rebase(self, base: Common, own: Ranges) -> None:
        if base.state is None:  # it has not changed
            base = replace(base, at=self.base.at, state=self.base.state)
        self.base = base
        self._settle(union([*within(self._had(), base.low), *own]))

    def _settle(self, had: Ranges) -> None:
        """Keep the numbers that were delivered as ranges: there may be many, if another consumer keeps the low down."""
        self._ranges, self._chain, self._links = had, None, 0

    def _had(self) -> Ranges:
        return _joined(self._ranges, self._chain)

    # -- state ----------------------------------------------------------------------------------

    def mark(self) -> Mark:
        """Return where the last delivered element left the consumer."""
        return self.base, self._ranges, self._chain, self._delivered

    def dump(self, mark: Mark) -> dict[str, Any]:
        """Return a mark as JSON; the job hears of it with the next request."""
        base, ranges, chain, delivered = mark
        self._kept = max(delivered, self._kept or 0)
        return Claim(self.consumer, base, _joined(ranges, chain)).to_json()

    def load(self, claim: Claim) -> None:
        """Go to the position that `dump` returned."""
        self.consumer = claim.consumer or self.consumer
        self.base = claim.base
        self._settle(claim.had)
        self._hand.clear()
        self._sizes.clear()
        self.ended = self.joined = False
        self._asked = self._received = self._acked = self._delivered = 0
        self._kept = 0


def _joined(ranges: Ranges, chain: Any) -> Ranges:
    """Return ranges with the numbers of a chain."""
    numbers = []
    while chain is not None:
        number, chain = chain
        numbers.append(number)
    return union([*ranges, *of_numbers(numbers)]) if numbers else ranges
