"""The interface of engines, which start, stop, watch and find a service's agents.

An engine runs agents: as processes here (`localengine`), as Ray's actors, or not at all (Kubernetes, Slurm, by
hand), where agents come and go by themselves. It knows nothing of datasets or seats. An agent that an engine has
started joins the dispatcher by itself, under the name that the engine gave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class AgentOrder:
    """An agent that is wanted.

    Attributes
    ----------
    dispatcher : str
        The dispatcher's target, which the agent joins.
    cores : int
        The number of seats that it is to offer.
    """

    dispatcher: str
    cores: int = 1


class AgentEngine(Protocol):
    """Runs agents. Each verb returns soon, except `watch`; none raises because an agent is gone."""

    def start(self, order: AgentOrder, count: int = 1) -> list[str]:
        """Begin to start agents, without waiting for them.

        Returns
        -------
        list of str
            Their names, unique for ever; each agent joins the dispatcher under its name. They may be fewer than `count`.
        """

    def stop(self, names: Sequence[str]) -> None:
        """Stop agents, with their workers; names that are gone are no error."""

    def watch(self, timeout_s: float) -> list[str]:
        """Wait until an agent has ended that was started and not stopped, at most `timeout_s`.

        Returns
        -------
        list of str
            The names of those that ended since the last call; each is told once.
        """

    def find(self) -> list[str]:
        """Return the names of the agents that run or start, those of an earlier dispatcher too, if they outlive one."""

    def close(self) -> None:
        """Wake `watch`, now and for good, so that it returns at once; `stop` and `find` still work, and agents go on."""
