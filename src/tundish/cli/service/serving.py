"""``tundish service dispatcher`` and ``worker``: a server that runs until it is stopped."""

from __future__ import annotations

from typing import Any

from tundish.cli.terminal import refuse, say
from tundish.errors import TundishError
from tundish.loader.service.servers.configs import DispatcherConfig, WorkerConfig
from tundish.loader.service.servers.dispatchserver import DispatchServer
from tundish.loader.service.servers.running import serve
from tundish.loader.service.servers.workerserver import WorkerServer


def dispatcher(work_dir: str | None = None, **given: Any) -> int:
    """Run a dispatcher; with a folder it keeps a journal."""
    try:
        config = DispatcherConfig(
            work_dir=work_dir, fault_tolerant_mode=work_dir is not None, **given
        )
        server = DispatchServer(config, start=False)
        serve(server, lambda: say(f"dispatcher at {server.target}"))
    except (TundishError, OSError, ValueError) as error:
        return refuse(str(error))
    return 0


def worker(**given: Any) -> int:
    """Run a worker."""
    try:
        server = WorkerServer(WorkerConfig(**given), start=False)
        joined = f"joined the dispatcher at {given['dispatcher_address']}"
        serve(server, lambda: say(f"worker at {server._address} {joined}"))  # noqa: SLF001 - tf.data's name
    except (TundishError, OSError, ValueError) as error:
        return refuse(str(error))
    return 0
