"""Calls that wait for news: answered when there is news, or when the time that the caller gave is up.

So callers do not poll, and a change reaches all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.errors import TundishError

if TYPE_CHECKING:
    from tundish.loader.service.connections.answering import Later

Fields = dict[str, Any]

RAISED = (TundishError, ValueError, RuntimeError, OSError)
"""The exceptions that an answer may raise; they are raised at the caller."""


@dataclass(eq=False, frozen=True)
class ParkedCall:
    """A call that waits.

    Attributes
    ----------
    later : Later
        Takes the answer.
    caller : object
        The connection that it came by.
    due : float
        When its time is up.
    news : callable
        Returns the answer; None if there is no news yet.
    at_last : callable
        Returns the answer when the time is up.
    """

    later: Later
    caller: object
    due: float
    news: Callable[[], Fields | None]
    at_last: Callable[[], Fields]


class Parking:
    """The calls that wait, by what they wait for."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], list[ParkedCall]] = {}

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._calls

    def add(self, key: tuple[str, str], call: ParkedCall) -> None:
        """Let a call wait for what `key` names."""
        self._calls.setdefault(key, []).append(call)

    def drop(self, caller: object) -> None:
        """Forget the calls of a connection that has ended."""
        for key, calls in list(self._calls.items()):
            calls[:] = [each for each in calls if each.caller != caller]
            if not calls:
                del self._calls[key]

    def settle(self, key: tuple[str, str], now: float) -> None:
        """Answer the calls of a key for which there is news, or whose time is up."""
        for call in self._calls.pop(key, []):
            try:
                found = call.news()
                if found is None and now >= call.due:
                    found = call.at_last()
            except RAISED as error:
                call.later.fail(error)
                continue
            if found is None:
                self.add(key, call)
            else:
                call.later.answer(found)

    def settle_due(self, now: float) -> None:
        """Answer the calls whose time is up."""
        for key in [k for k, calls in self._calls.items() if any(now >= c.due for c in calls)]:
            self.settle(key, now)

    def due(self) -> float | None:
        """Return the earliest time at which a call is due; None if no call waits."""
        return min((c.due for calls in self._calls.values() for c in calls), default=None)
