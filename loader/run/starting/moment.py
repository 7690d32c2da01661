"""The consumer's settings and globals at one moment, and their transfer to a worker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tundish.loader.run.starting.globals import AdoptedGlobals, Entry, ImportedGlobal, users_modules
from tundish.loader.run.starting.payload import unpack
from tundish.loader.run.starting.settings import Applied, Values
from tundish.loader.run.starting.surroundings import uncollected

if TYPE_CHECKING:
    from tundish.loader.plan.reads import GlobalName


@dataclass(frozen=True)
class Moment:
    """The settings and globals of the consumer at one moment, which workers adopt.

    Parameters
    ----------
    settings : mapping
        Settings of Python and of installed libraries.
    entries : sequence of Entry
        Globals of the user's modules.
    """

    settings: Values
    entries: Sequence[Entry] = ()

    def changes(self, since: Moment) -> set[GlobalName]:
        """Return the globals whose values have changed since an earlier moment."""
        before = {each.place: each.form for each in since.entries}
        return {each.place for each in self.entries if before.get(each.place) != each.form}

    def of(self, places: Collection[GlobalName]) -> Moment:
        """Return a copy with only these globals."""
        return replace(self, entries=[each for each in self.entries if each.place in places])


class Luggage:
    """Everything a worker receives: objects, settings and globals of the consumer.

    Parameters
    ----------
    payload : int or None
        The descriptor of the payload; None if the worker was forked with the objects.
    moment : Moment
        The moment at which the worker was requested.
    ask : callable
        Asks the coordinator a question and returns the answer.
    """

    def __init__(self, payload: int | None, moment: Moment, ask: Callable[[Any], Any]) -> None:
        self._payload, self._moment, self._ask = payload, moment, ask
        self._settings = Applied()
        self._globals = AdoptedGlobals(self._asked, {})

    def unpack(self, *, writable: bool = False) -> list[Any]:
        """Adopt the moment and return the objects; see `payload.unpack`."""
        settings, by_value = self._moment.settings, dict[str, dict[str, Any]]()
        self._settings.take(settings, early=True)
        with uncollected():
            if self._payload is None:
                from tundish.loader.run.starting.template import inherited  # noqa: PLC0415 - its own

                objects = inherited()
            else:
                objects = unpack(self._payload, writable=writable, namespaces=by_value)
        self._settings.take(settings, early=False)
        self._globals = AdoptedGlobals(self._asked, by_value)
        self._globals.begin(self._moment.entries)
        return objects

    def follow(self, moment: Moment) -> None:
        """Adopt the settings and globals that the consumer has changed since the last moment."""
        self._settings.take(moment.settings)
        self._globals.follow(moment.entries)

    def _asked(
        self, differing: Sequence[tuple[GlobalName, ImportedGlobal]]
    ) -> Mapping[GlobalName, bytes]:
        answer: Mapping[GlobalName, bytes] = self._ask((users_modules(), differing))
        return answer
