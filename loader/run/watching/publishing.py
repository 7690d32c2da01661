"""Publishing of statistics: to the user's aggregators, and to `tundish top PID` in another process.

Each iterator in use reports its statistics about every half second; the last reports of all iterators go to the
process's board as one JSON document::

    {"at": 1700000000.0, "argv": [...], "left_out": 0, "iterators": [
        {"name": "1", "at": 1700000000.0, "plan": "range -> map -> batch", "stats": {...}}]}

``TUNDISH_WATCH=0`` turns it off. An error in here never reaches the training loop.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from tundish.loader.run.starting.inside import in_worker
from tundish.loader.watch.watch import aggregators_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.watch.stats import Stats


EVERY_S = 0.5
"""The shortest time between two reports of an iterator."""

_BROKEN_S = 60.0  # until a board that could not be made is tried again


class _Entry(NamedTuple):
    """The last report of an iterator, with its time."""

    at: float
    name: int
    iterator: weakref.ref[Any]
    text: str


class _Telling:
    """The reports of all iterators of this process."""

    def __init__(self) -> None:
        from tundish.shm.board import LARGEST, Board  # noqa: PLC0415 - after a while, here and below

        self.owner = os.getpid()
        self.lock = threading.Lock()
        self.board, self.room = Board(), LARGEST
        self.names = itertools.count(1)
        self.told: dict[int, _Entry] = {}
        self.off_until = 0.0

    def last(self, iterator: object) -> _Entry | None:
        """Return the last report of an iterator."""
        entry = self.told.get(id(iterator))
        return entry if entry is not None and entry.iterator() is iterator else None

    def show(self) -> None:
        """Write all reports to the board; if they do not fit, the oldest are left out."""
        for key, entry in list(self.told.items()):
            if entry.iterator() is None:
                self.told.pop(key, None)
        entries = [entry.text for entry in sorted(self.told.values(), key=_when)]
        left_out = 0
        while True:
            head = {"at": time.time(), "argv": sys.argv[:4], "left_out": left_out}
            start = json.dumps(head, separators=(",", ":"))[:-1]
            data = f'{start},"iterators":[{",".join(entries[left_out:])}]}}'.encode()
            if len(data) <= self.room:
                self.board.publish(data)
                return
            left_out += 1


_current: list[_Telling] = []


def publish(iterator: object, plan: str, stats: Callable[[], Stats]) -> None:
    """Publish an iterator's statistics if the last report is half a second old; never raises.

    Parameters
    ----------
    iterator : object
        The iterator; its report is dropped when it is collected or withdrawn.
    plan : str
        Its operators, for display.
    stats : callable
        Returns the statistics; called only if a report is due.
    """
    now = time.monotonic()
    telling = _here()
    last = telling.last(iterator)
    if now < telling.off_until or (last is not None and now - last.at < EVERY_S):
        return
    if os.environ.get("TUNDISH_WATCH") == "0" or in_worker():
        telling.off_until = now + EVERY_S
        return
    # Another thread, or a signal's handler, is publishing: this report is skipped. Nobody waits, so
    # a process that was forked meanwhile cannot be stuck either.
    if not telling.lock.acquire(blocking=False):
        return
    try:
        name = last.name if last is not None else next(telling.names)
        told = {"name": str(name), "at": time.time(), "plan": plan, "stats": stats().to_dict()}
        text = json.dumps(told, separators=(",", ":"))
        telling.told[id(iterator)] = _Entry(now, name, weakref.ref(iterator), text)
        telling.show()
    except Exception:  # noqa: BLE001 - a view of the training must not end it
        telling.off_until = now + _BROKEN_S
    finally:
        telling.lock.release()


def withdraw(iterator: object) -> None:
    """Remove the report of an iterator that has ended or was closed.

    Parameters
    ----------
    iterator : object
        The object given to `publish`; an unknown one is ignored.
    """
    telling = _here()
    if telling.last(iterator) is None:
        return
    telling.told.pop(id(iterator), None)
    if not telling.lock.acquire(blocking=False):
        return
    try:
        telling.show()
    except Exception:  # noqa: BLE001, S110 - as above; the next report corrects it
        pass
    finally:
        telling.lock.release()


def _here() -> _Telling:
    """Return this process's `_Telling`; a forked child has its own, without its parent's locks."""
    if not _current or _current[0].owner != os.getpid():
        _current[:] = [_Telling()]
    return _current[0]


def _when(entry: _Entry) -> float:
    return entry.at


_names = itertools.count(1)


class Reporter:
    """Reports the statistics of one iterator, periodically and at its end.

    Parameters
    ----------
    context : Context
        The iterator's context.
    options : Options
        Its options.
    stats : callable
        Returns the statistics.
    """

    def __init__(self, context: Context, options: Options, stats: Callable[[], Stats]) -> None:
        self.plan = context.line
        self._stats = stats
        self._aggregators = aggregators_of(options.stats.aggregator)
        self._prefixes = (options.stats.prefix or "", options.stats.counter_prefix or "")
        self._name = f"{next(_names)}: {self.plan}"
        self._told = self._done = self._goes_on = False

    def goes_on(self) -> None:
        """Keep the iterator's report while its engine is replaced by another."""
        self._goes_on = True

    def follow(self, stats: Callable[[], Stats], earlier: Stats | None) -> None:
        """Report on another engine of the same iterator from now on; `earlier` is added to its statistics."""
        from tundish.loader.watch.adding import continued  # noqa: PLC0415 - see above

        self._stats = stats if earlier is None else lambda: continued(earlier, stats())
        self._done = self._goes_on = False

    def tell(self) -> None:
        """Report now; called every half second while elements are requested."""
        stats = self._stats()
        publish(self, self.plan, lambda: stats)
        self._told = True
        self._tell_aggregators(stats, end=False)

    def end(self) -> None:
        """Report for the last time."""
        if self._done or self._goes_on:
            return
        self._done = True
        if self._told:
            withdraw(self)
        if self._aggregators:
            self._tell_aggregators(self._stats(), end=True)

    def _tell_aggregators(self, stats: Stats, *, end: bool) -> None:
        for aggregator in self._aggregators:
            try:
                aggregator.take(self._name, stats, *self._prefixes)
                if end:
                    aggregator.done(self._name)
            except Exception as error:  # noqa: BLE001 - a class of the user's: its errors are not the pipeline's
                from tundish.loader.run.watching.tracing import notice  # noqa: PLC0415 - see above

                self._aggregators = tuple(a for a in self._aggregators if a is not aggregator)
                said = f"{type(error).__name__}: {error}"
                what = f"a {type(aggregator).__name__}"
                notice(
                    f"{what} gets no more reports of the iterator {self._name}: it raised {said}"
                )
