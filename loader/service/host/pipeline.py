"""One run of a dataset in a host process: its computed elements, and the consumers that still need them.

Elements are numbered in their *stream*: one start (iteration, seeds, position) of the dataset. The *window* is the parcels
that at least one consumer has not been sent. The engine's marks are kept for all elements whose state a consumer may ask for,
and become positions when one does.
"""

from __future__ import annotations

import hashlib
import json
import time
from bisect import bisect_right
from collections import deque
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tundish.errors import SharedMemoryError
from tundish.loader.run.polled import NotReady, PolledIterator
from tundish.loader.service.host.parcels import GatheredElements, Parcel

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.protocols.operator import Operator
    from tundish.shm.ring import Ring

_MOST_ELEMENTS = 64
_GATHERED_S = 0.002
_MOST_PARCELS = 4096
_MOST_KNOWN = 1 << 14
_ANCHOR_SHARE = 32
"""A position is written into a parcel when this many times what that takes has passed."""
_NEAR = 256
"""The elements that a consumer waits for while another pipeline makes them, before one of its own is made."""


class KnownPositions:
    """The numbers of positions in a stream that were sent to consumers: any of them may be in a saved state.

    A consumer that begins at one of them joins the stream, and shares its pipelines.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def note(self, position: Any, number: int) -> None:
        """Note the number of the element after a position; of many, old ones are forgotten, but the first never."""
        self._numbers[_digest(position)] = number
        if len(self._numbers) > _MOST_KNOWN:
            _, second = islice(self._numbers, 2)
            del self._numbers[second]

    def number(self, position: Any) -> int | None:
        """Return the number of the element after a position; None if it is not known."""
        return self._numbers.get(_digest(position))


def _digest(position: Any) -> bytes:
    return hashlib.blake2b(json.dumps(position, sort_keys=True).encode(), digest_size=16).digest()


class HostPipeline:
    """An iterator of the dataset, its window and its marks.

    Parameters
    ----------
    node : Operator
        The plan.
    ring : Ring
        The slots of this process.
    start : dict
        ``iteration``, ``seed``, ``graph_seed`` and ``position``, as in a state.
    number : int
        The number of the first element in the stream.
    known : KnownPositions
        The stream's.
    limit : int
        The bytes that the window may have.
    budget : int
        The bytes that all slots may have.

    Attributes
    ----------
    produced : int
        The number of the next element.
    ended : bool
        True after the last element.
    fault : Exception or None
        The iterator's error, if it is not an element's; nothing more comes.
    head : bool
        True as long as parcels are kept for consumers that will begin where it did.
    """

    def __init__(
        self,
        node: Operator,
        ring: Ring,
        start: dict[str, Any],
        *,
        number: int,
        known: KnownPositions,
        limit: int,
        budget: int,
    ) -> None:
        self.iterator = PolledIterator(node, **start)
        self.produced = self.first = number
        self.ended, self.head = False, True
        self.fault: Exception | None = None
        self.end: Callable[[], Any] = lambda: None
        """Returns the position at the end, which is not always the one after the last element."""
        self._ring, self._limit, self._budget, self._known = ring, limit, budget, known
        self._window: deque[Parcel] = deque()
        self.nbytes = 0
        """Bytes of the window."""
        self._elements: GatheredElements | None = None  # that wait for memory
        self._marks: deque[Callable[[], Any]] = deque([self.iterator.marked()])
        self._marked = number  # the number of the first of them
        self._anchored, self._anchor_s = 0.0, 0.0

    # -- the window ----------------------------------------------------------------------------

    @property
    def oldest(self) -> int:
        """The number of the first element of the window."""
        return self._window[0].first if self._window else self.produced

    def reaches(self, number: int) -> bool:
        """Return True if an element is in the window, or still to come."""
        return self.oldest <= number

    def serves(self, number: int, anchor: int) -> bool:
        """Return True if a consumer had better wait for an element from here than have it made from its anchor."""
        near = self.produced > number or anchor - self.produced <= _NEAR
        return self.fault is None and near and self.reaches(number)

    def at(self, number: int) -> Parcel | None:
        """Return the parcel of the window that has an element."""
        at = bisect_right(self._window, number, key=attrgetter("stop"))
        return self._window[at] if at < len(self._window) else None

    @property
    def sendable(self) -> int:
        """The number after the elements that are in the window: those after it wait for memory, or are still to be made."""
        return self.produced - (0 if self._elements is None else len(self._elements))

    @property
    def waits(self) -> bool:
        """True if elements wait for memory."""
        return self._elements is not None

    @property
    def is_full(self) -> bool:
        """True if nothing may be computed before the window is smaller."""
        return len(self._window) >= _MOST_PARCELS or self.nbytes >= self._limit

    def drop(self, needed: int, remembered: int) -> None:
        """Drop the parcels before element `needed`, and the marks before `remembered`."""
        while self._window and self._window[0].stop <= needed:
            self.nbytes -= self._window.popleft().nbytes
        while self._marked < min(remembered, self.oldest) and len(self._marks) > 1:
            self._marks.popleft()
            self._marked += 1

    # -- computing -----------------------------------------------------------------------------

    def pump(self) -> None:
        """Process what workers have told."""
        try:
            self.iterator.pump()
        except Exception as error:  # noqa: BLE001 - workers cannot start, and such: nothing more comes
            self.fault = error

    def advance(self) -> bool:
        """Compute a parcel if that is possible without waiting; return True if there is a new one, or the end."""
        gathered = self._elements or GatheredElements(self._ring)
        if self._elements is None and not self._gather(gathered):
            return self.ended or self.fault is not None
        self._elements = gathered
        if not self._settle(gathered):
            return False
        first = self.produced - len(gathered)
        try:
            parcel = gathered.parcel(first, self._anchor())
        except OSError:  # there is no descriptor or memory for its packet now
            return False
        self._elements = None
        self._window.append(parcel)
        self.nbytes += parcel.nbytes
        return True

    def _gather(self, gathered: GatheredElements) -> bool:
        """Take elements as long as they are small and there at once; return False if there is none."""
        until = time.monotonic() + _GATHERED_S
        iterator = self.iterator
        while not gathered.is_full and len(gathered) < _MOST_ELEMENTS:
            try:
                element = iterator.next()
            except NotReady:
                break
            except StopIteration:
                self.ended, self.end = True, iterator.marked()
                break
            except BaseException as error:  # a function may raise `SystemExit`, too
                if not iterator.failed_element:
                    if not isinstance(error, Exception):
                        raise  # this process is told to end
                    self.fault = error
                    break
                gathered.fail(error)
            else:
                gathered.add(element)
            self.produced += 1
            self._marks.append(iterator.marked())
            if time.monotonic() >= until:
                break
        return len(gathered) > 0

    def _settle(self, gathered: GatheredElements) -> bool:
        """Copy arrays from elsewhere into shared memory; return False to try again when consumers have released some."""
        nbytes, ring = gathered.loose_nbytes, self._ring
        if not nbytes:
            return True
        held = ring.used_bytes - ring.free_bytes
        if held and self._window and held + nbytes > self._budget:
            return False
        if ring.used_bytes + nbytes > self._budget:
            ring.trim(max(1, self._budget - nbytes))
        try:
            return gathered.settle()
        except SharedMemoryError as error:
            if self._window:
                return False
            self.fault = error
            return False

    def _anchor(self) -> Any:
        """Return the position after the last element; None if positions would take too much of the time."""
        now = time.monotonic()
        if now - self._anchored < _ANCHOR_SHARE * self._anchor_s:
            return None
        position = self.position(self.produced)
        self._anchored = time.monotonic()
        self._anchor_s = self._anchored - now
        return position

    def position(self, number: int) -> tuple[Any] | None:
        """Return the position after the elements before `number`, in a tuple; None if that is not known."""
        at = number - self._marked
        if not 0 <= at < len(self._marks):
            return None
        position = self._marks[at]()
        self._known.note(position, number)
        return (position,)

    def close(self) -> None:
        """End the workers and drop the window; what consumers hold stays theirs."""
        self.iterator.close()
        self._elements = None
        self.drop(self.produced, self.produced)
