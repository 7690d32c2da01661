"""A dispatcher and workers in this process, for tests of pipelines that they compute."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tundish import Dataset, service


class Cluster:
    """A dispatcher and workers."""

    def __init__(self, stack: ExitStack, workers: int = 2, **config: Any) -> None:
        self._stack = stack
        self.dispatcher = service.DispatchServer(service.DispatcherConfig(**config))
        stack.callback(self.dispatcher.stop)
        self.target = self.dispatcher.target
        reached = "localhost:%port%" if "worker_addresses" in config else None
        self.workers = [self.add(worker_address=reached) for _ in range(workers)]

    def add(self, **config: Any) -> service.WorkerServer:
        address = self.target.split("://")[1]
        worker = service.WorkerServer(service.WorkerConfig(address, **config))
        self._stack.callback(worker.stop)
        return worker

    def computes(
        self, ds: Dataset, mode: Any = service.ShardingPolicy.DYNAMIC, **more: Any
    ) -> Dataset:
        made: Dataset = ds.apply(service.distribute(mode, self.target, **more))
        return made
