"""Batches from workers behind TCP connections, against plain TCP: speed, CPU of both ends, small elements, the first one.

Two agents run as processes of this machine, so a core pays for both ends and the network is loopback. The bound is one
process that sends 38.5 MB on and on to another, which receives them into memory that it uses again. The batches of 38.5 MB are
received into slots; making one is a copy of 64 rows.

Claims: at least three quarters of the bound's speed, at most 0.8 s of CPU a GB for both ends and the making, 60,000 elements of
4 KB a second, 20,000 small elements of a shared job a second, and the first element of 8 workers within 0.2 s, with agents that have served before.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
from common import Report, arguments

from tundish import Dataset
from tundish.loader.run.iterator import Iterator as Elements
from tundish.loader.run.pool.crew import crew_of
from tundish.loader.service.connections.credentials import Address, Credentials
from tundish.loader.service.distributing.seats import SeatRecruiting
from tundish.loader.service.jobs.consuming import Consume
from tundish.loader.service.jobs.dealing import Dealing
from tundish.loader.service.jobs.hosting import job_wanted

BATCH, ROW = 64, (3, 224, 224)
BATCH_BYTES = BATCH * int(np.prod(ROW)) * 4
ROWS, WORKERS, MANY = 128, 2, 8
JOB_BYTES = (8, 4096, 65536)
ENDLESS = 1 << 40
TOKEN = b"a token of a benchmark on loopback"

AGENT = """
import sys
from tundish.loader.service.agents.agent import Agent
from tundish.loader.service.connections.credentials import Credentials
with Agent("127.0.0.1", 0, Credentials(sys.argv[1].encode())) as agent:
    print(agent.address[1], flush=True)
    agent.listener.serve()
"""


JOB = """
import sys
import numpy as np
from tundish import Dataset
from tundish.loader.service.connections.credentials import Credentials
from tundish.loader.service.connections.listening import Listener
from tundish.loader.service.jobs.hosting import JobOrder, Jobs
from tundish.loader.service.jobs.jobserver import JobServer
rows = np.zeros((64, int(sys.argv[2])), np.uint8)
dataset = Dataset.range(1 << 40).map(lambda index: rows[index % 64])
jobs = Jobs(start=lambda order, payload, loop: JobServer(dataset, loop, workers=0))
with Listener("127.0.0.1", 0, Credentials(sys.argv[1].encode()), {"job": jobs}) as listener:
    listener.start()
    jobs.do([JobOrder("job", "", "shared")], (), lambda _: b"")
    print(listener.address[1], flush=True)
    sys.stdin.read()
    jobs.end()
"""


class Places:
    """Two agents of this machine."""

    credentials = Credentials(TOKEN)

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses

    def addresses(self) -> Sequence[Address]:
        return self._addresses

    def failed(self, address: Address, error: OSError) -> None:
        raise error


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("service", "Workers behind TCP connections", given)
    rows = np.random.default_rng(0).random((ROWS, *ROW), np.float32)
    plain, large, small, first = [], [], [], []
    shared: dict[int, list[float]] = {nbytes: [] for nbytes in JOB_BYTES}
    with agents(2) as places:
        first_element(places)
        for _ in range(given.rounds):
            plain.append(plain_tcp(given.seconds))
            large.append(batches(places, rows, given.seconds))
            small.append(elements(places, given.seconds))
            first.append(first_element(places))
            for nbytes, rates in shared.items():
                rates.append(dealt(nbytes, given.seconds))
    rate = [gb_s for gb_s, _ in plain], [gb_s for gb_s, _, _ in large]
    report.table(
        "38.5 MB",
        [
            ["way", "GB/s", "CPU s/GB", "of it the trainer's"],
            ["plain TCP", median(rate[0]), median(cpu for _, cpu in plain), ""],
            ["remote workers", median(rate[1]), median(cpu for _, cpu, _ in large), median(own for *_, own in large)],
        ],
    )  # fmt: skip
    share = statistics.median(b / a for a, b in zip(*rate, strict=True))
    report.claim("38.5 MB batches against plain TCP, same round", 0.75, share, least=True)
    report.claim("CPU seconds a GB, both ends", 0.8, statistics.median(cpu for _, cpu, _ in large))
    report.claim(
        "elements of 4 KB a second",
        60_000,
        statistics.median(small),
        least=True,
        show="{:,.0f}".format,
    )
    report.claim(
        "elements of 8 bytes of a shared job a second",
        20_000,
        statistics.median(shared[8]),
        least=True,
        show="{:,.0f}".format,
    )
    report.table(
        "a shared job with one consumer",
        [
            ["bytes of an element", "elements/s", "MB/s"],
            *([f"{n:,}", f"{statistics.median(r):,.0f}", f"{statistics.median(r) * n / 1e6:,.1f}"] for n, r in shared.items()),
        ],
    )  # fmt: skip
    report.claim(
        "seconds to the first element of 8 workers",
        0.2,
        statistics.median(first),
        show="{:.3f}".format,
    )
    return report.finish()


def median(values: Any) -> str:
    return f"{statistics.median(values):.2f}"


@contextlib.contextmanager
def agents(count: int) -> Iterator[Places]:
    command = [sys.executable, "-c", AGENT, TOKEN.decode()]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        ports = [int(each.stdout.readline()) for each in running if each.stdout is not None]
        yield Places([("127.0.0.1", port) for port in ports])
    finally:
        for each in running:
            each.kill()
            each.wait()


def iterate(places: Places, dataset: Any, workers: int) -> Any:
    def hired(*args: Any, **kwargs: Any) -> Any:
        return replace(crew_of(*args, **kwargs), recruiting=partial(SeatRecruiting, places=places))

    with patch("tundish.loader.run.parallelengine.crew_of", hired):
        return dataset.iterator(workers=workers)


def batches(places: Places, rows: np.ndarray, seconds: float) -> tuple[float, float, float]:
    """Return GB a second, CPU seconds a GB of all processes, and of this one."""
    ds = Dataset.range(ENDLESS).map(lambda index: rows[index % ROWS]).batch(BATCH)
    with iterate(places, ds, WORKERS) as iterator:
        for _ in range(6):
            next(iterator)
        pids = [os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))]
        before, own, began, count = cpu_s(pids), cpu_s(pids[:1]), time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            assert next(iterator).shape == (BATCH, *ROW)
            count += 1
        gb, wall = count * BATCH_BYTES / 1e9, time.perf_counter() - began
        return gb / wall, (cpu_s(pids) - before) / gb, (cpu_s(pids[:1]) - own) / gb


def elements(places: Places, seconds: float) -> float:
    rows = np.zeros((64, 1024), np.float32)
    ds = Dataset.range(ENDLESS).map(lambda index: rows[index % 64])
    with iterate(places, ds, WORKERS) as iterator:
        for _ in range(2000):
            next(iterator)
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            for _ in range(100):
                next(iterator)
            count += 100
        return count / (time.perf_counter() - began)


@contextlib.contextmanager
def job(nbytes: int) -> Iterator[Address]:
    """Serve a shared job, in a process of its own, whose elements have so many bytes."""
    command = [sys.executable, "-c", JOB, TOKEN.decode(), str(nbytes)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield "127.0.0.1", int(server.stdout.readline())
        finally:
            server.kill()


def dealt(nbytes: int, seconds: float) -> float:
    """Return how many elements of a shared job its only consumer has a second."""
    with job(nbytes) as address:
        wanted = job_wanted("job", "", "shared", None)
        place: Any = SimpleNamespace(
            address=lambda **_: address, credentials=Places.credentials, wanted=wanted
        )
        plan = Dataset.range(ENDLESS)._node  # noqa: SLF001 - our own
        node = Consume(plan, place, "job", Dealing())
        with Elements(node) as iterator:
            for _ in range(2000):
                next(iterator)
            began, count = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                for _ in range(100):
                    next(iterator)
                count += 100
            return count / (time.perf_counter() - began)


def first_element(places: Places) -> float:
    began = time.perf_counter()
    with iterate(places, Dataset.range(1000).map(lambda index: index + 1), MANY) as iterator:
        assert next(iterator) == 1
        return time.perf_counter() - began


def plain_tcp(seconds: float) -> tuple[float, float]:
    """Return GB a second, and CPU seconds a GB of both processes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = multiprocessing.get_context("spawn").Process(
            target=send, args=(server.getsockname()[1],)
        )
        sender.start()
        connection, _ = server.accept()
    memory = memoryview(bytearray(BATCH_BYTES))
    with connection:
        for _ in range(3):
            receive(connection, memory)
        pids = [os.getpid(), sender.pid or 0]
        before, began, count = cpu_s(pids), time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            receive(connection, memory)
            count += 1
        gb, wall, used = (
            count * BATCH_BYTES / 1e9,
            time.perf_counter() - began,
            cpu_s(pids) - before,
        )
    sender.join()
    return gb / wall, used / gb


def receive(connection: socket.socket, memory: memoryview) -> None:
    at = 0
    while at < len(memory):
        at += connection.recv_into(memory[at:])


def send(port: int) -> None:
    data = np.random.default_rng(0).bytes(BATCH_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as connection, contextlib.suppress(OSError):
        while True:
            connection.sendall(data)


def cpu_s(pids: Sequence[int]) -> float:
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
    return total


if __name__ == "__main__":
    sys.exit(main())
