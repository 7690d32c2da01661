"""The events of a dispatcher: datasets, jobs, agents, trainers and seats that come and go, as frozen values.

Datasets, jobs and the wanted number of agents are journalled. Agents, trainers and seats are not: agents and trainers report again
to a restarted dispatcher.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Address

JSON = Any

OWN = ""
"""The name of the dispatcher's own process where it serves jobs: an agent without seats."""


@dataclass(frozen=True)
class DatasetRegistered:
    """A dataset: its id is the plan's fingerprint, `digest` and `nbytes` are its payload's, `plan` describes it."""

    id: str
    digest: str
    nbytes: int
    plan: JSON = None


@dataclass(frozen=True)
class JobCreated:
    """A job: a name, the dataset that it iterates, how it deals elements, and the parameters of that."""

    name: str
    dataset: str
    kind: str
    parameters: JSON = None


@dataclass(frozen=True)
class JobForgotten:
    """A job that has had no consumers for long enough."""

    name: str


@dataclass(frozen=True)
class AgentsWanted:
    """The number of agents that an engine is to keep; None leaves it to the trainers' needs."""

    count: int | None


@dataclass(frozen=True)
class Served:
    """A job that an agent serves: to how many consumers, and what it was told to serve under the job's name.

    A name may be forgotten and given to another job while an agent still serves the first. `job` is None if the agent does not
    say which it serves; `gave` is True if consumers may have received elements.
    """

    consumers: int = 0
    job: JobCreated | None = None
    gave: bool = True


@dataclass(frozen=True)
class AgentHeard:
    """An agent that joins, or reports that it is alive; its name never changes."""

    name: str
    address: Address
    cores: int
    at: float
    host: str = ""
    versions: tuple[str, ...] = ()
    told: str = ""
    """Its address as it was configured, perhaps with a name; `address` has a number, which needs no look-up."""
    serves: Mapping[str, Served] = field(default_factory=dict)


@dataclass(frozen=True)
class AgentLeft:
    """An agent that said so, or whose connection has ended, or that was silent for too long."""

    name: str


@dataclass(frozen=True)
class TrainerHeard:
    """A trainer that wants seats: how many, which it has (addresses, one a seat), and where it is."""

    name: str
    wanted: int
    held: tuple[Address, ...] = ()
    host: str = ""
    versions: tuple[str, ...] = ()
    near: bool = False
    """True if it takes seats of its own host alone."""


@dataclass(frozen=True)
class TrainerLeft:
    """A trainer that is gone: its seats are free."""

    name: str


@dataclass(frozen=True)
class JobUsed:
    """A job that a consumer asked for."""

    name: str
    at: float
    versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobEnded:
    """A job whose process has ended by itself; `gave` is True if consumers may have received elements of it."""

    name: str
    gave: bool


@dataclass(frozen=True)
class JobPlaced:
    """An agent that was asked to serve a job; None if it has failed, so that no agent is asked now."""

    name: str
    agent: str | None


@dataclass(frozen=True)
class SeatsDealt:
    """The seats that each trainer was given: addresses, one a seat."""

    seats: Mapping[str, tuple[Address, ...]]


JOURNALLED = (DatasetRegistered, JobCreated, JobForgotten, AgentsWanted)
Journalled = DatasetRegistered | JobCreated | JobForgotten | AgentsWanted
Entry = (
    Journalled
    | AgentHeard
    | AgentLeft
    | TrainerHeard
    | TrainerLeft
    | JobUsed
    | JobEnded
    | JobPlaced
    | SeatsDealt
)

_KINDS: dict[str, type[Journalled]] = {
    "dataset": DatasetRegistered,
    "job": JobCreated,
    "forgotten": JobForgotten,
    "agents": AgentsWanted,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_json(entry: Journalled) -> dict[str, JSON]:
    """Return a journalled entry as JSON."""
    return {"entry": _NAMES[type(entry)], **dataclasses.asdict(entry)}


def from_json(value: Mapping[str, JSON]) -> Journalled:
    """Return the entry that `to_json` wrote.

    Raises
    ------
    ValueError
        No version up to this one wrote it.
    """
    fields = dict(value)
    kind = _KINDS.get(fields.pop("entry", ""))
    if kind is None:
        raise ValueError(f"an entry of the kind {value.get('entry')!r}, which this version lacks")
    try:
        return kind(**fields)
    except TypeError as error:
        raise ValueError(f"an entry with other fields: {error}") from None
