"""A trainer's record of the agents that it has dialled: which are left alone for a while, and why they gave no worker."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Address

_REST_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds until an unreachable agent is tried again, by the number of consecutive failures."""

_REFUSED_S = 5.0
_SHOWN = 3


class AgentStanding:
    """The standing of agents with one pool."""

    def __init__(self) -> None:
        self._rests: dict[Address, tuple[float, int]] = {}  # until when, and how often in a row
        self._errors: dict[Address, BaseException] = {}  # why there is no worker of an agent
        # Agents that have answered, and have no worker for this pool.
        self._refusing: set[Address] = set()

    def due(self, address: Address) -> float:
        """Return when an agent may be dialled, by ``time.monotonic``."""
        return self._rests.get(address, (0.0, 0))[0]

    def gave(self, address: Address) -> None:
        """Record that an agent has given a worker."""
        self._errors.pop(address, None)
        self._refusing.discard(address)

    def worked(self, address: Address) -> None:
        """Record that a worker of an agent was able to work: its failures were not in a row."""
        self._rests.pop(address, None)

    def failed(self, address: Address, error: OSError) -> None:
        """Record that an agent could not be reached."""
        self._errors[address] = error
        self._refusing.discard(address)
        self.leave_alone(address)

    def refused(self, address: Address, error: BaseException) -> None:
        """Record that an agent has no worker for this pool."""
        self._errors[address] = error
        self._refusing.add(address)
        self.leave_alone(address, _REFUSED_S)

    def leave_alone(self, address: Address, rest_s: float | None = None) -> None:
        """Dial an agent no more for a while, which grows with each failure in a row."""
        _, times = self._rests.get(address, (0.0, 0))
        if rest_s is None:
            rest_s = _REST_S[min(times, len(_REST_S) - 1)]
        self._rests[address] = (time.monotonic() + rest_s, times + 1)

    def all_refuse(self, addresses: Collection[Address]) -> bool:
        """Return True if each of these agents has refused; begin anew then: an error that is raised refers to this."""
        if not self._refusing.issuperset(addresses):
            return False
        self._refusing.clear()
        self._errors.clear()
        return True

    def reasons(self, addresses: Sequence[Address]) -> str:
        """Return why these agents gave no worker, for a message."""
        there = [each for each in dict.fromkeys(addresses) if each in self._errors]
        return "; ".join(str(self._errors[each]) for each in there[:_SHOWN])
