"""The service on a Ray cluster, and what dies there: this process has no Ray, as a trainer has none."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.services.raycluster import RayCluster
from tests.services.rayservice import runs, service

import tundish as td
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.ray.service import RayFleet
from tundish.testing import collect
from tundish.testing.functions import Draw

pytestmark = [pytest.mark.untidy, pytest.mark.slow]

NAME = "fleet"


@pytest.fixture(scope="module")
def fleet(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayFleet]:
    """Yield three agents with two seats, away from the head, and their dispatcher."""
    with service(cluster, tmp_path_factory.mktemp("service"), NAME, 3) as made:
        yield made


def until(condition: Callable[[], Any], what: str, limit_s: float = 60.0) -> float:
    """Wait for something, and return how long that took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise AssertionError(f"not in {limit_s} s: {what}")
        time.sleep(0.01)
    return time.monotonic() - began


def names(client: DispatcherClient) -> set[str]:
    """Return the names of the agents that the dispatcher knows; none while it is not there."""
    try:
        return {agent["name"] for agent in client.status()["agents"]}
    except OSError:
        return set()


@pytest.fixture
def client(fleet: RayFleet) -> Iterator[DispatcherClient]:
    with DispatcherClient(fleet.target, timeout_s=1.0) as made:
        until(lambda: len(names(made)) == 3, "three agents")
        yield made


def test_a_trainer_has_no_ray_and_no_thread(fleet: RayFleet, client: DispatcherClient) -> None:
    def pipeline() -> td.Dataset:
        return td.Dataset.range(200).shuffle(None, seed=1).map(Draw(1), seed=2).batch(8)

    before = set(threading.enumerate())
    far = pipeline().apply(td.service.distribute("distributed_epoch", fleet.target))
    with far.iterator(workers=3) as it:
        found = collect(it)
        assert set(threading.enumerate()) == before
        assert it.stats.workers == 3

    assert found == collect(pipeline().iterator(workers=0))
    assert not {"ray", "grpc"} & sys.modules.keys()


def test_an_agent_that_dies_is_replaced(cluster: RayCluster, client: DispatcherClient) -> None:
    before = names(client)
    pid, _ = cluster("place", actor=min(before))
    os.kill(pid, signal.SIGKILL)
    noticed = until(lambda: min(before) not in names(client), "its end is noticed")
    replaced = until(lambda: len(names(client)) == 3, "another one")

    print(f"agent killed: noticed {noticed:.2f} s, replaced {noticed + replaced:.2f} s")  # noqa: T201 - with -s
    assert len(before & names(client)) == 2
    assert "ray" not in sys.modules


def test_a_dispatcher_that_dies_goes_on(cluster: RayCluster, client: DispatcherClient) -> None:
    client.register("a dataset", b"its payload")
    before = names(client)
    pid, _ = cluster("place", actor=NAME)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not runs(pid), "its end")
    back = until(lambda: names(client) == before, "the same agents")

    print(f"dispatcher killed: back with its agents {back:.2f} s")  # noqa: T201
    assert client.dataset("a dataset") == b"its payload"
    assert cluster("place", actor=NAME)[0] != pid


def test_a_raylet_that_dies(cluster: RayCluster, client: DispatcherClient) -> None:
    before = names(client)
    cluster("remove_node", at=0)
    noticed = until(lambda: before - names(client), "its end is noticed")
    cluster("add_node")
    whole = until(lambda: len(names(client)) == 3, "three again")

    print(f"raylet killed: noticed {noticed:.2f} s, whole {whole:.2f} s after it was replaced")  # noqa: T201


def test_scaling(fleet: RayFleet, client: DispatcherClient) -> None:
    fleet.scale(5)
    until(lambda: len(names(client)) == 5, "five")
    fleet.scale(3)
    until(lambda: len(names(client)) == 3, "three")
