"""The engine of an iterator whose elements a host process computes."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.forked import misused
from tundish.loader.protocols.failure import loads_exception
from tundish.loader.protocols.items import End
from tundish.loader.protocols.raised import carried
from tundish.loader.run.engine import Engine
from tundish.loader.run.iterator import Iterator
from tundish.loader.service.host.link import HostEndedError
from tundish.loader.service.host.parcels import Failed
from tundish.loader.service.host.starting import attach

if TYPE_CHECKING:
    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.service.host.link import HostLink
    from tundish.loader.service.host.plan import HostedPlan
    from tundish.loader.service.host.settings import HostSettings

_STARTS = 3
"""Times in a row that a host process may end before it has given an element."""


@dataclass(frozen=True)
class _Skipped:
    """Elements that are left out, up to one with this number."""

    stop: int


class HostEngine(Engine):
    """An engine whose elements come from a host process.

    Elements are numbered in their stream. Positions after some of them are known, as *anchors*. Any other position is asked of
    the host process, or computed here from the last anchor before it. Without a seed of its own an iterator at the beginning has the
    host process's.

    Attributes
    ----------
    seed : int or None
        The seed from which operators without one derive theirs, once it is open.
    skipped : int
        How many elements were left out because this consumer was too slow.
    """

    def __init__(
        self,
        context: Context,
        options: Options,
        plan: HostedPlan,
        settings: HostSettings,
        fresh_seed: int | None,
    ) -> None:
        super().__init__(context, options)
        self._plan, self._settings = plan, settings
        self.seed = fresh_seed
        self.skipped = 0
        self._owner = os.getpid()
        self._link: HostLink | None = None
        self._stream: str | None = None
        self._number = 0  # of the next element
        self._items: deque[Any] = deque()
        self._end: tuple[Any] | None = None  # the position at the end, once it has come
        self._upto = 0  # the number after those that are here
        self._anchors: dict[int, Any] = {}
        self._fault: BaseException | None = None
        self._starts = 0

    def open(self, position: Any) -> None:
        self._anchors[0] = position
        self._attach()

    def _attach(self) -> None:
        """Connect, and begin after the last delivered element."""
        self._items.clear()
        self._end = None
        anchor = self._anchor_before(self._number)
        link, joined = attach(
            self._plan,
            self._settings,
            {
                "stream": self._stream,
                "number": self._number,
                "anchor": anchor,
                "iteration": self.context.iteration,
                "seed": self.seed,
                "graph_seed": self.context.graph_seed,
                "position": self._anchors[anchor],
                "lag": self._settings.lag,
            },
        )
        moved = joined["number"] - self._number
        self._number += moved
        self._upto = self._number
        self._anchors = {at + moved: found for at, found in self._anchors.items()}
        self._stream, self.seed, self._link = joined["stream"], joined["seed"], link
        self.context.base_seed = joined["seed"]

    def _anchor_before(self, number: int) -> int:
        return max(at for at in self._anchors if at <= number)

    def _note(self, number: int, position: Any) -> None:
        """Note a position, and forget those before the one before the last delivered element."""
        self._anchors[number] = position
        last = max((at for at in self._anchors if at < self._number), default=0)
        self._anchors = {at: found for at, found in self._anchors.items() if at >= last}

    # -- elements ------------------------------------------------------------------------------

    def next(self) -> Any:
        if os.getpid() != self._owner:
            raise misused(self._owner)
        if self._timed:
            self._ledger.enter()
        while True:
            while not self._items:
                if self._end is not None:
                    self._note(self._number, self._end[0])
                    raise End
                self._receive()
            item = self._items[0]
            if type(item) is not _Skipped:
                break
            self.skipped += item.stop - self._number
            self._number = item.stop
            self._items.popleft()
        failed = type(item) is Failed
        # What is no `Exception` is wrapped until it is delivered: else it would be taken for an interrupt of this call.
        value = carried(loads_exception(item.error)) if failed else item
        del item
        # No call from here on: an interrupt hits before this, or in the caller.
        self._number += 1
        self._items.popleft()
        self._starts = 0
        if failed:
            self._errors += 1
            self.given = -1
            try:
                raise value
            finally:
                del value
        self._elements += 1
        self.given = 1
        if self._timed:
            now = time.perf_counter()
            self._tick(now)
            self._ledger.leave(now)
        return value

    def _several(self) -> None:
        return None

    def _receive(self) -> None:
        """Take in the next message; begin again with another host process if this one has died."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        link = self._link
        if link is None:
            self._attach()
            return
        try:
            self._take_in(link.receive())
        except HostEndedError:
            self._gone()
        except Exception:
            self._part()
            raise
        except BaseException:
            self.idle = link.waiting  # what had come is lost, else
            raise

    def _part(self) -> None:
        """Leave the host process, as after a message that is lost: another link gives what comes after the last delivered element."""
        link, self._link = self._link, None
        if link is not None:
            link.leave()

    def _take_in(self, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == "parcel":
            _, first, elements, anchor = message
            if first > self._upto:  # what comes before it is lost
                self._part()
                return
            stop = first + len(elements)
            if anchor is not None:
                self._note(stop, anchor[0])
            self._items.extend(elements[max(0, self._upto - first) :])
            self._upto = stop
        elif kind == "end":
            self._end = message[1]
        elif kind == "skipped":
            self._upto = message[1]
            self._items.append(_Skipped(self._upto))
        elif kind == "fault":
            self._part()
            self._fault = loads_exception(message[1])

    def _gone(self) -> None:
        """Leave a host process that has died; the next one gives what comes after the last delivered element."""
        self._part()
        self._starts += 1
        if self._starts > _STARTS:
            raise HostEndedError(
                f"the host process {self._settings.name!r} has ended {self._starts} times before it gave element {self._number}: "
                "iterate over the dataset itself to see why"
            )
        self._items.clear()

    # -- state ---------------------------------------------------------------------------------

    def take_back(self) -> None:
        if self.given:
            self._number -= 1
            self._items.clear()
            self._uncount()

    def position(self, left: int = 0) -> Any:
        number = self._number
        known = self._anchors.get(number)
        if known is None:
            told = self._asked(number)
            known = self._computed(number) if told is None else told[0]
            self._note(number, known)
        return known

    def position_within(self) -> Any:
        """Return it without a question to the host process, whose answer may be under way to `next`."""
        from tundish.loader.run.stages.overtaking import passed  # noqa: PLC0415 - of few iterators

        number = self._number - bool(self.given)
        known = self._anchor_before(number)
        return passed(self._anchors[known], number - known)

    def _asked(self, number: int) -> tuple[Any] | None:
        """Return the position before an element from the host process; None if it does not know, or is gone."""
        link = self._link
        if link is None or os.getpid() != self._owner:
            return None
        try:
            link.ask_state(number)
            while True:
                message = link.receive()
                if message[0] != "state":
                    self._take_in(message)
                elif message[1] == number:  # not the answer to a question that was interrupted
                    found: tuple[Any] | None = message[2]
                    return found
                if self._link is not link:
                    return None
        except HostEndedError:
            self._gone()
        except OSError:  # a message is lost; the position is computed here
            self._part()
        return None

    def _computed(self, number: int) -> Any:
        """Return the position before an element by computing here what lies between the last anchor and it."""
        at = self._anchor_before(number)
        context = self.context
        with Iterator(
            self._plan.root,
            iteration=context.iteration,
            workers=0,
            base_seed=context.base_seed,
            position=self._anchors[at],
        ) as again:
            for _ in range(number - at):
                try:
                    next(again)
                except StopIteration:
                    break
                except Exception:  # noqa: BLE001, S112 - an element's error, which has been delivered
                    continue
            return again._position()  # noqa: SLF001 - ours

    @property
    def host_pid(self) -> int | None:
        """The id of the host process; None if this is connected to none."""
        return self._link.pid if self._link is not None else None

    # -- the end -------------------------------------------------------------------------------

    def finish(self) -> None:
        self.close()

    def close(self) -> None:
        self._items.clear()  # nobody will have them: their memory goes back now
        self._upto = self._number
        self._part()
        self._ledger.end()
        self.reporter.end()
        self.context.watch.end()
