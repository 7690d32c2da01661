"""How seats are dealt to trainers: random fleets against the rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from tundish.loader.service.dispatching.dealing import deal, shares
from tundish.loader.service.dispatching.dispatcher import DispatcherState, apply
from tundish.loader.service.dispatching.entries import (
    AgentHeard,
    AgentLeft,
    SeatsDealt,
    TrainerHeard,
)


def fleet(rng: Random, versions: tuple[str, ...] = ("a",)) -> DispatcherState:
    """Agents and trainers of any numbers."""
    state = DispatcherState()
    for k in range(rng.randrange(8)):
        state = apply(state, agent(rng, k, versions))
    for k in range(rng.randrange(6)):
        state = apply(state, trainer(rng, k, state, versions))
    return state


def agent(rng: Random, k: int, versions: tuple[str, ...]) -> AgentHeard:
    host, version = f"h{rng.randrange(3)}", (rng.choice(versions),)
    return AgentHeard(f"a{k}", (f"a{k}", 1), rng.randrange(6), 0.0, host, version)


def trainer(rng: Random, k: int, state: DispatcherState, versions: tuple[str, ...]) -> TrainerHeard:
    addresses = [(f"a{n}", 1) for n in range(9)]
    held = tuple(rng.choice(addresses) for _ in range(rng.randrange(6)))
    host, version = f"h{rng.randrange(3)}", (rng.choice(versions),)
    return TrainerHeard(f"t{k}", rng.randrange(9), held, host, version, rng.random() < 0.2)


@pytest.mark.parametrize("seed", range(80))
def test_each_gets_its_part(seed: int) -> None:
    rng = Random(seed)
    state = fleet(rng, ("a", "b"))
    found = deal(state)
    agents = {a.address: a for a in state.agents.values()}
    assert set(found) == set(state.trainers)

    load: Counter[tuple[str, int]] = Counter()
    for name, seats in found.items():
        who = state.trainers[name]
        mine = [a for a in agents.values() if a.versions == who.versions and a.cores]
        if who.near:
            mine = [a for a in mine if a.host == who.host]
        assert {agents[seat].versions for seat in seats} <= {who.versions}
        assert {agents[seat].host for seat in seats} <= {a.host for a in mine}
        assert len(seats) <= who.wanted
        assert seats or not (mine and who.wanted), "the least is one"
        load.update(seats)
    crowded = [address for address, count in load.items() if count > agents[address].cores]
    if not any(who.near for who in state.trainers.values()):
        for address in crowded:
            version = agents[address].versions
            cores = sum(a.cores for a in agents.values() if a.versions == version)
            asking = [t for t in state.trainers.values() if t.wanted and t.versions == version]
            assert len(asking) > cores


@pytest.mark.parametrize("seed", range(80))
def test_no_seat_is_idle_while_it_is_wanted_and_none_moves_without_need(seed: int) -> None:
    rng = Random(seed)
    state = fleet(rng)
    state = replace(state, trainers={n: replace(t, near=False) for n, t in state.trainers.items()})
    found = deal(state)
    cores = sum(a.cores for a in state.agents.values())
    asking = [t for t in state.trainers.values() if t.wanted]
    wanted = sum(t.wanted for t in asking)
    dealt = sum(map(len, found.values()))
    assert dealt == (min(wanted, max(cores, len(asking))) if cores else 0)

    state = apply(state, SeatsDealt(found))
    assert deal(state) == found, "the same, asked again"

    more = deal(apply(state, AgentHeard("new", ("new", 1), 3, 0.0, "h0", ("a",))))
    if len(asking) <= cores:
        for name, seats in found.items():
            assert not Counter(seats) - Counter(more[name]), "a new agent takes no seat away"
    if state.agents:
        gone = rng.choice(sorted(state.agents))
        lost = state.agents[gone].address
        less = deal(apply(state, AgentLeft(gone)))
        assert all(lost not in seats for seats in less.values())


def test_in_proportion_to_need() -> None:
    assert shares({"a": 3, "b": 4}, 9) == {"a": 3, "b": 4}
    assert shares({"a": 100, "b": 100}, 10) == {"a": 5, "b": 5}
    assert shares({"a": 300, "b": 100, "c": 1}, 41) == {"a": 30, "b": 10, "c": 1}
    assert shares({"a": 300, "b": 100, "c": 0}, 3) == {"a": 2, "b": 1, "c": 0}
    assert shares({"a": 5, "b": 5, "c": 5}, 2) == {"a": 1, "b": 1, "c": 1}
    assert shares({"a": 5}, 0) == {"a": 0}


@pytest.mark.parametrize("seed", range(80))
def test_parts_by_need(seed: int) -> None:
    rng = Random(seed)
    wanted = {f"t{k}": rng.randrange(50) for k in range(rng.randrange(1, 9))}
    seats = rng.randrange(120)
    found = shares(wanted, seats)
    asking = {name: count for name, count in wanted.items() if count}
    if sum(wanted.values()) <= seats:
        assert found == wanted
    elif len(asking) <= seats:
        assert sum(found.values()) == seats
        total = sum(asking.values()) - len(asking)
        for name, count in asking.items():
            part = 1 + (seats - len(asking)) * (count - 1) / total
            assert abs(found[name] - part) < 1
    else:
        assert all(found[name] == (seats > 0) for name in asking)


def test_its_own_host_first_then_where_most_is_to_spare() -> None:
    state = DispatcherState()
    for name, cores, host in (("far", 9, "h1"), ("own", 2, "h0"), ("other", 4, "h2")):
        state = apply(state, AgentHeard(name, (name, 1), cores, 0.0, host))
    state = apply(state, TrainerHeard("t", 6, host="h0"))
    assert Counter(deal(state)["t"]) == {("own", 1): 2, ("far", 1): 4}
    near = apply(state, TrainerHeard("t", 6, host="h0", near=True))
    assert Counter(deal(near)["t"]) == {("own", 1): 2}
    nowhere = apply(state, TrainerHeard("t", 6, host="h9", near=True))
    assert deal(nowhere)["t"] == ()
