"""Workers as servers, and agents that an engine keeps: joined, replaced, scaled, gone with their starter."""

from __future__ import annotations

import errno
import gc
import ipaddress
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
from tests.service.listeners import free_port
from tests.service.waiting import BOUND_S, until

from tundish.loader.service.agents.agent import Agent
from tundish.loader.service.connections.credentials import TOKEN_FILE
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.servers import fleet as fleets
from tundish.loader.service.servers import joining, keeping, localengine
from tundish.loader.service.servers.addresses import OUTSIDE, reached_there
from tundish.loader.service.servers.configs import DispatcherConfig, WorkerConfig
from tundish.loader.service.servers.dispatchserver import DispatchServer
from tundish.loader.service.servers.engine import AgentOrder
from tundish.loader.service.servers.fleet import Keeper
from tundish.loader.service.servers.keeping import ABSENT_S, IDLE_S, AgentRoster
from tundish.loader.service.servers.localengine import LocalEngine, local_fleet
from tundish.loader.service.servers.workerserver import WorkerServer


class TestWorkerServer:
    """What tf.data's has, and how it joins."""

    def test_joins_and_leaves(self, stack: ExitStack) -> None:
        dispatcher = stack.enter_context(DispatchServer())
        address = dispatcher.target.split("://")[1]
        worker = WorkerServer(WorkerConfig(dispatcher_address=address, cores=3))
        assert dispatcher._num_workers() == 1
        assert worker._num_tasks() == 0
        with DispatcherClient(dispatcher.target) as client:
            [found] = client.status()["agents"]
            assert (found["address"], found["cores"]) == (worker._address, 3)
            worker._stop()
            worker.join()
            assert client.agents() == []

    def test_has_a_name_of_its_own(self, stack: ExitStack) -> None:
        """Two with one name would take each other's place at the dispatcher, again and again."""
        dispatcher = stack.enter_context(DispatchServer())
        config = WorkerConfig(dispatcher.target.split("://")[1], name="node1")
        first = stack.enter_context(WorkerServer(config))
        with pytest.raises(ValueError, match=f"'node1'.* {first._address}.* name of its own"):
            WorkerServer(config)
        assert dispatcher._num_workers() == 1
        first.stop()
        stack.enter_context(WorkerServer(config))
        assert dispatcher._num_workers() == 1

    def test_that_only_its_machine_reaches_says_so_if_its_dispatcher_is_elsewhere(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(TimeoutError):
            WorkerServer(WorkerConfig("192.0.2.1:9", dispatcher_timeout_ms=50))
        [text] = caplog.messages
        assert "only trainers of this machine reach" in text

    def test_says_that_it_waits_for_a_dispatcher(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(joining, "_TOLD_S", 0.05)
        port = free_port()
        with pytest.raises(TimeoutError):
            WorkerServer(WorkerConfig(f"localhost:{port}", dispatcher_timeout_ms=500))
        [text] = caplog.messages
        assert re.search(rf"localhost:{port} cannot be reached .*refused.* tries again", text)

    def test_tells_the_address_that_it_is_given(self, stack: ExitStack) -> None:
        dispatcher = stack.enter_context(DispatchServer())
        client = stack.enter_context(DispatcherClient(dispatcher.target))
        address = dispatcher.target.split("://")[1]
        config = WorkerConfig(address, worker_address="localhost:%port%")
        worker = stack.enter_context(WorkerServer(config))
        port = int(worker._address.split(":")[1])
        assert client.agents() == [("127.0.0.1", port)], "a number, which nobody has to look up"
        assert client.status()["agents"][0]["address"] == f"localhost:{port}"

    def test_of_a_machine_that_calls_itself_loopback_tells_an_interface(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As Debian's /etc/hosts does; the interface is the one on the way to the dispatcher."""
        monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
        told = reached_there("0.0.0.0", OUTSIDE)
        if told == "localhost":
            pytest.skip("this machine has no interface but loopback")
        assert not ipaddress.ip_address(told).is_loopback
        assert reached_there("0.0.0.0", ("127.0.0.1", 9)) == "localhost"
        assert reached_there("127.0.0.1", OUTSIDE) == "127.0.0.1"

    def test_is_one_of_the_addresses_of_the_dispatcher(self, stack: ExitStack) -> None:
        config = DispatcherConfig(worker_addresses=["localhost:%port%"])
        dispatcher = stack.enter_context(DispatchServer(config))
        address = dispatcher.target.split("://")[1]
        stack.enter_context(WorkerServer(WorkerConfig(address, worker_address="localhost:%port%")))
        assert dispatcher._num_workers() == 1

    def test_is_refused_by_a_dispatcher_that_names_others(self, stack: ExitStack) -> None:
        config = DispatcherConfig(worker_addresses=["localhost:1"])
        dispatcher = stack.enter_context(DispatchServer(config))
        address = dispatcher.target.split("://")[1]
        with pytest.raises(PermissionError, match="worker_addresses"):
            WorkerServer(WorkerConfig(address, worker_address="127.0.0.1:%port%"))
        assert dispatcher._num_workers() == 0

    def test_waits_for_a_dispatcher_and_finds_it_again(
        self, stack: ExitStack, tmp_path: Path
    ) -> None:
        port = free_port()
        worker = WorkerServer(WorkerConfig(f"localhost:{port}"), start=False)
        stack.callback(worker.stop)
        starting = threading.Thread(target=worker.start)
        starting.start()
        for _ in range(3):
            config = DispatcherConfig(port, work_dir=str(tmp_path), fault_tolerant_mode=True)
            with DispatchServer(config) as dispatcher:
                until(lambda: dispatcher._num_workers() == 1)
        starting.join()

    def test_gives_up_when_it_is_told_to(self) -> None:
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.05 s"):
            WorkerServer(WorkerConfig(f"localhost:{free_port()}", dispatcher_timeout_ms=50))

    def test_join_raises_when_the_dispatcher_was_gone_for_too_long(self) -> None:
        dispatcher = DispatchServer()
        address = dispatcher.target.split("://")[1]
        worker = WorkerServer(WorkerConfig(address, dispatcher_timeout_ms=100))
        dispatcher.stop()
        with pytest.raises(TimeoutError, match="did not answer"):
            worker.join()

    def test_ends_when_nothing_refers_to_it(self, stack: ExitStack) -> None:
        dispatcher = stack.enter_context(DispatchServer())
        worker = WorkerServer(WorkerConfig(dispatcher.target.split("://")[1]))
        assert dispatcher._num_workers() == 1
        del worker
        gc.collect()
        until(lambda: dispatcher._num_workers() == 0)

    def test_start_false(self, stack: ExitStack) -> None:
        dispatcher = stack.enter_context(DispatchServer())
        worker = WorkerServer(WorkerConfig(dispatcher.target.split("://")[1]), start=False)
        with pytest.raises(RuntimeError, match=r"call start\(\)"):
            worker.join()
        worker.start()
        worker.stop()
        with pytest.raises(RuntimeError, match="was stopped"):
            worker.start()


@pytest.mark.parametrize("seed", range(20))
def test_agents_are_kept_at_random(seed: int) -> None:
    """There are as many as are needed once nothing delays them, and never more are started than are missing."""
    rng, roster, now, running = Random(seed), AgentRoster(), 0.0, set[str]()
    needed, numbers, last_change = 0, 0, 0.0
    for _ in range(600):
        now += rng.random() * 3
        if rng.random() < 0.05:
            needed, last_change = rng.randrange(6), now
        if running and rng.random() < 0.05:
            gone = rng.choice(sorted(running))
            running.discard(gone)
            joined = running if rng.random() < 0.8 else set[str]()
            roster.joined(joined)
            roster.ended([gone], now)
            last_change = now
        count = roster.lacking(needed, now)
        assert len(running) + count <= max(needed, len(running))
        names = [f"a{numbers + k}" for k in range(count)]
        numbers += count
        roster.begun(names, now)
        running |= set(names)
        stop = roster.spare(needed, running, now, idle_s=20.0)
        assert len(running) - len(stop) >= min(needed, len(running))
        running -= set(stop)
        assert set(roster.started) == running
        if now - last_change > 60.0:
            assert len(running) == needed


def test_agents_that_end_at_once_are_started_ever_more_rarely() -> None:
    roster, now, starts = AgentRoster(), 0.0, list[float]()
    while now < 100.0:
        if roster.lacking(1, now):
            roster.begun(["a"], now)
            starts.append(now)
            now += 0.01
            roster.ended(["a"], now)
        now += roster.rest_s(now, 1.0)
    assert len(starts) < 13
    assert starts[1] < 0.5


def test_agents_may_fail_for_days() -> None:
    roster = AgentRoster()
    for now in range(0, 60_000, 30):
        roster.begun(["a"], now)
        roster.ended(["a"], now)
    assert 0 < roster.rest_s(now, 60.0) <= 30.0


def test_an_agent_that_has_joined_is_replaced_at_once() -> None:
    roster, now = AgentRoster(), 0.0
    for k in range(20):
        assert roster.lacking(1, now) == 1
        roster.begun([f"a{k}"], now)
        roster.joined([f"a{k}", "another's"])
        roster.ended([f"a{k}"], now)


def test_agents_that_the_dispatcher_never_knows_are_replaced() -> None:
    roster = AgentRoster()
    roster.begun(["a", "b"], 0.0)
    patience_s = ABSENT_S[0]
    for now in (1.0, patience_s):
        assert roster.absent(["a"], now) == []
    assert roster.absent(["a"], patience_s + 1) == ["b"]
    roster.joined(["a", "b"])
    assert roster.absent(["a", "b"], patience_s + 2) == []
    assert roster.absent([], patience_s + 3) == []
    roster.unheard()  # a dispatcher that is back does not know them yet
    assert roster.absent([], 3 * patience_s) == []
    assert roster.absent([], 4 * patience_s) == ["a", "b"]
    roster.ended(["a", "b"], 4 * patience_s)
    assert roster.lacking(2, 5 * patience_s) == 2


def test_agents_that_do_not_come_are_replaced_ever_more_rarely() -> None:
    """Their machine may take long to start: soon the next one waits for it as long as it takes."""
    roster, now, waits = AgentRoster(), 0.0, list[float]()
    for k in range(7):
        roster.begun([f"a{k}"], now)
        began = now
        while not roster.absent([], now):
            now += 1.0
        waits.append(now - began)
        roster.ended([f"a{k}"], now)
    assert waits == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
    roster.begun(["b"], now)
    roster.joined(["b"])
    roster.absent([], now)
    assert roster.absent([], now + ABSENT_S[0]) == ["b"]


def test_idle_and_new_agents_are_stopped_first() -> None:
    roster = AgentRoster()
    for k, name in enumerate("abcd"):
        roster.begun([name], float(k))
    assert roster.spare(1, {"c", "d"}, 9.0, idle_s=0.0) == ["b", "a", "d"]


def test_agents_that_were_found_are_needed_until_trainers_have_told() -> None:
    """A dispatcher that starts again has heard from no trainer yet."""
    roster = AgentRoster()
    roster.found(["a", "b"], 0.0)
    assert roster.spare(0, (), 1.0) == []
    assert roster.spare(0, (), IDLE_S + 1) == ["a", "b"]


class StillEngine:
    """An engine whose agents are there."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.watched = threading.Event()
        self.looks = 0

    def start(self, order: AgentOrder, count: int = 1) -> list[str]:
        return []

    def stop(self, names: Sequence[str]) -> None:
        self.stopped += names

    def watch(self, timeout_s: float) -> list[str]:
        self.watched.set()
        self.looks += 1
        return []

    def find(self) -> list[str]:
        return ["a", "b"]

    def close(self) -> None:
        pass


def test_no_agent_is_stopped_before_the_dispatcher_has_told_how_many_are_needed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fleets, "_LOOK_S", 0.05)
    engine = StillEngine()
    keeper = Keeper(engine, f"tcp://127.0.0.1:{free_port()}", 1)
    keeper.start()
    assert engine.watched.wait(BOUND_S)  # it has asked the dispatcher, in vain
    until(lambda: engine.looks > 3)
    keeper.close()
    assert not engine.stopped
    [text] = caplog.messages  # and not one for each time
    assert "does not reach the dispatcher" in text


def test_a_keeper_ends_while_the_dispatcher_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And its thread does nothing when the answer comes."""
    asked, answered = threading.Event(), threading.Event()

    def needs(_: DispatcherClient, cores: int) -> Any:
        asked.set()
        assert answered.wait(BOUND_S)
        return 1, True, [], []

    monkeypatch.setattr(DispatcherClient, "needs", needs)
    engine = StillEngine()
    keeper = Keeper(engine, "tcp://127.0.0.1:1", 1)
    keeper.start()
    assert asked.wait(BOUND_S)
    keeper.close()
    assert keeper._thread.is_alive()
    answered.set()
    keeper._thread.join(BOUND_S)
    assert not engine.looks


def test_a_keeper_replaces_agents_that_the_dispatcher_does_not_know(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine says that its two agents run, and neither ever joins the dispatcher."""
    monkeypatch.setattr(keeping, "ABSENT_S", (0.0, 0.0))
    dispatcher = stack.enter_context(DispatchServer())
    stack.enter_context(DispatcherClient(dispatcher.target)).scale(2)
    engine = StillEngine()
    keeper = Keeper(engine, dispatcher.target, 1)
    keeper.start()
    stack.callback(keeper.close)
    until(lambda: {"a", "b"} <= set(engine.stopped))


def test_a_fleet_of_this_machine(stack: ExitStack) -> None:
    fleet = local_fleet(2, 2)
    stack.callback(fleet.stop)
    client = stack.enter_context(DispatcherClient(fleet.target))
    fleet.wait(2)
    assert [each["cores"] for each in client.status()["agents"]] == [2, 2]

    before = {each["name"] for each in client.status()["agents"]}
    victim = agents()[0]
    assert os.getpgid(victim.pid) != os.getpgrp(), "Ctrl-C is for the process that has them"
    victim.kill()
    until(lambda: len(now := {a["name"] for a in client.status()["agents"]}) == 2 and now != before)

    fleet.scale(1)
    until(lambda: len(client.agents()) == 1 == len(agents()))
    fleet.scale(None)  # as many as trainers need
    places = client.places(6)
    stack.callback(places.close)
    until(lambda: len(places.addresses()) == 6)
    assert len(client.agents()) == 3
    fleet.stop()
    assert not agents()


def agents() -> list[psutil.Process]:
    """The processes that are agents."""
    return [each for each in psutil.Process().children() if is_agent(each)]


def is_agent(process: psutil.Process) -> bool:
    """Return True if a process is an agent that has not ended."""
    try:
        return any("agentprocess" in part for part in process.cmdline())
    except psutil.Error:
        return False


def test_an_engine_whose_agents_cannot_start(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = stack.enter_context(DispatchServer())
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "no token"))
    engine = LocalEngine()
    stack.callback(engine.close)
    [name] = engine.start(AgentOrder(dispatcher.target))
    assert engine.find() == [name]
    assert engine.watch(BOUND_S) == [name]
    assert engine.find() == []
    assert engine.watch(0.01) == []
    engine.stop([name, "another"])


def test_agents_for_which_there_is_no_room_are_left_out(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expect the names of the agents that did start: otherwise others would be started in their place."""
    engine, popen, made = LocalEngine(), subprocess.Popen, 0

    def full(*args: Any, **given: Any) -> Any:
        nonlocal made
        made += 1
        if made == 3:
            raise BlockingIOError(errno.EAGAIN, "no process is left")
        return popen(["sleep", "60"], stdin=given["stdin"])

    monkeypatch.setattr(subprocess, "Popen", full)
    names = engine.start(AgentOrder("tcp://127.0.0.1:1"), 5)
    assert len(names) == 2
    assert engine.find() == names
    made = 2
    with pytest.raises(BlockingIOError, match="no process is left"):
        engine.start(AgentOrder("tcp://127.0.0.1:1"))
    monkeypatch.undo()
    monkeypatch.setattr(localengine, "_ENDING_S", 0.05)
    engine.stop(names)
    assert engine.find() == []


def test_a_worker_has_ended_when_join_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect `join` to wait for the agent, which is closed last."""
    early, close = list[bool](), Agent.close

    def noting(self: Agent) -> None:
        early.append(worker._started().stopped.is_set())
        close(self)

    monkeypatch.setattr(Agent, "close", noting)
    with DispatchServer() as dispatcher:
        worker = WorkerServer(WorkerConfig(dispatcher.target))
        worker.stop()
        worker.join()
    assert early[0] is False


def test_a_forked_child_ends_nothing_of_its_parents(stack: ExitStack) -> None:
    fleet = local_fleet(1)
    stack.callback(fleet.stop)
    worker = stack.enter_context(WorkerServer(WorkerConfig(fleet.target.split("://")[1])))
    fleet.wait(2)
    before = agents()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        worker.stop()
        fleet.stop()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    client = stack.enter_context(DispatcherClient(fleet.target))
    assert len(client.agents()) == 2
    assert agents() == before
    joins = worker._joining
    assert joins is not None
    ready, _, _ = select.select([joins._ear], [], [], 0)
    assert not ready, "nobody was told to end"


def test_agents_end_with_the_process_that_has_started_them(stack: ExitStack) -> None:
    program = (
        "from tundish.loader.service.servers.localengine import local_fleet\n"
        "import psutil, time\n"
        "fleet = local_fleet(2)\n"
        "fleet.wait(2)\n"
        "print(*(child.pid for child in psutil.Process().children()), flush=True)\n"
        "time.sleep(100)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    children = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
    assert len(children) == 2
    os.kill(process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=BOUND_S)
    assert not alive
