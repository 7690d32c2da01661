"""The numbers of a job that nobody has had: ready to be given, on their way to a consumer, or to be made again."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tundish.loader.service.jobs.ranges import Ranges, size, within
from tundish.loader.service.jobs.requests import MOST_ANSWER_BYTES

if TYPE_CHECKING:
    from tundish.loader.service.jobs.production import Production


class FreeNumbers:
    """The numbers that nobody has had, in one queue for all consumers, or in one for each consumer of a round.

    Parameters
    ----------
    made : Production
        The elements that are made.
    rounds : int or None
        The number of consumers that read in rounds.
    origin : int
        The number with which the rounds begin.
    ahead : ranges
        Numbers from the origin on that are in no round.

    Attributes
    ----------
    given : dict of int to str
        The consumers to which elements are on their way, by number.
    """

    def __init__(
        self, made: Production, rounds: int | None, origin: int = 0, ahead: Ranges = ()
    ) -> None:
        self._made, self._rounds, self._origin, self._ahead = made, rounds, origin, ahead
        self.given: dict[int, str] = {}
        self._ready: dict[int, list[int]] = {}
        self._missing: dict[int, list[int]] = {}  # to be made again
        self._missed: set[int] = set()  # those of `_missing` that still are
        self._round: list[int] = []  # the elements of one that is not whole yet

    def queue(self, consumer: str) -> int:
        """Return the queue of a consumer."""
        return 0 if self._rounds is None else int(consumer)

    def _queue_of(self, number: int) -> int:
        return 0 if self._rounds is None else self._ordinal(number) % self._rounds

    def _ordinal(self, number: int) -> int:
        return number - self._origin - size(within(self._ahead, self._origin, number))

    # -- ready ----------------------------------------------------------------------------------

    def offer(self, number: int) -> None:
        """Have an element, which is made, given to whoever asks next."""
        heapq.heappush(self._ready.setdefault(self._queue_of(number), []), number)

    def is_ready(self, queue: int) -> bool:
        """Return True if there is an element to give; one before it that is made again comes first."""
        ready = self._ready.get(queue, [])
        while ready and (ready[0] not in self._made.values or ready[0] in self.given):
            heapq.heappop(ready)
        least = self.first_missing(queue)
        return bool(ready) and (least is None or ready[0] < least)

    @property
    def any_ready(self) -> bool:
        """True if there is an element to give to some consumer."""
        return any(map(self.is_ready, self._ready))

    def choose(self, queue: int, most: int) -> Iterator[int]:
        """Yield the numbers of elements that are ready, within the bounds of an answer."""
        nbytes = 0
        for count in range(most):
            if not self.is_ready(queue):
                return
            nbytes += self._made.values[self._ready[queue][0]][1]
            if count and nbytes > MOST_ANSWER_BYTES:
                return
            yield heapq.heappop(self._ready[queue])

    # -- to be made again -----------------------------------------------------------------------

    def miss(self, number: int) -> None:
        """Have an element made again."""
        self._missed.add(number)
        heapq.heappush(self._missing.setdefault(self._queue_of(number), []), number)

    def no_longer_missing(self, number: int) -> bool:
        """Take in that an element need not be made again; return False if it was not to be."""
        if number not in self._missed:
            return False
        self._missed.discard(number)
        return True

    def set_aside(self, queue: int) -> None:
        """Drop the elements that wait for a consumer that is gone: they are made again when it is back."""
        for number in self._ready.pop(queue, []):
            if self._made.drop(number):
                self.miss(number)

    def first_missing(self, queue: int) -> int | None:
        """Return the first number of a queue that is to be made again; None if there is none."""
        missing = self._missing.get(queue, [])
        while missing and missing[0] not in self._missed:
            heapq.heappop(missing)
        return missing[0] if missing else None

    def missing(self, consumers: Iterable[str]) -> int | None:
        """Return the first number that is to be made again for one of these consumers; None if there is none."""
        queues = [0] if self._rounds is None else [self.queue(each) for each in consumers]
        found = [self.first_missing(queue) for queue in queues]
        return min((number for number in found if number is not None), default=None)

    @property
    def any_missing(self) -> bool:
        """True if there is an element to make again."""
        return bool(self._missed)

    # -- rounds ---------------------------------------------------------------------------------

    def ends_round(self, number: int) -> bool:
        """Return True if a number is the last one of a round."""
        assert self._rounds is not None
        return number >= self._origin and (self._ordinal(number) + 1) % self._rounds == 0

    def hold(self, number: int) -> None:
        """Keep an element until its round is whole."""
        self._round.append(number)

    def offer_round(self) -> None:
        """Offer the elements of a round."""
        for number in self._round:
            self.offer(number)
        self._round.clear()

    def drop_round(self) -> None:
        """Drop the elements of a round that will never be whole: rounds end together."""
        for number in self._round:
            self._made.drop(number)
        self._round.clear()
