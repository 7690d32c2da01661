"""The consumer as it is when an iterator is made, and a worker that becomes like it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tundish.loader.run.starting.garbage import uncollected
from tundish.loader.run.starting.payload import unpack
from tundish.loader.run.starting.settings import Applied, Values, values_now
from tundish.loader.run.starting.template import inherited

__all__ = ["Luggage", "Moment", "moment_now"]


@dataclass(frozen=True)
class Moment:
    """What holds in the consumer at one moment, and is to hold in its workers.

    Parameters
    ----------
    settings : mapping
        Of Python and of installed libraries.
    """

    settings: Values


def moment_now() -> Moment:
    """Return this process's moment."""
    return Moment(values_now())


class Luggage:
    """What a worker is given of its consumer's.

    Parameters
    ----------
    payload : int or None
        The descriptor of the objects; None where the worker was forked with them.
    moment : Moment
        Of when the worker was asked for.
    """

    def __init__(self, payload: int | None, moment: Moment) -> None:
        self._payload, self._moment = payload, moment
        self._settings = Applied()

    def unpack(self, *, writable: bool = False) -> list[Any]:
        """Return the objects, and let the moment hold; see `payload.unpack`."""
        settings = self._moment.settings
        self._settings.take(settings, early=True)
        with uncollected():
            objects = (
                inherited() if self._payload is None else unpack(self._payload, writable=writable)
            )
        self._settings.take(settings, early=False)
        return objects

    def follow(self, moment: Moment) -> None:
        """Let what has changed in the consumer since the last moment hold here."""
        self._settings.take(moment.settings)
