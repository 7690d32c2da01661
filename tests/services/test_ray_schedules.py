"""Random schedules on a Ray cluster: actors, raylets, the dispatcher and its node are killed while pipelines run.

A watch on progress ends a run in which nothing comes, and says where it waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.service.fleets import remotely
from tests.service.watch import Watch
from tests.services.raycluster import RayCluster
from tests.services.rayservice import service

from tundish import Dataset
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.dispatching.places import DispatcherPlaces
from tundish.loader.service.ray.service import RayFleet
from tundish.testing import collect
from tundish.testing.functions import Draw, Keep, Pause, Tag

pytestmark = [
    pytest.mark.untidy,
    pytest.mark.slow,
    # A node of Ray takes that long to start on a busy machine; the watch ends what does not go on.
    pytest.mark.filterwarnings("ignore:no agent has given this iterator a worker:UserWarning"),
]

NAME = "schedules"
NODES = 3
STUCK_S = 60

PLANS: dict[str, Callable[[], Dataset]] = {
    "drawn": lambda: (
        Dataset.range(400).shuffle(None, seed=1).map(Pause(2)).map(Draw(1), seed=2).batch(16)
    ),
    "dropped": lambda: (
        Dataset.range(400).map(Pause(2)).map(Draw(1), seed=2).filter(Keep(2)).batch(16)
    ),
    "behind": lambda: Dataset.range(400).map(Pause(2)).shuffle(50, seed=3).batch(8).map(Tag(1)),
    "unbatched": lambda: (
        Dataset.range(300).map(Pause(2)).batch(6).unbatch().map(Draw(1), seed=5).batch(10)
    ),
}


@pytest.fixture(scope="module")
def fleet(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayFleet]:
    """Yield a service whose dispatcher is on one of the nodes that are killed, too."""
    dispatcher = {"resources": {"far": 0.01}}
    folder = tmp_path_factory.mktemp("schedules")
    with service(cluster, folder, NAME, 2, dispatcher=dispatcher) as made:
        yield made


@dataclass
class Schedule:
    """One run of a pipeline, moved and killed at random."""

    seed: int
    cluster: RayCluster
    target: str
    did: list[str] = field(default_factory=list)

    def run(self) -> None:
        rng = random.Random(self.seed)
        plan = PLANS[rng.choice(sorted(PLANS))]
        with plan().iterator(workers=0) as it:
            expected = collect(it)
        found: list[Any] = []
        state: str | None = None
        with (
            DispatcherClient(self.target, timeout_s=2.0) as client,
            Watch(lambda: self._told(client)) as watch,
        ):
            self._watch, ended = watch, False
            while not ended:
                workers, local = rng.choice([1, 2, 4]), rng.choice([0, 0, 1])
                with contextlib.ExitStack() as stack:
                    if rng.random() < 0.85:
                        self._now(f"{workers} seats, {local} at home, at element {len(found)}")
                        places = stack.enter_context(
                            contextlib.closing(self._places(client, workers))
                        )
                        stack.enter_context(remotely(places, min(local, workers)))
                    else:
                        self._now(f"{workers} workers at home")
                    it = stack.enter_context(plan().iterator(workers=workers))
                    if state is not None:
                        it.load_state_dict(json.loads(state))
                    self._it = it
                    for _ in range(rng.randrange(1, 4)):
                        before = len(found)
                        limit = rng.randrange(2, 9)
                        for _ in range(limit):
                            part = collect(it, limit=1)
                            found += part
                            watch.now(f"{self.did[-1]}, element {len(found)}")
                            if not part:
                                break
                        ended = len(found) < before + limit
                        if ended:
                            break
                        self._harm(rng, client)
                    state = json.dumps(it.state_dict())
            self._now("the nodes that are missing")
            self._whole()
        assert found == expected, self.did

    def _now(self, doing: str) -> None:
        self.did.append(doing)
        self._watch.now(doing)

    def _places(self, client: DispatcherClient, wanted: int) -> DispatcherPlaces:
        return client.places(wanted)

    def _harm(self, rng: random.Random, client: DispatcherClient) -> None:
        what = rng.choice(
            ["agent", "agent", "raylet", "dispatcher", "its node", "nothing", "nothing"]
        )
        self._now(what)
        if what == "agent":
            with contextlib.suppress(OSError, RuntimeError):  # it may be gone, or of a node that is
                names = sorted(agent["name"] for agent in client.status()["agents"])
                if names:
                    pid, _ = self.cluster("place", actor=rng.choice(names), timeout_s=10)
                    os.kill(pid, signal.SIGKILL)
        elif what == "raylet":
            if self.cluster("count") > 1:
                self.cluster("remove_node", at=rng.randrange(self.cluster("count")))
            else:
                self.cluster("add_node")
        elif what == "dispatcher":
            with contextlib.suppress(RuntimeError, ProcessLookupError):
                os.kill(self.cluster("place", actor=NAME, timeout_s=10)[0], signal.SIGKILL)
        elif what == "its node":
            with contextlib.suppress(RuntimeError):
                self.cluster("remove_node_of", actor=NAME)
            self._whole()

    def _whole(self) -> None:
        while self.cluster("count") < NODES - 1:
            self.cluster("add_node")

    def _told(self, client: DispatcherClient) -> str:
        told = {"did": self.did, "stats": str(self._it.stats)}
        with contextlib.suppress(OSError):
            told["dispatcher"] = json.dumps(client.status())
        return "\n".join(f"{name}: {value}" for name, value in told.items())


def run(seed: int, cluster: RayCluster, fleet: RayFleet) -> None:
    began = time.monotonic()
    schedule = Schedule(seed, cluster, fleet.target)
    schedule.run()
    print(f"schedule {seed}: {time.monotonic() - began:.1f} s, {schedule.did}")  # noqa: T201 - with -s
    assert "ray" not in sys.modules


@pytest.mark.parametrize("seed", range(2))
def test_a_schedule(cluster: RayCluster, fleet: RayFleet, seed: int) -> None:
    run(seed, cluster, fleet)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2, 100))
def test_another_schedule(cluster: RayCluster, fleet: RayFleet, seed: int) -> None:
    run(seed, cluster, fleet)
