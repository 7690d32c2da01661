"""A process that is an agent, started by an engine of this machine: ``main`` is run with the configuration as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading

from tundish.loader.service.servers.configs import WorkerConfig
from tundish.loader.service.servers.running import serve
from tundish.loader.service.servers.workerserver import WorkerServer


def main() -> None:
    """Serve until the input ends, which it does with the process that has started this one, or until SIGTERM."""
    worker = WorkerServer(WorkerConfig(**json.loads(sys.argv[1])), start=False)
    threading.Thread(target=_end_with_input, args=(worker,), daemon=True).start()
    serve(worker)


def _end_with_input(worker: WorkerServer) -> None:
    while os.read(0, 4096):
        continue
    worker.stop()
    os._exit(0)
