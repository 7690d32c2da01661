"""Random schedules: workers, agents and the dispatcher are killed and stopped, pools are resized, pipelines moved.

Each run's elements are those of no workers, and each ends: a watch on progress says where one waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.service.computed import images
from tests.service.fleets import remotely
from tests.service.jobprocesses import Processes
from tests.service.listeners import free_port
from tests.service.watch import Watch

from tundish import Dataset, Options, set_seed
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.testing import collect
from tundish.testing.functions import Draw, Keep, Pause, Tag
from tundish.testing.killing import killer
from tundish.testing.registry import CASES

AGENTS, CORES = 2, 3
FEW, MANY = 3, 500
STOPPED_S = (0.05, 0.2, 1.0)
LATER_S = (0.0, 0.0, 0.002, 0.02)
FAULTS = {
    "kill a worker": 6,
    "kill an agent": 2,
    "kill the dispatcher": 2,
    "stop a worker": 3,
    "stop an agent": 1,
    "stop the dispatcher": 1,
    "resize": 3,
    "nothing": 2,
}


def paused(count: int, ms: float = 1) -> Dataset:
    return Dataset.range(count).map(Pause(ms))


LONG: dict[str, Callable[[], Dataset]] = {
    "drawn": lambda: paused(400).shuffle(None, seed=1).map(Draw(1), seed=2).batch(16),
    "dropped": lambda: paused(400).map(Draw(1), seed=2).filter(Keep(2)).batch(16),
    "behind": lambda: paused(400).shuffle(50, seed=3).batch(8).map(Tag(1)),
    "unbatched": lambda: paused(300).batch(6).unbatch().map(Draw(1), seed=5).batch(10),
    "large": lambda: paused(200).map(images).batch(8),
}


class Fleet:
    """A dispatcher and agents as processes, each of which is started anew when it was killed."""

    def __init__(self, program: Processes, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.port = free_port()
        self.target = f"tcp://127.0.0.1:{self.port}"
        self.dispatcher = self._dispatch()
        self.agents = [self._work() for _ in range(AGENTS)]

    def _dispatch(self) -> int:
        return self._program.ask("dispatcher", self.port, str(self._folder))

    def _work(self) -> int:
        return self._program.ask("worker", self.port, CORES)

    def kill_dispatcher(self) -> None:
        self._program.kill(self.dispatcher)
        self.dispatcher = self._dispatch()

    def kill_agent(self, at: int) -> None:
        self._program.kill(self.agents[at])
        self.agents[at] = self._work()

    def workers(self) -> list[int]:
        """The agents' processes: workers, and what forks them."""
        found = []
        for agent in self.agents:
            with contextlib.suppress(psutil.Error):
                found += [each.pid for each in psutil.Process(agent).children(recursive=True)]
        return found


@pytest.fixture(scope="module")
def fleet(program: Processes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    found = Fleet(program, tmp_path_factory.mktemp("dispatcher"))
    yield found
    for pid in (found.dispatcher, *found.agents):
        program.kill(pid)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Seeds that nobody gave are the same in each iterator."""
    set_seed(7)
    yield
    set_seed(None)


@dataclass
class Schedule:
    """One run of a pipeline, which is moved and harmed at random."""

    seed: int
    fleet: Fleet
    did: list[str] = field(default_factory=list)
    timers: list[threading.Timer] = field(default_factory=list)

    def run(self) -> None:
        self._rng = rng = random.Random(self.seed)
        name, plan, limit = drawn(rng)
        self.did.append(name)
        with plan().iterator(workers=0, iteration=0) as iterator:
            expected = collect(iterator, limit=limit)
        found: list[Any] = []
        state: str | None = None
        try:
            with Watch(self._told) as self._watch:
                while (state := self._stay(plan, state, found, limit)) is not None:
                    pass
        finally:
            for timer in self.timers:
                timer.join()
        assert found == expected, self.did

    def _stay(
        self, plan: Callable[[], Dataset], state: str | None, found: list[Any], limit: int
    ) -> str | None:
        """Go on with a crew of its own for a while; return the state, or None at the end."""
        rng = self._rng
        workers, local = rng.choice([1, 2, 3]), rng.choice([0, 0, 1])
        with ExitStack() as stack:
            if rng.random() < 0.85:
                self._now(f"{workers} seats, {local} of them at home")
                client = stack.enter_context(DispatcherClient(self.fleet.target, timeout_s=30))
                places = stack.enter_context(contextlib.closing(client.places(workers)))
                stack.enter_context(remotely(places, local))
            else:
                self._now(f"{workers} workers at home")
            self._iterator = iterator = stack.enter_context(
                plan().iterator(workers=workers, iteration=0)
            )
            if state is not None:
                iterator.load_state_dict(json.loads(state))
            for _ in range(rng.randrange(1, 5)):
                for _ in range(rng.randrange(1, 7)):
                    part = collect(iterator, limit=1) if len(found) < limit else []
                    if not part:
                        return None
                    found += part
                    self._watch.now(self.did[-1])
                self._harm(rng.choices([*FAULTS], [*FAULTS.values()])[0])
            self._now(f"a move, with {len(found)}")
            return json.dumps(iterator.state_dict())

    def _now(self, doing: str) -> None:
        self.did.append(doing)
        self._watch.now(doing)

    def _harm(self, what: str) -> None:
        self._now(what)
        rng, fleet = self._rng, self.fleet
        if what == "resize":
            coordinator = getattr(self._iterator._engine, "_coordinator", None)
            if coordinator is not None and coordinator.pool is not None:
                coordinator.resize(rng.randrange(1, 5))
        elif what == "kill an agent":
            fleet.kill_agent(rng.randrange(AGENTS))
        elif what == "kill the dispatcher":
            fleet.kill_dispatcher()
        elif what == "stop an agent":
            self._stop(rng.choice(fleet.agents))
        elif what == "stop the dispatcher":
            self._stop(fleet.dispatcher)
        elif what != "nothing":
            pids = [*self._iterator.worker_pids(), *fleet.workers()]
            if pids:
                (self._kill if what == "kill a worker" else self._stop)(rng.choice(pids))

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._later(self._rng.choice(LATER_S), killer(pid))

    def _stop(self, pid: int) -> None:
        """Stop a process, and let it go on later."""
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
            self._later(self._rng.choice(STOPPED_S), lambda: go_on(handle))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self.timers.append(threading.Timer(seconds, act))
        self.timers[-1].start()

    def _told(self) -> str:
        told = [f"did: {self.did}", f"stats: {self._iterator.stats}"]
        told.append(f"agents: {self.fleet.agents}, workers: {self.fleet.workers()}")
        with (
            contextlib.suppress(OSError),
            DispatcherClient(self.fleet.target, timeout_s=2) as client,
        ):
            told.append(f"dispatcher: {json.dumps(client.status())}")
        return "\n".join(told)


def go_on(handle: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGCONT)
    os.close(handle)


def drawn(rng: random.Random) -> tuple[str, Callable[[], Dataset], int]:
    """Draw a pipeline: a case of the registry, as it is or slowed down, or a longer one."""
    endless = Options(max_deaths=0)
    if rng.random() < 0.4:
        name = rng.choice([*LONG])
        return name, lambda: LONG[name]().with_options(endless), 10_000
    case, slow = rng.choice(CASES), rng.random() < 0.7

    def build() -> Dataset:
        made = case.build()
        return (made.map(Pause(3)) if slow else made).with_options(endless)

    return f"{case.name}{', slowed down' * slow}", build, case.limit


def run(seed: int, fleet: Fleet) -> None:
    began = time.monotonic()
    schedule = Schedule(seed, fleet)
    schedule.run()
    print(f"schedule {seed}: {time.monotonic() - began:.1f} s, {schedule.did}")  # noqa: T201 - with -s


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FEW))
def test_a_schedule(fleet: Fleet, seed: int) -> None:
    run(seed, fleet)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(FEW, MANY))
def test_another_schedule(fleet: Fleet, seed: int) -> None:
    run(seed, fleet)
