"""A job's server and its consumers are killed in the middle: nothing is lost, nothing comes twice, nobody is stalled."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from tests.service.jobprocesses import LEASE_S, N, Processes, dataset
from tests.service.listeners import free_port

from tundish import service
from tundish.loader.service.connections.credentials import parse_address
from tundish.loader.service.dispatching.client import DispatcherClient

BOUND_S = 60.0


def had(path: Path) -> list[int]:
    if not path.exists():
        return []
    found: list[int] = json.loads(path.read_text())["had"]
    return found


def until_had(files: list[Path], count: int) -> None:
    """Wait until consumers have had so many elements."""
    deadline = time.monotonic() + BOUND_S
    while sum(len(had(path)) for path in files) < count:
        assert time.monotonic() < deadline, "nothing moves"
        time.sleep(0.002)


@pytest.mark.parametrize("seed", [0, 1])
def test_kills_lose_nothing_and_double_nothing(
    seed: int, tmp_path: Path, program: Processes
) -> None:
    kill_at_random(program, random.Random(seed), tmp_path, kills=6)


@pytest.mark.thorough
def test_many_kills(tmp_path: Path, program: Processes) -> None:
    for seed in range(2, 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        kill_at_random(program, random.Random(seed), folder, kills=20)


def kill_at_random(started: Processes, draw: random.Random, folder: Path, *, kills: int) -> None:
    port = free_port()
    files = {name: folder / name for name in "abc"[: draw.randrange(2, 4)]}
    server = started.ask("serve", port, False, LEASE_S)
    readers = {name: started.ask("read", port, name, str(path)) for name, path in files.items()}
    for count in sorted(draw.sample(range(10, N - 200), kills)):
        until_had(list(files.values()), count)
        if draw.random() < 0.5:
            started.kill(server)
            server = started.ask("serve", port, True, LEASE_S)
        else:
            name = draw.choice(list(files))
            started.kill(readers[name])
            readers[name] = started.ask("read", port, name, str(files[name]))
    for name, reader in readers.items():
        assert started.exited(reader) == 0, name
    started.kill(server)

    assert sorted(n for path in files.values() for n in had(path)) == list(range(N))


def test_the_agent_that_serves_a_job_is_killed(program: Processes) -> None:
    """Another agent begins the job again, and its consumer has each element once, in order."""
    with (
        service.DispatchServer() as dispatcher,
        DispatcherClient(dispatcher.target) as client,
    ):
        port = parse_address(dispatcher.target)[1]
        pids = [program.ask("worker", port, 1) for _ in range(2)]
        until_there(client, 2)
        ds = dataset().apply(
            service.distribute("distributed_epoch", dispatcher.target, job_name="j")
        )
        found, pid = [], 0
        for element in ds:
            found.append(int(element))
            if len(found) == 60:
                [name] = [each["name"] for each in client.status()["agents"] if each["jobs"]]
                pid = int(name.split("-")[-2])
                assert pid in pids
                program.kill(pid)
                until_there(client, 1, without=name)

    [other] = {*pids} - {pid}
    program.kill(other)
    assert found == [int(x) for x in dataset()]


def until_there(client: DispatcherClient, count: int, without: str = "") -> None:
    """Wait until so many agents are there, and one is not any more."""
    deadline = time.monotonic() + BOUND_S
    while True:
        names = [each["name"] for each in client.status()["agents"]]
        if len(names) == count and without not in names:
            return
        assert time.monotonic() < deadline, names
        time.sleep(0.005)


def test_one_that_is_killed_stalls_the_others_no_longer_than_its_lease(
    tmp_path: Path, program: Processes
) -> None:
    port, dead, other = free_port(), tmp_path / "dead", tmp_path / "other"
    server = program.ask("serve", port, False, 0.5)
    reader = program.ask("read", port, "dead", str(dead))
    until_had([dead], 20)
    program.kill(reader)
    began = time.monotonic()
    assert program.exited(program.ask("read", port, "other", str(other))) == 0
    took_s = time.monotonic() - began
    program.kill(server)

    assert took_s < BOUND_S / 2  # of which half a second is the lease
    missing = set(range(N)) - {*had(dead), *had(other)}
    assert len(missing) <= 65  # what it had in hand, and had told the job of
    assert not {*had(dead)} & {*had(other)}
