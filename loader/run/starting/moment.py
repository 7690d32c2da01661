"""The consumer as it is when an iterator is made, and a worker that becomes like it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tundish.loader.run.starting.globals import Entry, Found, Taken
from tundish.loader.run.starting.payload import unpack
from tundish.loader.run.starting.settings import Applied, Values
from tundish.loader.run.starting.surroundings import uncollected
from tundish.loader.run.starting.template import inherited
from tundish.snapshot.fingerprint.provenance import is_users_module

if TYPE_CHECKING:
    from tundish.loader.plan.reads import Global

__all__ = ["Luggage", "Moment"]


@dataclass(frozen=True)
class Moment:
    """The state of the consumer at one moment, which is to hold in its workers.

    Parameters
    ----------
    settings : mapping
        Of Python and of installed libraries.
    entries : sequence of Entry
        Globals of the user's modules.
    """

    settings: Values
    entries: Sequence[Entry] = ()

    def changes(self, since: Moment) -> set[Global]:
        """Return the globals that have other values than they had at an earlier moment."""
        before = {each.place: each.form for each in since.entries}
        return {each.place for each in self.entries if before.get(each.place) != each.form}

    def of(self, places: Collection[Global]) -> Moment:
        """Return the same moment with these globals alone."""
        return replace(self, entries=[each for each in self.entries if each.place in places])


class Luggage:
    """The objects and settings of a consumer that one of its workers is given.

    Parameters
    ----------
    payload : int or None
        The descriptor of the objects; None where the worker was forked with them.
    moment : Moment
        Of when the worker was asked for.
    ask : callable
        Asks the coordinator something and returns the answer.
    """

    def __init__(self, payload: int | None, moment: Moment, ask: Callable[[Any], Any]) -> None:
        self._payload, self._moment, self._ask = payload, moment, ask
        self._settings = Applied()
        self._globals = Taken(self._asked, {})

    def unpack(self, *, writable: bool = False) -> list[Any]:
        """Return the objects, and let the moment hold; see `payload.unpack`."""
        settings, by_value = self._moment.settings, dict[str, dict[str, Any]]()
        self._settings.take(settings, early=True)
        with uncollected():
            objects = (
                inherited()
                if self._payload is None
                else unpack(self._payload, writable=writable, namespaces=by_value)
            )
        self._settings.take(settings, early=False)
        self._globals = Taken(self._asked, by_value)
        self._globals.begin(self._moment.entries)
        return objects

    def follow(self, moment: Moment) -> None:
        """Let what has changed in the consumer since the last moment hold here."""
        self._settings.take(moment.settings)
        self._globals.follow(moment.entries)

    def _asked(self, differing: Sequence[tuple[Global, Found]]) -> frozenset[Global]:
        loaded = [
            name for name in list(sys.modules) if name != "__main__" and is_users_module(name)
        ]
        answer: frozenset[Global] = self._ask((loaded, differing))
        return answer
