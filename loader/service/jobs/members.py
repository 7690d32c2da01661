"""The consumers of a job: the life of each, which begins when it joins, and its lease while it is not connected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar


@dataclass
class JobMember:
    """A consumer that takes part.

    Attributes
    ----------
    life : str
        The name of its connection; with another one it has joined anew.
    until : float or None
        When its lease ends; None while it is connected.
    """

    life: str
    until: float | None = None


_M = TypeVar("_M", bound=JobMember)


class JobMembers(dict[str, _M]):
    """The consumers that take part, by name.

    Parameters
    ----------
    lease_s : float
        The number of seconds for which a disconnected consumer still takes part.
    """

    def __init__(self, lease_s: float) -> None:
        super().__init__()
        self.lease_s = lease_s

    def in_life(self, consumer: str, life: str) -> _M | None:
        """Return a consumer, if it has not joined anew since."""
        member = self.get(consumer)
        return member if member is not None and member.life == life else None

    def cut(self, consumer: str, life: str, now: float) -> None:
        """Note that a consumer has disconnected; its lease begins to run."""
        member = self.in_life(consumer, life)
        if member is not None and member.until is None:
            member.until = now + self.lease_s

    def ended(self, now: float) -> list[tuple[str, _M]]:
        """Return those whose leases have run out."""
        return [
            (name, each)
            for name, each in self.items()
            if each.until is not None and now >= each.until
        ]

    def next_end(self) -> float | None:
        """Return when the next lease runs out; None if none runs."""
        return min((each.until for each in self.values() if each.until is not None), default=None)
