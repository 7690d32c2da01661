"""Dealing of seats: agents offer them, trainers want them, and each gets its part.

If there are enough seats, each trainer gets as many as it wants. If not, each trainer gets one, and the rest is divided in
proportion to the wishes beyond one; trainers may then share a seat. A trainer keeps its seats as long as they exist and are within
its part. New seats are first those of its own host, then those of the agents with the most free seats.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tundish.loader.service.dispatching.entries import AgentHeard

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Address
    from tundish.loader.service.dispatching.dispatcher import DispatcherState
    from tundish.loader.service.dispatching.entries import TrainerHeard


def shares(wanted: Mapping[str, int], seats: int) -> dict[str, int]:
    """Divide a number of seats among trainers.

    Parameters
    ----------
    wanted : mapping of str to int
        The number of seats that each trainer wants.
    seats : int
        The number of seats to divide.

    Returns
    -------
    dict of str to int
        The number of seats of each trainer: at most what it wants, and at least one if possible. All seats are used
        if the trainers want at least that many.
    """
    if sum(wanted.values()) <= seats:
        return dict(wanted)
    asking = sorted(name for name, count in wanted.items() if count > 0)
    found = dict.fromkeys(wanted, 0)
    if seats <= 0:
        return found
    found.update(dict.fromkeys(asking, 1))
    rest = seats - len(asking)
    more = {name: wanted[name] - 1 for name in asking}
    total = sum(more.values())
    if rest <= 0 or not total:
        return found
    for name in asking:
        found[name] += more[name] * rest // total
    left = seats - sum(found.values())
    by_remainder = sorted(asking, key=lambda name: (-(more[name] * rest % total), name))
    for name in by_remainder[:left]:
        found[name] += 1
    return found


def deal(
    state: DispatcherState, *, trusting: bool = False, gone: Collection[Address] = ()
) -> dict[str, tuple[Address, ...]]:
    """Return the seats of each trainer: the address of an agent for each seat.

    Trainers get seats only from agents with the same versions. Trainers that accept only seats on their own host are
    dealt theirs first, from that host. `trusting` is for a dispatcher that has just started: an agent counts as present
    if trainers report seats on it, because it may not have reported itself yet. This does not apply to agents that are
    `gone`.
    """
    if trusting:
        state = replace(state, agents={**_said_by_trainers(state, gone), **state.agents})
    found: dict[str, tuple[Address, ...]] = dict.fromkeys(state.trainers, ())
    load: Counter[Address] = Counter()
    near = [t for t in state.trainers.values() if t.near]
    far = [t for t in state.trainers.values() if not t.near]
    for versions, host in sorted({(t.versions, t.host) for t in near}):
        agents = [a for a in state.agents.values() if a.versions == versions and a.host == host]
        group = [t for t in near if (t.versions, t.host) == (versions, host)]
        found.update(_deal_group(agents, group, load))
    for versions in sorted({t.versions for t in far}):
        agents = [a for a in state.agents.values() if a.versions == versions]
        found.update(_deal_group(agents, [t for t in far if t.versions == versions], load))
    return found


def _said_by_trainers(state: DispatcherState, gone: Collection[Address]) -> dict[str, AgentHeard]:
    """Return the agents that only trainers know of, with as many cores as trainers have seats on them."""
    known = {*gone, *(agent.address for agent in state.agents.values())}
    cores: Counter[Address] = Counter()
    by: dict[Address, TrainerHeard] = {}
    for trainer in state.trainers.values():
        for address in trainer.held:
            if address not in known:
                cores[address] += 1
                by[address] = trainer
    return {
        f"{address}": AgentHeard(
            f"{address}", address, count, 0.0, by[address].host, by[address].versions
        )
        for address, count in cores.items()
    }


def _deal_group(
    agents: Sequence[AgentHeard], trainers: Iterable[TrainerHeard], load: Counter[Address]
) -> dict[str, tuple[Address, ...]]:
    """Deal seats of agents that all these trainers may use; `load` counts the seats dealt per agent."""
    cores = {agent.address: agent.cores for agent in agents if agent.cores}
    hosts = {agent.address: agent.host for agent in agents}
    by_name = {trainer.name: trainer for trainer in trainers}
    free = sum(max(0, count - load[address]) for address, count in cores.items())
    parts = shares({name: t.wanted for name, t in by_name.items()}, max(free, 1) if cores else 0)
    kept = {}
    for name in sorted(by_name):
        kept[name] = _keep(by_name[name].held, parts[name], cores, load)
    heap = [(load[address] - count, address) for address, count in cores.items()]
    heapq.heapify(heap)
    for name in sorted(by_name):
        missing = parts[name] - len(kept[name])
        host = by_name[name].host
        own = sorted(address for address in cores if host and hosts[address] == host)
        for address in own:
            new = min(missing, max(0, cores[address] - load[address]))
            kept[name] += [address] * new
            load[address] += new
            missing -= new
        for _ in range(missing):
            address = _most_spare(heap, cores, load)
            kept[name].append(address)
            load[address] += 1
    return {name: tuple(seats) for name, seats in kept.items()}


def _keep(
    held: Iterable[Address], part: int, cores: Mapping[Address, int], load: Counter[Address]
) -> list[Address]:
    kept: list[Address] = []
    for address in held:
        if len(kept) < part and load[address] < cores.get(address, 0):
            kept.append(address)
            load[address] += 1
    return kept


def _most_spare(
    heap: list[tuple[int, Address]], cores: Mapping[Address, int], load: Counter[Address]
) -> Address:
    """Return the agent with most seats to spare; entries of the heap that are old are renewed when they come up."""
    while True:
        spare, address = heap[0]
        now = load[address] - cores[address]
        if spare == now:
            heapq.heapreplace(heap, (now + 1, address))
            return address
        heapq.heapreplace(heap, (now, address))
