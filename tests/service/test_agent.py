"""An agent: what it gives to workers, whose death ends whose, what it refuses, and what it keeps."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.service.fleets import machines
from tests.service.jobprocesses import Processes
from tests.service.listeners import OURS, TOKEN, dial
from tests.service.waiting import until

from tundish.loader.run.starting.control import scratch_file
from tundish.loader.run.starting.launcher import launcher
from tundish.loader.service.agents import seats as seats_module
from tundish.loader.service.agents.agent import WORKERS_PER_CORE, Agent
from tundish.loader.service.agents.payloads import Payloads
from tundish.loader.service.connections.credentials import Address
from tundish.loader.service.connections.dialing import Dialed, Refused
from tundish.loader.service.connections.handshake import digest_of

CONFIG = b"a config"


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent("127.0.0.1", 0, OURS, payload_bytes=10_000_000) as made:
        made.start()
        yield made


def seat(
    address: Address, entry: str, payload: bytes | None = None, config: bytes = CONFIG, **ask: Any
) -> Dialed:
    digest = None if payload is None else digest_of(payload)
    blobs: dict[str, Any] = {digest_of(config): config}
    if digest is not None:
        blobs[digest] = payload
    request = {"entry": f"tests.service.entries:{entry}", "threads": 1, "digest": digest, **ask}
    return dial(address, OURS, "seat", request, blobs, timeout_s=30)


def exactly(dialed: Dialed, size: int) -> bytes:
    dialed.socket.settimeout(20)
    data = b""
    while len(data) < size:
        piece = dialed.socket.recv(size - len(data))
        assert piece, f"ended after {data!r}"
        data += piece
    return data


def pid_of(dialed: Dialed) -> int:
    return int(exactly(dialed, 10))


def told(dialed: Dialed) -> Any:
    data = exactly(dialed, int.from_bytes(exactly(dialed, 8), "little"))
    dialed.socket.close()
    return pickle.loads(data)


def ends(pid: int, within_s: float) -> None:
    """Wait until a process has ended."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            assert select.select([fd], [], [], within_s)[0], f"{pid} is there after {within_s} s"
        finally:
            os.close(fd)


def test_a_worker_serves_the_very_connection(agent: Agent) -> None:
    dialed = seat(agent.address, "echo")
    assert dialed.answer == {"agent": agent.name, "worker": 1}
    pid = pid_of(dialed)
    assert pid not in (os.getpid(), 0)
    dialed.socket.sendall(b"x" * 100_000)
    assert exactly(dialed, 100_000) == b"x" * 100_000
    assert agent.workers == 1

    dialed.socket.close()
    ends(pid, 10)
    until(lambda: agent.workers == 0)


@pytest.mark.parametrize("size", [None, 0, 1, 70_000, 3_000_000])
def test_config_and_payload_come_whole(agent: Agent, size: int | None) -> None:
    payload = None if size is None else os.urandom(size)
    for _ in range(2):
        config, given, _, _ = told(seat(agent.address, "tell", payload))
        assert config == CONFIG
        assert given == (payload or b"")
    assert agent.seats.payloads.nbytes == (size or 0)


def test_the_trainers_folder_and_path_are_taken_where_they_are(
    agent: Agent, tmp_path: Path
) -> None:
    path = [str(tmp_path), "/no/such/folder"]
    _, _, found, cwd = told(seat(agent.address, "tell", cwd=str(tmp_path), path=path))
    assert found[-1] == str(tmp_path)
    assert cwd == str(tmp_path)

    _, _, found, cwd = told(seat(agent.address, "tell", cwd="/no/such/folder"))
    assert cwd == str(Path.cwd())


def test_a_large_payload_is_read_at_once_by_many(agent: Agent) -> None:
    """It is sent once, and no copy of it is in the agent's own memory."""
    payload = os.urandom(5_000_000)
    seats = [seat(agent.address, "tell", payload, b"%d" % n) for n in range(4)]
    for n, each in enumerate(seats):
        config, given, _, _ = told(each)
        assert (config, given) == (b"%d" % n, payload)
    assert len(agent.seats.payloads) == 1


def test_payloads_that_were_not_used_for_long_go(agent: Agent) -> None:
    payloads = [os.urandom(4_000_000) for _ in range(3)]
    for payload in (*payloads[:2], payloads[0], payloads[2]):
        assert told(seat(agent.address, "tell", payload))[1] == payload

    kept = [digest_of(payload) in agent.seats.payloads for payload in payloads]
    assert kept == [True, False, True]
    assert agent.seats.payloads.nbytes == 8_000_000
    assert told(seat(agent.address, "tell", payloads[1]))[1] == payloads[1]


def test_a_payload_beyond_the_bound_is_refused(agent: Agent) -> None:
    with pytest.raises(Refused, match=r"10,000,000 bytes .* alone has 10,000,001: use np.memmap"):
        seat(agent.address, "tell", bytes(10_000_001))


def test_payloads_count_what_they_keep() -> None:
    payloads = Payloads(10)
    for digest, size in (("a", 4), ("b", 4), ("a", 4), ("c", 4), ("d", 10)):
        payloads.keep(digest, scratch_file(bytes(size)), size)
    assert "d" in payloads
    assert (len(payloads), payloads.nbytes, payloads.use("a")) == (1, 10, None)
    payloads.close()


def test_paths_that_are_not_there_are_named(agent: Agent, tmp_path: Path) -> None:
    there, missing = tmp_path / "there", [str(tmp_path / f"missing{n}") for n in range(7)]
    there.touch()
    with pytest.raises(Refused, match=r"missing0.*missing4' and 2 more: not on .*fsspec") as caught:
        seat(agent.address, "tell", bytes(9_000_000), paths=[str(there), *missing])
    assert agent.name in str(caught.value)
    assert "there'" not in str(caught.value)
    assert len(agent.seats.payloads) == 0  # nothing was sent for it

    told(seat(agent.address, "tell", paths=[str(there)]))


@pytest.mark.parametrize("ask", [
    {"entry": 5}, {"entry": "nothing"}, {"entry": None}, {"threads": 0}, {"threads": "many"}, {"threads": True},
    {"threads": 10**9}, {"preload": [5]}, {"paths": 5}, {"paths": [[]]}, {"path": {}}, {"digest": "f" * 32},
    {"digest": 5},
])  # fmt: skip
def test_requests_that_are_none(agent: Agent, ask: dict[str, Any]) -> None:
    request = {"entry": "tests.service.entries:tell", "threads": 1, "digest": None, **ask}
    with pytest.raises(Refused):
        dial(agent.address, OURS, "seat", request, {digest_of(CONFIG): CONFIG})
    for blobs in ({}, {digest_of(data): data for data in (b"1", b"2", b"3")}):
        with pytest.raises(Refused, match="blobs"):
            dial(agent.address, OURS, "seat", {"entry": "a:b"}, blobs)
    assert told(seat(agent.address, "tell"))


def test_a_worker_that_fails_ends_its_connection(
    agent: Agent, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its last words are in the agent's output."""
    dialed = seat(agent.address, "fail")
    dialed.socket.settimeout(20)
    assert not dialed.socket.recv(1)
    dialed.socket.close()
    until(lambda: agent.workers == 0)
    assert "ZeroDivisionError: of the worker" in capfd.readouterr().err


def test_a_killed_worker_is_noticed_by_the_trainer(agent: Agent) -> None:
    dialed = seat(agent.address, "sleep")
    pid = pid_of(dialed)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert not dialed.socket.recv(1)
    assert time.monotonic() - began < 1.0
    dialed.socket.close()
    until(lambda: agent.workers == 0)


@pytest.mark.parametrize("kind", ["close", "reset"])
def test_a_worker_that_sleeps_for_ever_goes_when_its_trainer_does(agent: Agent, kind: str) -> None:
    dialed = seat(agent.address, "sleep")
    pid = pid_of(dialed)
    if kind == "reset":
        dialed.socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, (1).to_bytes(4, sys.byteorder) + bytes(4)
        )
    began = time.monotonic()
    dialed.socket.close()
    ends(pid, 10)
    assert time.monotonic() - began > 0.1
    until(lambda: agent.workers == 0)


@pytest.mark.parametrize("apart", [False, True])
def test_processes_that_a_worker_started_go_with_it(agent: Agent, apart: bool) -> None:
    """But for those of a session of their own. They have inherited the connection: it ends all the same."""
    dialed = seat(agent.address, "have_a_child", config=b"apart" if apart else CONFIG)
    child = pid_of(dialed)
    (worker,) = [each for each in psutil.process_iter() if is_worker(each)]
    worker.kill()
    assert not dialed.socket.recv(1)
    dialed.socket.close()
    if apart:
        os.kill(child, signal.SIGKILL)
    ends(child, 10)


def is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.name() == "tundish-worker" and psutil.Process() in process.parents()
    return False


def test_a_trainer_that_leaves_before_its_worker_has_begun(agent: Agent) -> None:
    for _ in range(5):
        seat(agent.address, "sleep").socket.close()
    until(lambda: agent.seats.started == 5 and agent.workers == 0)


def test_a_killed_zygote_is_replaced(agent: Agent) -> None:
    dialed = seat(agent.address, "sleep")
    pid = pid_of(dialed)
    zygote = psutil.Process(pid).parent()
    assert zygote is not None
    zygote.kill()
    assert not dialed.socket.recv(1)
    dialed.socket.close()
    ends(pid, 10)
    assert told(seat(agent.address, "tell"))


def test_agents_of_a_process_have_one_zygote() -> None:
    """It is the process's own, and closing one agent ends no worker of another."""
    with Agent("127.0.0.1", 0, OURS) as stays:
        stays.start()
        with Agent("127.0.0.1", 0, OURS) as goes:
            goes.start()
            seats = [seat(each.address, "echo") for each in (stays, goes)]
            pids = [pid_of(each) for each in seats]
            zygotes = [psutil.Process(pid).ppid() for pid in pids]
        ends(pids[1], 10)
        seats[0].socket.sendall(b"still there")
        assert exactly(seats[0], 11) == b"still there"
        for each in seats:
            each.socket.close()
    assert zygotes == [launcher()._process.pid] * 2


def test_an_agent_hears_of_its_workers_whoever_reads_the_reports(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads_first() -> bool:
        launcher().pump()
        return True

    monkeypatch.setattr(seats_module.Seats, "_pump", lambda *_: None)
    dialed = seat(agent.address, "sleep")
    pid = pid_of(dialed)
    [taken] = until(lambda: list(agent.seats.taken.values()))
    until(lambda: reads_first() and taken.watched)
    os.kill(pid, signal.SIGKILL)
    assert not dialed.socket.recv(1)
    dialed.socket.close()
    until(lambda: reads_first() and agent.workers == 0)


def test_closing_ends_the_workers() -> None:
    with Agent("127.0.0.1", 0, OURS) as made:
        made.start()
        dialed = seat(made.address, "sleep")
        pid = pid_of(dialed)
    ends(pid, 10)
    with contextlib.suppress(ConnectionResetError):
        assert not dialed.socket.recv(1)
    dialed.socket.close()


AGENT = """
import sys
from tundish.loader.service.agents.agent import Agent
from tundish.loader.service.connections.credentials import Credentials
agent = Agent("127.0.0.1", 0, Credentials(sys.argv[1].encode()))
print(agent.address[1], flush=True)
agent.listener.serve()
"""


@contextlib.contextmanager
def agent_process() -> Iterator[tuple[subprocess.Popen[str], Address]]:
    """An agent that is a process of its own."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, TOKEN.decode()],
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, ("127.0.0.1", int(process.stdout.readline()))
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_agent_that_ends_takes_its_workers_along(program: Processes, number: int) -> None:
    with machines(program, 1) as [machine]:
        seats = [seat(machine.address, "sleep") for _ in range(3)]
        pids = [pid_of(each) for each in seats]
        os.kill(machine.pid, number)
        for each in seats:
            with contextlib.suppress(ConnectionResetError):
                assert not each.socket.recv(1)
            each.socket.close()
        for pid in pids:
            ends(pid, 10)


def settled_fds(process: psutil.Process) -> int:
    """Return how many descriptors a process has when that number does not change any more."""
    found, since = process.num_fds(), time.monotonic()
    while time.monotonic() - since < 0.2:
        if (now := process.num_fds()) != found:
            found, since = now, time.monotonic()
        time.sleep(0.002)
    return found


@pytest.mark.slow
def test_an_agent_does_not_grow() -> None:
    """Its memory and descriptors after 24 workers are those after 8."""
    with agent_process() as (process, address):
        looked = psutil.Process(process.pid)
        sizes = []
        for _ in range(3):
            for _ in range(8):
                told(seat(address, "tell", b"a payload" * 10_000))
            until(lambda: len(looked.children(recursive=True)) == 1)
            sizes.append((looked.memory_info().rss, settled_fds(looked)))
        until(
            lambda: looked.num_fds() <= sizes[0][1]
        )  # on a busy machine it may still be closing some
    assert sizes[-1][0] - sizes[0][0] < 1 << 20


def test_it_knows_its_workers_and_payloads(agent: Agent) -> None:
    dialed = seat(agent.address, "sleep", b"payload")
    pid = pid_of(dialed)
    until(lambda: [each.process.pid for each in agent.seats.taken.values()] == [pid])
    assert (len(agent.seats.payloads), agent.seats.payloads.nbytes) == (1, 7)
    dialed.socket.close()


def test_an_agent_runs_so_many_workers_and_no_more() -> None:
    with Agent("127.0.0.1", 0, OURS, cores=1) as made:
        made.start()
        seats = [seat(made.address, "sleep") for _ in range(WORKERS_PER_CORE)]
        for each in seats:
            pid_of(each)
        with pytest.raises(
            Refused, match=f"runs {WORKERS_PER_CORE} worker processes, and cannot run more"
        ):
            seat(made.address, "tell")
        seats.pop().socket.close()
        until(lambda: made.workers < WORKERS_PER_CORE)
        assert told(seat(made.address, "tell"))
        for each in seats:
            each.socket.close()


def test_how_long_a_worker_that_does_not_listen_stays() -> None:
    assert seats_module._LEAVING_S == 0.3
