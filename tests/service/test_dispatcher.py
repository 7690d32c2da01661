"""The dispatcher's decisions: random schedules against a model, and each rule by itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tundish.errors import IncompatibleJobError
from tundish.loader.service.dispatching import dispatcher as d
from tundish.loader.service.dispatching.dispatcher import DispatcherState, apply
from tundish.loader.service.dispatching.entries import (
    JOURNALLED,
    OWN,
    AgentHeard,
    AgentLeft,
    AgentsWanted,
    DatasetRegistered,
    Entry,
    JobCreated,
    JobForgotten,
    JobPlaced,
    Journalled,
    Served,
    TrainerHeard,
    from_json,
    to_json,
)

PLAN = [["range#0", {"stop": 9}], ["batch#1", {"batch_size": 2}]]


def heard(name: str, at: float = 0.0, cores: int = 2, **fields: Any) -> AgentHeard:
    """An agent that is there; its address tells its name."""
    return AgentHeard(name, (name, 1), cores, at, **fields)


def after(state: DispatcherState, entries: list[Entry], now: float = 0.0) -> DispatcherState:
    """The state when these have happened."""
    for entry in entries:
        state = apply(state, entry, now)
    return state


class Model:
    """The dispatcher in a few lines of dicts: what it knows of datasets and jobs, and who serves which."""

    def __init__(self) -> None:
        self.datasets: dict[str, str] = {}
        self.jobs: dict[str, tuple[str, str]] = {}
        self.used: dict[str, float] = {}
        self.asked: dict[str, str] = {}
        self.agents: dict[str, tuple[float, dict[str, int]]] = {}

    def serves(self, job: str) -> list[str]:
        return sorted(name for name, (_, serves) in self.agents.items() if job in serves)

    def consumers(self, job: str) -> int:
        return sum(serves.get(job, 0) for _, serves in self.agents.values())


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules(seed: int) -> None:
    rng, model, state, now = Random(seed), Model(), DispatcherState(), 0.0
    journal: list[str] = []

    def happen(entries: Sequence[Entry]) -> None:
        nonlocal state
        for entry in entries:
            if isinstance(entry, JOURNALLED):
                journal.append(json.dumps(to_json(entry)))
            state = apply(state, entry, now)

    for _ in range(300):
        now += rng.random()
        names = [f"a{k}" for k in range(4)]
        match rng.choice(
            ["register", "create", "create", "beat", "beat", "leave", "gc", "restart"]
        ):
            case "register":
                id_ = f"d{rng.randrange(3)}"
                happen(d.register(state, DatasetRegistered(id_, f"{rng.random()}", 1, PLAN)))
                model.datasets.setdefault(id_, state.datasets[id_].digest)
            case "create":
                job, id_, kind = f"j{rng.randrange(4)}", f"d{rng.randrange(3)}", rng.choice("ab")
                asked = JobCreated(job, id_, kind)
                known = model.jobs.get(job, (id_, kind))
                if id_ not in model.datasets:
                    with pytest.raises(FileNotFoundError):
                        d.create(state, asked, now)
                elif known != (id_, kind):
                    with pytest.raises(IncompatibleJobError):
                        d.create(state, asked, now)
                else:
                    happen(d.create(state, asked, now))
                    model.jobs[job], model.used[job] = (id_, kind), now
                    placing = d.place(state, job)
                    happen(placing)
                    free = job not in model.asked and not model.serves(job) and model.agents
                    assert bool(placing) == bool(free)
                    for entry in placing:
                        assert isinstance(entry, JobPlaced)
                        assert entry.agent in model.agents
                        model.asked[job] = entry.agent
            case "beat":
                name = rng.choice(names)
                asked_of = [j for j, a in model.asked.items() if a == name]
                serves = {j: rng.randrange(2) for j in asked_of if j in model.jobs}
                happen([heard(name, now, serves={j: Served(n) for j, n in serves.items()})])
                _, before = model.agents.get(name, (0.0, {}))
                model.agents[name] = (now, serves)
                used = {j for j, consumers in serves.items() if consumers or before.get(j)}
                model.used.update(dict.fromkeys(used, now))
            case "leave":
                name = rng.choice(names)
                happen([AgentLeft(name)])
                model.agents.pop(name, None)
                model.asked = {j: a for j, a in model.asked.items() if a != name}
            case "gc":
                happen(d.silent(state, now, 40.0))
                for name in [n for n, (at, _) in model.agents.items() if now - at > 40.0]:
                    del model.agents[name]
                    model.asked = {j: a for j, a in model.asked.items() if a != name}
                happen(d.unused(state, now, 20.0))
                unused = [j for j, at in model.used.items() if now - at > 20.0]
                for job in [j for j in unused if not model.consumers(j)]:
                    del model.jobs[job], model.used[job]
                    model.asked.pop(job, None)
            case "restart" if rng.random() < 0.2:
                state = d.restore(map(json.loads, journal), now)
                model.agents, model.asked = {}, {}
                model.used = dict.fromkeys(model.jobs, now)

        assert {i: x.digest for i, x in state.datasets.items()} == model.datasets
        assert {n: (r.job.dataset, r.job.kind) for n, r in state.jobs.items()} == model.jobs
        assert {n: r.used_at for n, r in state.jobs.items()} == model.used
        assert {n: r.asked for n, r in state.jobs.items() if r.asked is not None} == model.asked
        assert set(state.agents) == set(model.agents)
        for job in model.jobs:
            serving = d.server_of(state, job)
            assert (serving is not None) == bool(model.serves(job))


def test_entries_come_back_from_json() -> None:
    entries: list[Journalled] = [
        DatasetRegistered("id", "digest", 3, PLAN),
        JobCreated("job", "id", "first come", {"num_consumers": 2}),
        JobForgotten("job"),
        AgentsWanted(3),
        AgentsWanted(None),
    ]
    assert [from_json(json.loads(json.dumps(to_json(each)))) for each in entries] == entries


@pytest.mark.parametrize(
    "value",
    [{"entry": "later"}, {}, {"entry": "job", "name": "x", "other": 1}, {"entry": "agents"}],
)
def test_entries_of_a_later_version(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="an entry"):
        from_json(value)


class TestJobs:
    """A job's name, its dataset, who serves it."""

    state = after(
        DispatcherState(),
        [
            DatasetRegistered("one", "x", 1, PLAN),
            DatasetRegistered("two", "y", 1, [PLAN[0], ["batch#1", {"batch_size": 3}]]),
            DatasetRegistered("plain", "z", 1),
            JobCreated("job", "one", "dealt", {"num_consumers": 2}),
        ],
    )

    def test_of_another_dataset(self) -> None:
        with pytest.raises(
            IncompatibleJobError, match=r"batch#1#1.batch_size: 3 here, 2 in the job"
        ):
            d.create(self.state, JobCreated("job", "two", "dealt", {"num_consumers": 2}), 1.0)

    def test_of_a_dataset_that_is_not_described(self) -> None:
        with pytest.raises(IncompatibleJobError, match="dataset: plain here, one in the job"):
            d.create(self.state, JobCreated("job", "plain", "dealt", {"num_consumers": 2}), 1.0)

    def test_dealt_otherwise(self) -> None:
        with pytest.raises(IncompatibleJobError, match=r"num_consumers: 3 here, 2 in the job"):
            d.create(self.state, JobCreated("job", "one", "dealt", {"num_consumers": 3}), 1.0)
        with pytest.raises(IncompatibleJobError, match="dealing: cached here, dealt in the job"):
            d.create(self.state, JobCreated("job", "one", "cached"), 1.0)

    def test_of_a_dataset_that_nobody_registered(self) -> None:
        with pytest.raises(FileNotFoundError, match="call register_dataset"):
            d.create(self.state, JobCreated("other", "three", "dealt"), 1.0)

    def test_goes_to_the_least_busy_agent_and_to_another_when_that_has_left(self) -> None:
        state = after(self.state, [heard("a"), heard("b"), heard(OWN, cores=0)])
        state = after(state, [JobCreated("second", "one", "dealt")])
        first, second = d.place(state, "job"), None
        state = after(state, first)
        second = d.place(state, "second")
        assert [first, second] == [[JobPlaced("job", "a")], [JobPlaced("second", "b")]]
        assert d.place(state, "job") == []

        state = after(state, [AgentLeft("a")])
        assert d.place(state, "job") == [JobPlaced("job", "b")]
        state = after(state, [AgentLeft("b")])
        assert d.place(state, "job") == [JobPlaced("job", OWN)]

    def test_that_failed_to_start_is_given_to_someone_again(self) -> None:
        state = after(self.state, [heard("a"), JobPlaced("job", "a"), JobPlaced("job", None)])
        assert d.place(state, "job") == [JobPlaced("job", "a")]

    def test_that_two_agents_serve_is_stopped_at_one(self) -> None:
        """As after a restart: the first agent says itself anew when the job was given to a second."""
        state = after(
            self.state,
            [
                heard("a", serves={"job": Served(), "forgotten": Served()}),
                heard("b", serves={"job": Served()}),
            ],
        )
        assert d.server_of(state, "job") == ("a", 1)
        assert d.superfluous(state, "a") == ["forgotten"]
        assert d.superfluous(state, "b") == ["job"]
        assert d.superfluous(state, "c") == []

    def test_is_forgotten_when_it_has_no_consumers(self) -> None:
        state = after(self.state, [], 0.0)
        assert d.unused(state, 10.0, 10.0) == []
        assert d.unused(state, 10.1, 10.0) == [JobForgotten("job")]
        assert d.unused(state, 1e9, None) == []
        used = apply(state, heard("a", 5.0, serves={"job": Served(1)}))
        assert d.unused(used, 15.0, 10.0) == []
        assert d.unused(used, 1e9, 10.0) == [], "it has a consumer, however long a heartbeat waits"
        left = apply(used, heard("a", 12.0, serves={"job": Served(0)}))
        assert d.unused(left, 22.0, 10.0) == [], "it had one until now"
        assert d.unused(left, 22.1, 10.0) == [JobForgotten("job")]
        idle = apply(state, heard("a", 5.0, serves={"job": Served(0)}))
        assert d.unused(idle, 15.0, 10.0) == [JobForgotten("job")]


def test_who_is_silent_is_gone() -> None:
    state = after(
        DispatcherState(),
        [heard("a", 1.0), heard(OWN, -1e9, cores=0), heard("b", 5.0)],
    )
    assert d.silent(state, 10.0, 8.0) == [AgentLeft("a")]


def test_agents_that_are_needed() -> None:
    state = after(DispatcherState(), [TrainerHeard(f"t{k}", 5) for k in range(3)])
    assert d.agents_needed(state, 4) == 4
    assert d.agents_needed(apply(state, AgentsWanted(2)), 4) == 2
    assert d.agents_needed(replace(state, trainers={}), 4) == 0
