"""Pipelines whose workers an agent has started: in another folder, without this process's path, with certificates."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
import pytest
from tests.service.certificates import Authority
from tests.service.computed import folder_of, image, shortened
from tests.service.fleets import machines
from tests.service.jobprocesses import Processes
from tests.service.listeners import OURS, TOKEN

import tundish as td
from tundish.loader.run import parallelengine
from tundish.loader.service.agents.agent import Agent
from tundish.loader.service.connections.credentials import Address, Credentials
from tundish.loader.service.connections.dialing import Refused
from tundish.loader.service.distributing.seats import SeatRecruiting

AGENT = """
import sys
from tundish.loader.service.agents.agent import Agent
from tundish.loader.service.connections.credentials import Credentials, TlsFiles
agent = Agent("127.0.0.1", 0, Credentials(sys.argv[1].encode(), TlsFiles.from_environment()))
print(agent.address[1], flush=True)
agent.listener.serve()
"""


class FixedPlaces:
    """Places that do not change."""

    def __init__(self, addresses: Sequence[Address], credentials: Credentials) -> None:
        self.list, self.credentials = list(addresses), credentials
        self.failures: list[OSError] = []

    def addresses(self) -> Sequence[Address]:
        return self.list

    def failed(self, address: Address, error: OSError) -> None:
        self.failures.append(error)


@contextlib.contextmanager
def workers_there(places: FixedPlaces) -> Iterator[None]:
    """Have the workers of iterators that begin in here at these places."""
    module: Any = parallelengine
    crew_of, recruiting = module.crew_of, partial(SeatRecruiting, places=places)

    def hired(*args: Any, **kwargs: Any) -> Any:
        return replace(crew_of(*args, **kwargs), recruiting=recruiting)

    with patch.object(module, "crew_of", hired):
        yield


def named(credentials: Credentials) -> dict[str, str]:
    """The environment that names certificates."""
    files = {} if credentials.tls is None else vars(credentials.tls)
    return {f"TUNDISH_SERVICE_TLS_{name.upper()}": path for name, path in files.items()}


@contextlib.contextmanager
def far_agent(folder: Path, credentials: Credentials = OURS) -> Iterator[tuple[int, Address]]:
    """An agent that is a process of its own, in another folder, which finds none of these tests by itself."""
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environ |= named(credentials)
    command = [sys.executable, "-c", AGENT, TOKEN.decode()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environ, cwd=folder
    ) as process:
        assert process.stdout is not None
        try:
            yield process.pid, ("127.0.0.1", int(process.stdout.readline()))
        finally:
            process.kill()


def pipeline() -> td.Dataset:
    ds = td.Dataset.range(60).shuffle(30, seed=3).map(image, num_parallel_calls=2)
    return ds.map(shortened).batch(4)


def same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return len(found) == len(expected) and all(
        a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)
        for a, b in zip(found, expected, strict=True)
    )


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    options = td.Options()
    options.workers = 0
    return list(pipeline().with_options(options))


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> tuple[Credentials, Credentials]:
    """Credentials of a trainer and of an agent, with certificates."""
    authority = Authority(tmp_path_factory.mktemp("authority") / "a")
    return tuple(Credentials(TOKEN, authority.member(name)) for name in ("trainer", "agent"))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Address]]:
    """An agent for tests that harm none."""
    with far_agent(tmp_path_factory.mktemp("far")) as found:
        yield found


def test_elements_are_those_of_this_machine(far: tuple[int, Address], expected: list[Any]) -> None:
    """The functions of a module are found by the trainer's path."""
    pid, address = far
    with workers_there(FixedPlaces([address], OURS)):
        found = iter(pipeline())
        first = next(found)
        assert len(below(pid)) >= 2  # a zygote and workers
        assert same([first, *found], expected)


def test_with_certificates(
    tmp_path: Path, expected: list[Any], members: tuple[Credentials, Credentials]
) -> None:
    ours, theirs = members
    with far_agent(tmp_path, theirs) as (_, address), workers_there(FixedPlaces([address], ours)):
        for _ in range(2):
            assert same(list(pipeline()), expected)


def test_workers_are_in_the_trainers_folder(far: tuple[int, Address]) -> None:
    ds = td.Dataset.range(2).map(folder_of, num_parallel_calls=1)
    with workers_there(FixedPlaces([far[1]], OURS)):
        assert [str(each) for each in ds] == [str(Path.cwd())] * 2


class Checking:
    """Sees which files an agent is asked for, and asks it for more."""

    def __init__(self, agent: Agent, more: Sequence[str] = ()) -> None:
        self.asked: list[list[str]] = []
        self._check, self._more = agent.seats.check, more
        vars(agent.seats)["check"] = self

    def __call__(self, hello: dict[str, Any]) -> None:
        self.asked.append(list(hello["ask"]["paths"]))
        hello["ask"]["paths"] += self._more
        self._check(hello)


def test_files_that_are_not_there_are_an_error_that_names_them() -> None:
    """At the start, and not when an element is made."""
    with Agent("127.0.0.1", 0, OURS) as agent:
        Checking(agent, ["/no/such/file", "/"])
        agent.start()
        with (
            workers_there(FixedPlaces([agent.address], OURS)),
            pytest.raises(Refused, match=r"'/no/such/file': not on .* at the same paths"),
        ):
            next(iter(pipeline()))


def test_mapped_files_are_asked_for(tmp_path: Path) -> None:
    np.arange(100_000).tofile(tmp_path / "numbers")
    array = np.memmap(tmp_path / "numbers", np.int64, "r")
    ds = td.Dataset.range(8).map(lambda n: array[n * 10], num_parallel_calls=1)

    with Agent("127.0.0.1", 0, OURS) as agent:
        checking = Checking(agent)
        agent.start()
        with workers_there(FixedPlaces([agent.address], OURS)):
            assert [int(n) for n in ds] == [n * 10 for n in range(8)]
    assert checking.asked[0] == [str(tmp_path / "numbers")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("certificates", "seed"),
    [
        (False, 0),
        (True, 1),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in ((False, 1), (True, 0))),
    ],
)
def test_kills_change_nothing(
    program: Processes,
    expected: list[Any],
    members: tuple[Credentials, Credentials],
    certificates: bool,
    seed: int,
) -> None:
    """Workers, their zygote and whole agents are killed at random; another agent is there."""
    ours, theirs = members if certificates else (OURS, OURS)
    draw = random.Random(seed)
    with (
        machines(program, 2, **named(theirs)) as both,
        workers_there(FixedPlaces([each.address for each in both], ours)),
    ):
        first = both[0].pid
        found = []
        for number, batch in enumerate(pipeline()):
            found.append({key: np.array(leaf) for key, leaf in batch.items()})
            if number in (2, 5, 8):
                killed = draw.choice([first, *below(first)]) if number > 2 else below(first)[-1]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(killed, signal.SIGKILL)
        assert same(found, expected)


def below(pid: int) -> list[int]:
    """The processes that one has started."""
    with contextlib.suppress(psutil.Error):
        return [each.pid for each in psutil.Process(pid).children(recursive=True)] or [pid]
    return [pid]
