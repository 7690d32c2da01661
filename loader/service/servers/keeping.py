"""Decisions about agents that an engine keeps, without a clock or an engine: how many to start, which to stop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

IDLE_S = 60.0
"""The time for which agents are kept that trainers no longer need."""

ABSENT_S = (30.0, 600.0)
"""Seconds after which an agent that runs, and that the dispatcher does not know, is replaced: at first, and at most.

A cluster may have lost a start that it was asked for, or may wait for a machine: then the next agent waits for it, too.
"""

_REST_S = (0.2, 30.0)
"""Before the next start, when an agent has ended that never joined; and at most, after many."""


@dataclass
class AgentRoster:
    """The agents that an engine runs, and how many it is to run.

    Attributes
    ----------
    started : dict of str to float
        When each agent was started.
    """

    started: dict[str, float] = field(default_factory=dict)
    _joined: set[str] = field(default_factory=set)
    _absent_since: dict[str, float] = field(default_factory=dict)
    _absences: int = 0  # in a row, while no agent has joined
    _failed: int = 0
    _not_before: float = 0.0
    _needed: list[tuple[float, int]] = field(default_factory=list)

    def begun(self, names: Sequence[str], now: float) -> None:
        """Take note of agents that were started."""
        self.started.update(dict.fromkeys(names, now))

    def found(self, names: Sequence[str], now: float) -> None:
        """Take note of agents that were there before: they were needed, and trainers may not have said so yet."""
        self.begun(names, now)
        self._needed.append((now, len(names)))

    def joined(self, names: Collection[str]) -> None:
        """Take note of the agents that the dispatcher knows."""
        joined = {name for name in names if name in self.started}
        if joined - self._joined:
            self._absences = 0
        self._joined |= joined
        if self._joined:
            self._failed = 0

    def absent(self, there: Collection[str], now: float) -> list[str]:
        """Return the agents that the dispatcher has not known in any answer for long: twice as long each time.

        Parameters
        ----------
        there : collection of str
            The agents that it knows now.
        now : float
            The time.
        """
        gone = [name for name in self.started if name not in there]
        self._absent_since = {name: self._absent_since.get(name, now) for name in gone}
        patience_s = _doubled(ABSENT_S, self._absences)
        found = [name for name, since in self._absent_since.items() if now - since >= patience_s]
        self._absences += bool(found)
        return found

    def unheard(self) -> None:
        """Take note that the dispatcher does not answer: nobody is absent."""
        self._absent_since.clear()

    def ended(self, names: Collection[str], now: float) -> None:
        """Record agents that ended by themselves; those that never joined delay the next ones."""
        for name in names:
            joined = name in self._joined
            self._joined.discard(name)
            if self.started.pop(name, None) is not None and not joined:
                self._not_before = now + _doubled(_REST_S, self._failed)
                self._failed += 1

    def lacking(self, needed: int, now: float) -> int:
        """Return how many agents to start."""
        return max(0, needed - len(self.started)) if now >= self._not_before else 0

    def rest_s(self, now: float, most_s: float) -> float:
        """Return how long nothing is to be started, at most `most_s` if nothing is delayed."""
        return min(most_s, self._not_before - now) if self._not_before > now else most_s

    def spare(
        self, needed: int, busy: Collection[str], now: float, *, idle_s: float = IDLE_S
    ) -> list[str]:
        """Return the agents to stop: those beyond what was needed within `idle_s`, idle and new ones first."""
        self._needed = [each for each in self._needed if now - each[0] < idle_s]
        self._needed.append((now, needed))
        most = max(count for _, count in self._needed)
        order = sorted(self.started, key=lambda name: (name in busy, -self.started[name], name))
        stop = order[: max(0, len(self.started) - most)]
        for name in stop:
            del self.started[name]
            self._joined.discard(name)
        return stop


def _doubled(bounds: tuple[float, float], times: int) -> float:
    """Return the first of two bounds, doubled so many times, and at most the second."""
    least, most = bounds
    return min(least * 2.0 ** min(times, 16), most)
