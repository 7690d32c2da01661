"""The dispatcher: the costs of a call, how fast it is back after a kill, an agent replaced, and how long a trainer waits then.

Also how soon the workers of a killed trainer are gone, and the memory of an agent's processes after few and after many batches.

Prints one line a measurement with its target, and with ``--json`` all of them. Everything runs on this machine by loopback; an
agent and the dispatcher are processes, the trainer is this one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

import tundish as td
from tundish.loader.service.connections.answering import Later
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.dispatching.datasets import DatasetsInMemory
from tundish.loader.service.dispatching.dispatching import Dispatching, Patience
from tundish.loader.service.dispatching.journal import LocalJournal, NoJournal
from tundish.loader.service.servers.engine import AgentOrder
from tundish.loader.service.servers.localengine import LocalEngine, local_fleet

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, np.dtype[Any]]

AGENTS, TRAINERS = 1000, 256
BOUND_S = 30.0


def until(done: Callable[[], Any]) -> float:
    """Wait for a condition; return the seconds that it took."""
    began = time.perf_counter()
    while not done():
        if time.perf_counter() - began > BOUND_S:
            raise TimeoutError("a measurement that came to no end")
        time.sleep(0.001)
    return time.perf_counter() - began


def journal() -> dict[str, float]:
    """The cost of an entry, with its fsync, and of a bare fsync of as many bytes on the same disk."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        it = LocalJournal(Path(folder) / "journal")
        entry = {"entry": "job", "name": "train", "dataset": "x" * 32, "kind": "shared"}
        taken, bare = [], []
        descriptor = os.open(Path(folder) / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for _ in range(200):
            began = time.perf_counter()
            it.append(entry)
            between = time.perf_counter()
            os.write(descriptor, b"x" * 120)
            os.fsync(descriptor)
            taken.append(between - began)
            bare.append(time.perf_counter() - between)
        os.close(descriptor)
        it.close()
        began = time.perf_counter()
        LocalJournal(Path(folder) / "journal").close()
        opened = time.perf_counter() - began
    return {
        "journal_entry_ms": statistics.median(taken) * 1e3,
        "bare_fsync_ms": statistics.median(bare) * 1e3,
        "journal_of_200_opened_ms": opened * 1e3,
    }


def control() -> dict[str, float]:
    """The dispatcher's CPU for its calls with many agents and trainers, without sockets."""
    now = 0.0
    it = Dispatching(NoJournal(), DatasetsInMemory(), Patience(), clock=lambda: now)

    def beat(k: int) -> None:
        address = [f"10.0.{k // 250}.{k % 250}", 5051]
        found = it.handle(
            {"do": "heartbeat", "name": f"a{k}", "address": address, "cores": 1, "wait_s": 12.0},
            [],
            k,
        )
        assert isinstance(found, Later)

    def ask(k: int, known: Any) -> Any:
        fields = {"do": "seats", "name": f"t{k}", "wanted": 4, "known": known, "wait_s": 30.0}
        return it.handle(fields, [], AGENTS + k)

    began = time.process_time()
    for k in range(AGENTS):
        beat(k)
    joined = time.process_time() - began
    began = time.process_time()
    for k in range(TRAINERS):
        ask(k, None)
    dealt = time.process_time() - began
    it.tick()
    began = time.process_time()
    now = 12.1
    it.tick()  # all heartbeats are answered
    for k in range(AGENTS):
        beat(k)
    beats = time.process_time() - began
    began = time.process_time()
    it.left(7)
    now += 1.1
    it.tick()  # it has not come back
    now += 0.1
    it.tick()  # seats are dealt anew
    redealt = time.process_time() - began
    return {
        "join_us": joined / AGENTS * 1e6,
        "seats_asked_us": dealt / TRAINERS * 1e6,
        "heartbeat_us": beats / AGENTS * 1e6,
        "one_agent_lost_ms": redealt * 1e3,
        "calls_a_second": AGENTS / 12.0 + TRAINERS / 30.0,
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def dispatcher(stack: ExitStack, port: int, folder: str) -> subprocess.Popen[str]:
    """A dispatcher as a process, started as a supervisor would: not waited for."""
    command = [sys.executable, "-m", "tundish", "service", "dispatcher"]
    command += [f"--port={port}", f"--work-dir={folder}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def back(rounds: int) -> dict[str, float]:
    """SIGKILL of the dispatcher until its successor, started at once, answers with all agents, datasets and seats."""
    times, looks = [], []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        port = free_port()
        target = f"tcp://127.0.0.1:{port}"
        process = dispatcher(stack, port, folder)
        engine = LocalEngine()
        stack.callback(engine.close)
        names = engine.start(AgentOrder(target), 2)
        stack.callback(lambda: engine.stop(names))
        client = stack.enter_context(DispatcherClient(target))
        until(lambda: len(client.agents()) == 2)
        for k in range(1000):
            client.register(f"d{k}", b"x")
        places = client.places(2)
        stack.callback(places.close)
        until(lambda: len(places.addresses()) == 2)

        def look() -> bool:
            began = time.perf_counter()
            same = len(places.addresses()) == 2
            looks.append(time.perf_counter() - began)
            assert same, "a trainer keeps its seats while the dispatcher is gone"
            return same

        def whole() -> bool:
            look()
            if len(client.agents()) < 2:
                return False
            status = client.status()
            return (
                len(status["agents"]) == 2
                and len(status["datasets"]) == 1000
                and [len(each["seats"]) for each in status["trainers"]] == [2]
            )

        for _ in range(rounds):
            os.kill(process.pid, signal.SIGKILL)
            began = time.perf_counter()
            process.wait()
            process = dispatcher(stack, port, folder)
            until(whole)
            times.append(time.perf_counter() - began)
    return {
        "dispatcher_back_s": statistics.median(times),
        "dispatcher_back_worst_s": max(times),
        "look_at_seats_worst_ms": max(looks) * 1e3,
    }


def work(number: int) -> Array:
    time.sleep(0.002)
    return np.full(1000, number)


def trained(*, kill: bool) -> float:
    """The longest wait of a trainer for a batch; with `kill` the dispatcher is gone for a quarter of the run."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        port = free_port()
        target = f"tcp://127.0.0.1:{port}"
        process = dispatcher(stack, port, folder)
        engine = LocalEngine()
        stack.callback(engine.close)
        names = engine.start(AgentOrder(target), 2)
        stack.callback(lambda: engine.stop(names))
        client = stack.enter_context(DispatcherClient(target))
        until(lambda: len(client.agents()) == 2)
        data = td.Dataset.range(3000).map(work, num_parallel_calls=2).batch(8)
        gaps, got = [], []
        last = time.perf_counter()
        for k, batch in enumerate(data.apply(td.service.distribute("distributed_epoch", target))):
            gaps.append(time.perf_counter() - last)
            got.append(batch[:, 0].copy())
            if kill and k == 100:
                process.kill()
                process.wait()
            if kill and k == 200:
                dispatcher(stack, port, folder)
            last = time.perf_counter()
        assert (np.concatenate(got) == np.arange(3000)).all()
    return max(gaps[5:]) * 1e3


def stalls(rounds: int) -> dict[str, float]:
    """The longest wait of a trainer with and without a dispatcher that is killed, in turns."""
    found = [(trained(kill=False), trained(kill=True)) for _ in range(rounds)]
    without, killed = (statistics.median(each) for each in zip(*found, strict=True))
    return {"longest_wait_ms": without, "longest_wait_dispatcher_killed_ms": killed}


class Trainer:
    """A trainer of workers elsewhere that takes a batch whenever it can, and how long it waited for each."""

    def __init__(self, stack: ExitStack, agents: int, cores: int) -> None:
        fleet = stack.enter_context(local_fleet(agents, cores))
        fleet.wait(agents)
        data = td.Dataset.range(1 << 40).map(work).batch(8)
        data = data.apply(td.service.distribute("distributed_epoch", fleet.target))
        self._it = stack.enter_context(data.iterator(workers=agents * cores))
        self._number = 0
        until(lambda: self.waits(0.2) and len(self.workers()) == agents * cores)
        self.waits(2.0)

    def waits(self, seconds: float) -> list[float]:
        """Take batches for so long; return the waits, in seconds."""
        found = []
        now = began = time.perf_counter()
        while now - began < seconds:
            batch = next(self._it)
            found.append(time.perf_counter() - now)
            assert (batch[:, 0] == np.arange(self._number, self._number + 8)).all()
            self._number += 8
            now = time.perf_counter()
        return found

    @staticmethod
    def agents() -> list[psutil.Process]:
        """The agents' processes."""
        return [
            each
            for each in psutil.Process().children()
            if each.status() != psutil.STATUS_ZOMBIE
            and any("agentprocess" in part for part in each.cmdline())
        ]

    def workers(self) -> list[psutil.Process]:
        """The processes of the workers."""
        found = []
        for agent in self.agents():
            for each in agent.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    found += [each] * (each.name() == "tundish-worker")
        return found


def silenced(trainer: Trainer) -> list[float]:
    """The waits while a worker of 20 is stopped for 15 s."""
    worker = trainer.workers()[0]
    worker.suspend()
    try:
        return trainer.waits(15.0)
    finally:
        worker.resume()


def killed(victims: Callable[[], list[psutil.Process]], trainer: Trainer) -> list[float]:
    """The waits after one of them is killed, until what replaces it computes."""
    victims()[0].kill()
    return trainer.waits(4.0)


def gaps(rounds: int) -> dict[str, float]:
    """The longest wait beyond the 99th percentile of the waits just before, when nothing was harmed."""
    worst: dict[str, list[float]] = {}
    with ExitStack() as stack:
        trainer = Trainer(stack, agents=5, cores=4)
        for _ in range(rounds):
            harms: dict[str, Callable[[], list[float]]] = {
                "no_kill": lambda: trainer.waits(4.0),
                "worker_killed": lambda: killed(trainer.workers, trainer),
                "agent_killed": lambda: killed(trainer.agents, trainer),
                "workers_silent": lambda: silenced(trainer),
            }
            for name, harm in harms.items():
                p99 = float(np.quantile(trainer.waits(3.0), 0.99))
                worst.setdefault(name, []).append(max(harm()) - p99)
    return {f"gap_{name}_worst_s": max(each) for name, each in worst.items()} | {
        f"gap_{name}_s": statistics.median(each) for name, each in worst.items()
    }


def replaced(rounds: int) -> dict[str, float]:
    """SIGKILL of an agent until another is there."""
    times = []
    with local_fleet(2) as fleet, DispatcherClient(fleet.target) as client:
        fleet.wait(2)
        for _ in range(rounds):
            before = {each["name"] for each in client.status()["agents"]}
            children = psutil.Process().children()
            victims = [c for c in children if any("agentprocess" in part for part in c.cmdline())]
            victims[0].kill()

            def there(before: set[str] = before) -> bool:
                now = {each["name"] for each in client.status()["agents"]}
                return len(now) == 2 and now != before

            times.append(until(there))
    return {"agent_replaced_s": statistics.median(times), "agent_replaced_worst_s": max(times)}


def large(number: int) -> Array:
    return np.full(1 << 16, number)


def trainer_of(target: str) -> None:
    """Take batches without end."""
    data = td.Dataset.range(1 << 40).map(work).batch(8)
    with data.apply(td.service.distribute("distributed_epoch", target)).iterator(workers=4) as it:
        for number, _ in enumerate(it):
            if number == 100:
                print("ready", flush=True)


def below(process: psutil.Process) -> list[psutil.Process]:
    """The workers that are descendants of a process."""
    return [each for each in process.children(recursive=True) if each.name() == "tundish-worker"]


def leaving(rounds: int) -> dict[str, float]:
    """SIGKILL of a trainer until the four workers that two agents ran for it are gone."""
    times = []
    with local_fleet(2, 2) as fleet:
        fleet.wait(2)
        for _ in range(rounds):
            command = [sys.executable, __file__, "--trainer", fleet.target]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
                assert trainer.stdout is not None
                assert trainer.stdout.readline() == "ready\n"
                workers = [each for each in below(psutil.Process()) if each.ppid() != trainer.pid]
                assert len(workers) == 4, workers
                trainer.kill()
                times.append(until(lambda: not any(map(alive, workers))))  # noqa: B023 - called here
    return {"workers_gone_s": statistics.median(times), "workers_gone_worst_s": max(times)}


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def memory() -> dict[str, float]:
    """The private memory of an agent and its two workers after 10, 20 and 100 batches of 33 MB."""
    found = {}
    with local_fleet(1, 2) as fleet:
        fleet.wait(1)
        data = td.Dataset.range(1 << 40).map(large).batch(64)
        data = data.apply(td.service.distribute("distributed_epoch", fleet.target))
        with data.iterator(workers=2) as it:
            for number in range(1, 101):
                assert next(it).shape == (64, 1 << 16)
                if number in {10, 20, 100}:
                    agent = Trainer.agents()[0]
                    processes = [agent, *agent.children(recursive=True)]
                    nbytes = sum(each.memory_full_info().uss for each in processes)
                    found[f"agent_after_{number}_batches_mb"] = nbytes / 1e6
    return found


TARGETS = {
    "workers_gone_worst_s": 0.5,
    "dispatcher_back_worst_s": 2.0,
    "agent_replaced_worst_s": 3.0,
    "gap_worker_killed_worst_s": 0.25,
    "gap_agent_killed_worst_s": 0.25,
    "gap_workers_silent_worst_s": 1.0,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument(
        "--only",
        nargs="*",
        help="journal, control, back, replaced, leaving, memory, stalls, gaps; all by default",
    )
    parser.add_argument("--trainer", metavar="TARGET", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trainer:
        trainer_of(given.trainer)
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "journal": journal,
        "control": control,
        "back": lambda: back(given.rounds),
        "replaced": lambda: replaced(given.rounds),
        "leaving": lambda: leaving(given.rounds),
        "memory": memory,
        "stalls": lambda: stalls(min(given.rounds, 3)),
        "gaps": lambda: gaps(given.rounds),
    }
    found = {k: v for name in given.only or parts for k, v in parts[name]().items()}
    for name, value in found.items():
        target = f"   (target: < {TARGETS[name]:g})" if name in TARGETS else ""
        print(f"{name:34} {value:10.3f}{target}")
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
