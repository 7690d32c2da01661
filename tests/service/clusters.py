"""A dispatcher and workers, in this process or in one of their own, for tests of pipelines that they compute."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tundish import Dataset, service

_PROGRAM = """
import sys
from tundish import service
dispatcher = service.DispatchServer()
address = dispatcher.target.split("://")[1]
workers = [service.WorkerServer(service.WorkerConfig(address)) for _ in range(2)]
print(dispatcher.target, *(worker._address for worker in workers), flush=True)
sys.stdin.read()
"""


@dataclass
class ReachedCluster:
    """A dispatcher and workers, as pipelines reach them."""

    target: str
    addresses: set[str]
    """Those of the workers."""

    def computes(
        self, ds: Dataset, mode: Any = service.ShardingPolicy.DYNAMIC, **more: Any
    ) -> Dataset:
        made: Dataset = ds.apply(service.distribute(mode, self.target, **more))
        return made


@contextmanager
def cluster_process(**environ: str) -> Iterator[ReachedCluster]:
    """A dispatcher and two workers in a process of their own: tests that change nothing of them may share it."""
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    ) as process:
        try:
            assert process.stdout is not None
            target, *workers = process.stdout.readline().split()
            yield ReachedCluster(target, set(workers))
        finally:
            process.kill()


class Cluster(ReachedCluster):
    """A dispatcher and workers in this process."""

    def __init__(self, stack: ExitStack, workers: int = 2, **config: Any) -> None:
        self._stack = stack
        self.dispatcher = service.DispatchServer(service.DispatcherConfig(**config))
        stack.callback(self.dispatcher.stop)
        super().__init__(self.dispatcher.target, set())
        reached = "localhost:%port%" if "worker_addresses" in config else None
        self.workers = [self.add(worker_address=reached) for _ in range(workers)]

    def add(self, **config: Any) -> service.WorkerServer:
        address = self.target.split("://")[1]
        worker = service.WorkerServer(service.WorkerConfig(address, **config))
        self._stack.callback(worker.stop)
        self.addresses.add(worker._address)
        return worker
