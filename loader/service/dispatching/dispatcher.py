"""The dispatcher's state and decisions, without a clock, a socket or a file.

An event is an *entry*, a frozen value; `apply` makes the next state from a state and an entry. Functions that decide return
entries; their caller writes the `JOURNALLED` ones to the journal and applies all of them. Time is an argument, in seconds of any
clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tundish.errors import IncompatibleJobError
from tundish.loader.run.state import by_name, plan_differences
from tundish.loader.service.dispatching.entries import (
    JSON,
    OWN,
    AgentHeard,
    AgentLeft,
    AgentsWanted,
    DatasetRegistered,
    Entry,
    JobCreated,
    JobEnded,
    JobForgotten,
    JobPlaced,
    JobUsed,
    SeatsDealt,
    TrainerHeard,
    TrainerLeft,
    from_json,
)

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Address

_T = TypeVar("_T")


@dataclass(frozen=True)
class JobRecord:
    """A job: when it was used last, and the agent that was asked to serve it.

    Attributes
    ----------
    gave : bool
        True if consumers may have received elements from a server that is gone: the next one waits until they have told which.
    versions : tuple of str
        Those of the consumer that asked for it last.
    """

    job: JobCreated
    used_at: float
    asked: str | None = None
    gave: bool = False
    versions: tuple[str, ...] = ()


@dataclass(frozen=True)
class DispatcherState:
    """All that a dispatcher knows."""

    datasets: Mapping[str, DatasetRegistered] = field(default_factory=dict)
    jobs: Mapping[str, JobRecord] = field(default_factory=dict)
    wanted: int | None = None
    agents: Mapping[str, AgentHeard] = field(default_factory=dict)
    trainers: Mapping[str, TrainerHeard] = field(default_factory=dict)


def apply(state: DispatcherState, entry: Entry, now: float = 0.0) -> DispatcherState:
    """Return the state after an entry. Each entry may come twice; `now` is when a job's time begins."""
    match entry:
        case DatasetRegistered():
            return replace(state, datasets={**state.datasets, entry.id: entry})
        case JobCreated():
            return replace(state, jobs={**state.jobs, entry.name: JobRecord(entry, now)})
        case JobForgotten():
            return replace(state, jobs=_without(state.jobs, entry.name))
        case AgentsWanted():
            return replace(state, wanted=entry.count)
        case AgentHeard():
            return _heard(state, entry)
        case AgentLeft():
            return _left(state, entry.name)
        case TrainerHeard():
            return replace(state, trainers={**state.trainers, entry.name: entry})
        case TrainerLeft():
            return replace(state, trainers=_without(state.trainers, entry.name))
        case JobUsed():
            return _with_job(state, entry.name, used_at=entry.at, versions=entry.versions)
        case JobEnded():
            state = _with_job(state, entry.name, asked=None)
            return _with_job(state, entry.name, gave=True) if entry.gave else state
        case JobPlaced():
            return _with_job(state, entry.name, asked=entry.agent)
        case SeatsDealt():
            return _dealt(state, entry.seats)


def _heard(state: DispatcherState, agent: AgentHeard) -> DispatcherState:
    before = state.agents[agent.name].serves if agent.name in state.agents else {}
    state = replace(state, agents={**state.agents, agent.name: agent})
    for name, served in agent.serves.items():
        if served.consumers or before.get(name, served).consumers:  # it has had some until now
            state = _with_job(state, name, used_at=agent.at)
        if served.gave and does_serve(state, agent, name):
            state = _with_job(state, name, gave=True)
    return state


def _left(state: DispatcherState, name: str) -> DispatcherState:
    state = replace(state, agents=_without(state.agents, name))
    for job, record in state.jobs.items():
        if record.asked == name:
            state = _with_job(state, job, asked=None, gave=True)
    return state


def _dealt(state: DispatcherState, seats: Mapping[str, tuple[Address, ...]]) -> DispatcherState:
    trainers = dict(state.trainers)
    for name, held in seats.items():
        if name in trainers:
            trainers[name] = replace(trainers[name], held=held)
    return replace(state, trainers=trainers)


def _with_job(state: DispatcherState, name: str, **fields: Any) -> DispatcherState:
    if name not in state.jobs:
        return state
    return replace(state, jobs={**state.jobs, name: replace(state.jobs[name], **fields)})


def _without(values: Mapping[str, _T], name: str) -> dict[str, _T]:
    return {key: value for key, value in values.items() if key != name}


# -- decisions ------------------------------------------------------------------------------------


def restore(entries: Iterable[Mapping[str, JSON]], now: float) -> DispatcherState:
    """Return the state that a journal tells; its jobs count as used now, and as served before."""
    state = DispatcherState()
    for each in entries:
        state = apply(state, from_json(each), now)
    for name in state.jobs:
        state = _with_job(state, name, gave=True)
    return state


def register(state: DispatcherState, asked: DatasetRegistered) -> list[Entry]:
    """Decide on a dataset: one whose id is known is the same, whatever bytes its payload has."""
    return [] if asked.id in state.datasets else [asked]


def create(
    state: DispatcherState, asked: JobCreated, now: float, versions: tuple[str, ...] = ()
) -> list[Entry]:
    """Decide on a job that a consumer asks for: it is made, or is there already.

    Raises
    ------
    FileNotFoundError
        Its dataset is not registered.
    IncompatibleJobError
        A job of this name has another dataset, or deals its elements otherwise.
    """
    if asked.dataset not in state.datasets:
        raise FileNotFoundError(
            f"no dataset {asked.dataset} is registered here: call register_dataset with this "
            "dispatcher first (it may have been restarted without its work_dir)"
        )
    record, used = state.jobs.get(asked.name), JobUsed(asked.name, now, versions)
    if record is None:
        return [asked, used]
    differences = _job_differences(state, record.job, asked)
    if differences:
        raise IncompatibleJobError(asked.name, tuple(differences))
    return [used]


def _job_differences(state: DispatcherState, job: JobCreated, asked: JobCreated) -> list[str]:
    found = []
    if job.dataset != asked.dataset:
        here, there = (state.datasets[each].plan for each in (asked.dataset, job.dataset))
        if here is not None and there is not None:
            found = plan_differences(here, by_name(here, there), "in the job")
        ids = f"dataset: {asked.dataset} here, {job.dataset} in the job"
        alike = ", with the same operators: the code of functions, what they use, or arrays differ"
        found = found or [f"{ids}{alike if here is not None and here == there else ''}"]
    if job.kind != asked.kind:
        found.append(f"dealing: {asked.kind} here, {job.kind} in the job")
    mine, theirs = asked.parameters or {}, job.parameters or {}
    for key in sorted({*mine, *theirs}):
        if mine.get(key) != theirs.get(key):
            found.append(f"{key}: {mine.get(key)!r} here, {theirs.get(key)!r} in the job")
    return found


def server_of(state: DispatcherState, job: str, leaving: Collection[str] = ()) -> Address | None:
    """Return where a job is served; None if no agent does, or only some that are about to leave."""
    agents = [agent for agent in state.agents.values() if agent.name not in leaving]
    found = [agent for agent in agents if does_serve(state, agent, job)]
    return min(found, key=lambda agent: agent.name).address if found else None


def does_serve(state: DispatcherState, agent: AgentHeard, job: str) -> bool:
    """Return True if an agent serves the job of this name, not one that had the name before."""
    served, record = agent.serves.get(job), state.jobs.get(job)
    return served is not None and (record is None or served.job in (None, record.job))


def place(state: DispatcherState, job: str) -> list[Entry]:
    """Decide which agent is to serve a job: no other one if an agent serves it or was asked to; otherwise the least busy agent.

    An agent of the consumers' versions comes first; the dispatcher's own process is asked when there is no other.
    """
    record = state.jobs[job]
    if record.asked is not None or server_of(state, job) is not None or not state.agents:
        return []
    busy = {name: set(agent.serves) for name, agent in state.agents.items()}
    for other in state.jobs.values():
        if other.asked in busy:
            busy[other.asked].add(other.job.name)

    def rank(name: str) -> tuple[bool, bool, int, str]:
        other = record.versions not in ((), state.agents[name].versions)
        return other, name == OWN, len(busy[name]), name

    return [JobPlaced(job, min(busy, key=rank))]


def superfluous(state: DispatcherState, agent: str) -> list[str]:
    """Return the jobs that an agent is to stop serving: forgotten, or served by another, too."""
    found = state.agents.get(agent)
    if found is None:
        return []
    return [
        job
        for job in found.serves
        if job not in state.jobs or server_of(state, job) != found.address
    ]


def silent(state: DispatcherState, now: float, patience_s: float) -> list[Entry]:
    """Decide which agents are gone: those that were silent for longer than `patience_s`."""
    agents = state.agents.values()
    return [AgentLeft(a.name) for a in agents if a.name != OWN and now - a.at > patience_s]


def unused(state: DispatcherState, now: float, timeout_s: float | None) -> list[JobForgotten]:
    """Decide which jobs are forgotten: those without a consumer for longer than the timeout; None: none ever."""
    if timeout_s is None:
        return []
    return [
        JobForgotten(name)
        for name, job in state.jobs.items()
        if now - job.used_at > timeout_s and not consumers_of(state, name)
    ]


def consumers_of(state: DispatcherState, job: str) -> int:
    """Return how many consumers a job has, as agents reported last."""
    return sum(a.serves[job].consumers for a in state.agents.values() if job in a.serves)


def agents_needed(state: DispatcherState, cores: int) -> int:
    """Return how many agents of so many cores an engine is to keep: as many as are wanted, or as trainers need."""
    if state.wanted is not None:
        return state.wanted
    return -(-sum(trainer.wanted for trainer in state.trainers.values()) // cores)
