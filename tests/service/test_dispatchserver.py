"""The dispatcher as a server: tf.data's members, calls over a connection, and restarts while others are there."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.service.computed import square
from tests.service.jobprocesses import Processes
from tests.service.listeners import JobDouble, free_port
from tests.service.waiting import BOUND_S, until

import tundish as td
from tundish.errors import IncompatibleJobError
from tundish.loader.service.connections.credentials import (
    Credentials,
    parse_address,
    parse_addresses,
)
from tundish.loader.service.connections.loop import Loop
from tundish.loader.service.dispatching import entries
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.dispatching.places import DispatcherPlaces
from tundish.loader.service.jobs.hosting import HostedJob, JobOrder, Jobs, StartJob
from tundish.loader.service.servers.configs import DispatcherConfig, WorkerConfig
from tundish.loader.service.servers.dispatchserver import DispatchServer
from tundish.loader.service.servers.joining import Joining
from tundish.loader.service.servers.workerserver import WorkerServer


def no_job(order: JobOrder, payload: bytes, loop: Loop) -> HostedJob:
    raise NotImplementedError("none")


def joined(
    stack: ExitStack,
    target: str,
    name: str,
    cores: int = 2,
    start: StartJob = no_job,
    **fields: Any,
) -> Joining:
    """An agent that joins, and would be reached at a port that its name tells."""
    agent = {"name": name, "address": ["127.0.0.1", 1000 + ord(name[0])], "cores": cores}
    jobs, loop = Jobs(start=start), Loop()
    stack.callback(loop.close)
    jobs.attach(loop)
    joining = Joining(parse_addresses(target), Credentials.find(), agent, jobs, **fields)
    stack.callback(joining.close)
    joining.start()
    joining.joined()
    return joining


class TestMembers:
    """What tf.data's has."""

    def test_target_and_address(self, stack: ExitStack) -> None:
        port = free_port()
        dispatcher = stack.enter_context(DispatchServer(DispatcherConfig(port=port)))
        assert dispatcher.target == f"tcp://localhost:{port}"
        assert dispatcher._address == f"localhost:{port}"
        assert dispatcher._num_workers() == 0

    def test_on_all_interfaces_it_is_reached_by_both_families(self, stack: ExitStack) -> None:
        if not socket.has_dualstack_ipv6():
            pytest.skip("this machine has no IPv6")
        dispatcher = stack.enter_context(DispatchServer(DispatcherConfig(host="::")))
        _, port = parse_address(dispatcher.target)
        for host in ("127.0.0.1", "[::1]"):
            with DispatcherClient(f"{host}:{port}", timeout_s=5.0) as client:
                assert client.agents() == []

    def test_a_name_that_is_loopback_here_is_told(
        self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As Debian's /etc/hosts has it: other machines that know the name would be refused."""
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        for host, told in (("node1", 1), ("127.0.1.1", 0), ("localhost", 0), ("ip6-localhost", 0)):
            caplog.clear()
            stack.enter_context(DispatchServer(DispatcherConfig(host=host)))
            assert len(caplog.messages) == told
            assert all("'node1' is 127.0.1.1 on this machine" in each for each in caplog.messages)

    def test_start_false(self) -> None:
        dispatcher = DispatchServer(start=False)
        with pytest.raises(RuntimeError, match=r"call start\(\)"):
            _ = dispatcher.target
        dispatcher.start()
        dispatcher.start()
        dispatcher._stop()
        dispatcher.stop()
        with pytest.raises(RuntimeError, match="was stopped"):
            dispatcher.start()

    def test_join_ends_when_it_is_stopped(self) -> None:
        dispatcher = DispatchServer()
        stopping = threading.Timer(0.05, dispatcher.stop)
        stopping.start()
        dispatcher.join()
        stopping.join()

    def test_it_ends_when_nothing_refers_to_it(self) -> None:
        dispatcher = DispatchServer()
        target = dispatcher.target
        del dispatcher
        gc.collect()
        with DispatcherClient(target, timeout_s=0.2) as client, pytest.raises(TimeoutError):
            client.agents()

    def test_a_port_that_is_taken(self, stack: ExitStack, tmp_path: Path) -> None:
        first = stack.enter_context(DispatchServer())
        port = parse_address(first.target)[1]
        config = DispatcherConfig(port, work_dir=str(tmp_path), fault_tolerant_mode=True)
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            DispatchServer(config)
        again = DispatcherConfig(work_dir=str(tmp_path), fault_tolerant_mode=True)
        stack.enter_context(DispatchServer(again))  # the journal was let go of
        with pytest.raises(BlockingIOError, match="another dispatcher"):
            DispatchServer(again)

    def test_a_journal_that_it_does_not_understand_is_let_go_of(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = DispatcherConfig(work_dir=str(tmp_path), fault_tolerant_mode=True)
        with DispatchServer(config) as dispatcher, DispatcherClient(dispatcher.target) as client:
            client.scale(1)
        monkeypatch.setattr(entries, "_KINDS", {})
        with pytest.raises(ValueError, match="which this version"):
            DispatchServer(config)
        monkeypatch.undo()
        DispatchServer(config).stop()


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (DispatcherConfig, {"fault_tolerant_mode": True}, "work_dir"),
        (DispatcherConfig, {"port": 70000}, "port=70000"),
        (DispatcherConfig, {"protocol": "http"}, "protocol='http'"),
        (DispatcherConfig, {"job_gc_timeout_ms": -2}, "from -1 on"),
        (DispatcherConfig, {"job_gc_check_interval_ms": -1}, "from 0 on"),
        (WorkerConfig, {"dispatcher_address": ""}, "needs a dispatcher_address"),
        (WorkerConfig, {"dispatcher_address": "h:1,"}, "'' is not an address"),
        (WorkerConfig, {"dispatcher_address": "nowhere"}, "'nowhere' is not an address"),
        (WorkerConfig, {"dispatcher_address": "h:1", "cores": 0}, "cores=0"),
        (WorkerConfig, {"dispatcher_address": "h:1", "worker_address": "a:b"}, "is not an address"),
        (WorkerConfig, {"dispatcher_address": "h:1", "heartbeat_interval_ms": 1.5}, "1.5"),
    ],
)
def test_configurations_that_are_wrong(config: Any, fields: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**fields)


def test_tf_datas_configurations_are_taken() -> None:
    assert DispatcherConfig(5050, "grpc", "/x", True, ["a"], 1, 2, 3, 4).worker_timeout_ms == 3
    config = WorkerConfig("h:1", "w:%port%", 7, "grpc+local", 8, 9, "grpc", "w:10")
    assert config.data_transfer_address == "w:10"


def test_datasets_and_jobs(stack: ExitStack) -> None:
    started: list[JobDouble] = []

    def start(order: JobOrder, payload: bytes, loop: Loop) -> HostedJob:
        started.append(JobDouble(order, payload, loop))
        return started[-1]

    dispatcher = stack.enter_context(DispatchServer())
    joined(stack, dispatcher.target, "a", start=start)
    client = stack.enter_context(DispatcherClient(dispatcher.target))
    payload = os.urandom(3 << 20)
    plan = [["range#0", {"stop": 3}]]
    assert client.register("d", payload, plan) == "d"
    assert client.dataset("d") == payload
    with pytest.raises(FileNotFoundError, match="no dataset 'e'"):
        client.dataset("e")
    assert client.job("train", "d", "dealt", {"n": 1}) == ("127.0.0.1", 1097)
    assert started[0].order == JobOrder("train", "d", "dealt", {"n": 1})
    assert started[0].payload == payload
    with pytest.raises(IncompatibleJobError, match="n: 2 here, 1 in the job"):
        client.job("train", "d", "dealt", {"n": 2})
    status = client.status()
    assert [each["name"] for each in status["agents"]] == ["a"]
    assert [each["bytes"] for each in status["datasets"]] == [len(payload)]
    assert [each["address"] for each in status["jobs"]] == ["127.0.0.1:1097"]
    assert client.agents() == [("127.0.0.1", 1097)]


def test_a_job_without_agents_is_served_by_the_dispatchers_own_process(stack: ExitStack) -> None:
    dispatcher = stack.enter_context(DispatchServer())
    client = stack.enter_context(DispatcherClient(dispatcher.target))
    client.register("d", td.Dataset.range(3).to_bytes())
    address = client.job("train", "d", "shared", {})
    assert address[1] == parse_address(dispatcher.target)[1], "consumers need no other port"
    assert dispatcher._num_workers() == 0
    assert client.status()["agents"] == []


def test_a_job_that_cannot_be_started_says_why(stack: ExitStack) -> None:
    dispatcher = stack.enter_context(DispatchServer())
    joined(stack, dispatcher.target, "a")
    client = stack.enter_context(DispatcherClient(dispatcher.target))
    client.register("d", b"x")
    with pytest.raises(RuntimeError, match="could not be started: NotImplementedError: none"):
        client.job("train", "d", "dealt")


def test_a_job_that_nobody_serves(stack: ExitStack) -> None:
    go_on = threading.Event()

    def slow(order: JobOrder, payload: bytes, loop: Loop) -> HostedJob:
        go_on.wait()
        return JobDouble(order, payload, loop)

    dispatcher = stack.enter_context(DispatchServer())
    joined(stack, dispatcher.target, "a", start=slow)
    stack.callback(go_on.set)
    client = stack.enter_context(DispatcherClient(dispatcher.target))
    client.register("d", b"x")
    with pytest.raises(TimeoutError, match=r"not served after 0\.1 s: .* has 1 workers"):
        client.job("train", "d", "dealt", wait_s=0.1)
    go_on.set()
    assert client.job("train", "d", "dealt") == ("127.0.0.1", 1097)


def test_seats_without_waiting(stack: ExitStack) -> None:
    dispatcher = stack.enter_context(DispatchServer())
    client = stack.enter_context(DispatcherClient(dispatcher.target))
    places = client.places(3)
    stack.callback(places.close)
    assert places.addresses() == ()
    places.wait(BOUND_S)
    first = joined(stack, dispatcher.target, "a")
    until(lambda: len(places.addresses()) == 2)
    joined(stack, dispatcher.target, "b")
    until(lambda: len(places.addresses()) == 3)
    first.close()
    until(lambda: places.addresses() == (("127.0.0.1", 1098),) * 2)
    places.want(1)
    until(lambda: places.addresses() == (("127.0.0.1", 1098),))
    places.close()
    until(lambda: not client.status()["trainers"])


def test_seats_of_a_dispatcher_that_is_not_there(stack: ExitStack) -> None:
    places = DispatcherPlaces([("127.0.0.1", free_port())], Credentials.find(), 2)
    stack.callback(places.close)
    began = time.thread_time()
    for _ in range(1000):
        assert places.addresses() == ()
    assert time.thread_time() - began < 0.5
    with pytest.raises(TimeoutError, match=r"did not answer within 0\.1 s \(.*refused"):
        places.wait(0.1)


def test_a_dispatcher_that_begins_again_elsewhere_is_found(
    stack: ExitStack, tmp_path: Path
) -> None:
    """Of two addresses one has the dispatcher, in turn; what was registered, agents and trainers come along."""
    ports = free_port(), free_port()
    target = f"tcp://localhost:{ports[0]},localhost:{ports[1]}"
    client = stack.enter_context(DispatcherClient(target))

    def begun(turn: int) -> DispatchServer:
        config = DispatcherConfig(ports[turn], work_dir=str(tmp_path), fault_tolerant_mode=True)
        return DispatchServer(config)

    dispatcher = begun(1)
    client.register("d", b"payload")
    joined(stack, target, "a")
    places = client.places(1)
    stack.callback(places.close)
    seat = ("127.0.0.1", 1097)
    until(lambda: places.addresses() == (seat,))
    for turn in (0, 1):
        dispatcher.stop()
        dispatcher = begun(turn)
        assert client.dataset("d") == b"payload"
        until(lambda: client.agents() == [seat])
        until(lambda: places.addresses() == (seat,) and len(client.status()["trainers"]) == 1)
    dispatcher.stop()
    with DispatcherClient(target, timeout_s=0.2) as last, pytest.raises(TimeoutError) as caught:
        last.agents()
    assert all(f"localhost:{port}" in str(caught.value) for port in ports)


def test_what_the_dispatcher_answers_is_raised_where_one_waits(stack: ExitStack) -> None:
    dispatcher = stack.enter_context(DispatchServer())
    places = DispatcherPlaces(
        [parse_address(dispatcher.target)], Credentials(b"another token....."), 2
    )
    stack.callback(places.close)
    with pytest.raises(ConnectionError, match="token"):
        places.wait(BOUND_S)


def test_an_agent_that_may_not_join(stack: ExitStack) -> None:
    config = DispatcherConfig(worker_addresses=["127.0.0.1:5", "127.0.0.1:1098"])
    dispatcher = stack.enter_context(DispatchServer(config))
    joined(stack, dispatcher.target, "b")
    with pytest.raises(PermissionError, match=r"not among the dispatcher's worker_addresses"):
        joined(stack, dispatcher.target, "a")
    assert dispatcher._num_workers() == 1


def test_a_worker_that_tells_no_address_is_the_member_of_this_machine(stack: ExitStack) -> None:
    config = DispatcherConfig(worker_addresses=["localhost:%port%"])
    dispatcher = stack.enter_context(DispatchServer(config))
    address = dispatcher.target.partition("://")[2]
    stack.enter_context(WorkerServer(WorkerConfig(address)))
    assert dispatcher._num_workers() == 1


def test_an_agent_looks_for_the_dispatcher_as_long_as_it_is_told(stack: ExitStack) -> None:
    with pytest.raises(TimeoutError, match=r"did not answer within 0\.1 s \(.*refused"):
        joined(stack, f"127.0.0.1:{free_port()}", "a", patience_s=0.1)


class KilledDispatcher:
    """A dispatcher in a process of its own, which is killed and begun again; it listens when this returns."""

    def __init__(self, program: Processes, stack: ExitStack, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.port = free_port()
        self.target = f"tcp://127.0.0.1:{self.port}"
        self.begin()
        stack.callback(self.kill)

    def begin(self) -> None:
        self._pid = self._program.ask("dispatcher", self.port, str(self._folder))
        with DispatcherClient(self.target) as client:
            client.agents()

    def kill(self) -> None:
        self._program.kill(self._pid)


def test_a_dispatcher_that_is_killed_again_and_again(
    program: Processes, stack: ExitStack, tmp_path: Path
) -> None:
    """It goes on with all that it answered; agents join again, and a trainer's seats stay the same meanwhile."""
    dispatcher = KilledDispatcher(program, stack, tmp_path)
    for name in "ab":
        joined(stack, dispatcher.target, name)
    client = stack.enter_context(DispatcherClient(dispatcher.target))
    places = client.places(4)
    stack.callback(places.close)
    until(lambda: len(places.addresses()) == 4)
    seats, registered = places.addresses(), []

    longest = 0.0
    for round_ in range(3):
        registered += [client.register(f"{round_}.{k}", b"%d" % k) for k in range(3)]
        client.scale(round_)
        dispatcher.kill()
        asked = time.perf_counter()
        assert places.addresses() == seats, "the trainer keeps what it has"
        longest = max(longest, time.perf_counter() - asked)
        dispatcher.begin()
        until(lambda: len(client.agents()) == 2)
        until(lambda: places.addresses() and len(client.status()["trainers"]) == 1)
        until(lambda: len(client.status()["trainers"][0]["seats"]) == 4)
        status = client.status()
        assert [each["id"] for each in status["datasets"]] == registered
        assert status["wanted"] == round_
        assert places.addresses() == seats
    assert longest < 0.05


def test_a_trainer_goes_on_while_the_dispatcher_is_gone(
    program: Processes, stack: ExitStack, tmp_path: Path
) -> None:
    """It gets the same elements, and waits for nobody."""
    dispatcher = KilledDispatcher(program, stack, tmp_path)
    for _ in range(2):
        stack.enter_context(WorkerServer(WorkerConfig(dispatcher.target, cores=1)))
    data = td.Dataset.range(2000).map(square, num_parallel_calls=2).batch(10)
    found = []
    served = data.apply(td.service.distribute("distributed_epoch", dispatcher.target))
    for k, batch in enumerate(served):
        found += batch.tolist()
        if k in {40, 120}:
            dispatcher.kill()
        if k in {80, 160}:
            dispatcher.begin()
    assert found == [number * number for number in range(2000)]


def has_more(found: list[str], count: int) -> bool:
    return len(found) > count


def test_every_call_that_was_answered_is_there_after_a_kill(
    program: Processes, stack: ExitStack, tmp_path: Path
) -> None:
    """Calls go on while the dispatcher is killed at any moment: each is answered once it is durable."""
    dispatcher = KilledDispatcher(program, stack, tmp_path)
    client = stack.enter_context(DispatcherClient(dispatcher.target))
    answered: list[str] = []
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            answered.append(client.register(f"d{len(answered)}", b"x" * len(answered)))

    calling = threading.Thread(target=call)
    calling.start()
    for _ in range(3):
        until(partial(has_more, answered, len(answered) + 10))
        dispatcher.kill()
        dispatcher.begin()
    stop.set()
    calling.join()
    found = [each["id"] for each in client.status()["datasets"]]
    assert found == answered
