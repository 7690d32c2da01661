"""The four verbs of an engine, on a Ray cluster."""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.services.raycluster import RayCluster
from tests.services.rayservice import runs

BOUND_S = 20.0

pytestmark = [pytest.mark.untidy, pytest.mark.slow]


def watched(cluster: RayCluster, engine: str, count: int) -> set[str]:
    """Watch until so many agents have ended."""
    found: set[str] = set()
    for _ in range(60):
        found |= set(cluster("watch", name=engine, timeout_s=1.0))
        if len(found) >= count:
            return found
    raise AssertionError(f"{found} ended, and {count} were to")


def test_agents_are_started_found_watched_and_stopped(cluster: RayCluster) -> None:
    cluster("engine", name="a")
    assert cluster("watch", name="a", timeout_s=0.01) == []
    agents = cluster("start", name="a", count=3)
    places = [cluster("place", actor=agent) for agent in agents]
    pids, nodes = [pid for pid, _ in places], {node for _, node in places}
    os.kill(pids[0], signal.SIGKILL)

    assert len(set(agents)) == len(set(pids)) == 3
    assert len(nodes) > 1  # they are spread
    assert watched(cluster, "a", 1) == {agents[0]}
    assert cluster("find", name="a") == sorted(agents[1:])
    assert cluster("watch", name="a", timeout_s=0.01) == []  # each is told once

    cluster("engine", name="b")  # as a dispatcher that was restarted
    assert cluster("find", name="b") == sorted(agents[1:])
    cluster("stop", name="b", agents=[agents[1], agents[0]])
    assert cluster("watch", name="b", timeout_s=0.01) == []  # it was stopped, so nobody is told
    assert watched(cluster, "a", 1) == {agents[1]}
    os.kill(pids[2], signal.SIGKILL)
    assert watched(cluster, "b", 1) == {agents[2]}
    assert cluster("find", name="b") == []
    until = time.monotonic() + BOUND_S
    while any(map(runs, pids)):  # Ray tells of an actor's end before its process has ended
        assert time.monotonic() < until
        time.sleep(0.01)


def test_agents_of_a_node_that_is_gone(cluster: RayCluster) -> None:
    cluster("engine", name="c")
    agents = cluster("start", name="c", count=6)
    where: dict[str, str] = {agent: cluster("place", actor=agent)[1] for agent in agents}
    left = cluster("remove_node", at=0)

    assert left == 1
    gone = watched(cluster, "c", 1)
    (node,) = {where[agent] for agent in gone}
    there = {agent for agent in agents if where[agent] == node}
    if gone < there:
        gone |= watched(cluster, "c", len(there - gone))
    assert gone == there != set(agents)
    assert cluster("find", name="c") == sorted(set(agents) - gone)
    cluster("add_node")
    cluster("stop", name="c", agents=cluster("find", name="c"))
