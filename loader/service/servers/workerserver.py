"""`WorkerServer`: a worker of the data service, by tf.data's name."""

from __future__ import annotations

import logging
import os
import secrets
import socket

from tundish.loader.service.agents.agent import Agent
from tundish.loader.service.connections.credentials import (
    Credentials,
    parse_addresses,
    show_address,
    show_addresses,
)
from tundish.loader.service.jobs.dealing import ROLE
from tundish.loader.service.jobs.hosting import Jobs
from tundish.loader.service.servers.addresses import (
    interface,
    is_loopback,
    numbered,
    reached_at,
    reached_there,
)
from tundish.loader.service.servers.configs import WorkerConfig, seconds
from tundish.loader.service.servers.joining import Joining
from tundish.loader.service.servers.running import Running, StartedServer
from tundish.shm.budget import usable_cores

_log = logging.getLogger("tundish.service")


class WorkerServer(StartedServer):
    """A worker of the data service: it runs worker processes for the trainers that the dispatcher sends.

    It accepts connections in a thread, and starts a process for each, which computes for one trainer and
    sends its results directly to that trainer. It joins the dispatcher, and joins again when that has been restarted. It
    ends with `stop`, at the end of its ``with`` block, when nothing refers to it any more, or with its process.

    Parameters
    ----------
    config : WorkerConfig
        The configuration.
    start : bool
        True to start it at once, and wait until it has joined the dispatcher.

    Raises
    ------
    TimeoutError
        The dispatcher did not answer in time.
    PermissionError
        It is not among the dispatcher's `worker_addresses`.
    ValueError
        Another worker has its name.
    OSError
        The port is taken.

    Notes
    -----
    A client that can connect can run any code here. So both ends of a connection prove a token, and by default
    only this machine's processes can connect.
    """

    _what = "worker"
    _agent: Agent
    _joining: Joining | None = None

    def __init__(self, config: WorkerConfig, start: bool = True) -> None:
        self._config = config
        if start:
            self.start()

    def start(self) -> None:
        """Start the worker, unless it has started, and wait until it has joined the dispatcher."""
        if self._began():
            return
        config, credentials = self._config, Credentials.find(self._config.token_file)
        host = config.host
        if host is None and config.worker_address is not None:
            host = reached_at(config.worker_address, 1)[0]
        host = interface(host or "localhost")
        machine = socket.gethostname()
        name = config.name or f"{machine}-{os.getpid()}-{secrets.token_hex(4)}"
        jobs = Jobs(credentials.tls)
        roles = {ROLE: jobs}
        agent = Agent(host, config.port, credentials, name=name, cores=config.cores, roles=roles)
        self._agent, self._running = agent, Running(self)
        self._running.closes(agent.close)
        try:
            agent.start()
            self._join_dispatcher(self._running, credentials, jobs, name, machine)
        except BaseException:
            self.stop()
            raise

    def _join_dispatcher(
        self, running: Running, credentials: Credentials, jobs: Jobs, name: str, machine: str
    ) -> None:
        config, (host, port) = self._config, self._agent.address
        dispatchers = parse_addresses(config.dispatcher_address)
        address = (reached_there(host, dispatchers[0]), port)
        if config.worker_address is not None:
            address = reached_at(config.worker_address, port)
        if is_loopback(numbered(address)) and not any(map(is_loopback, map(numbered, dispatchers))):
            _log.warning(
                "only trainers of this machine reach the worker at %s, and its dispatcher is at %s: to admit others, "
                "give --host, or host= of WorkerConfig",
                show_address(address),
                show_addresses(dispatchers),
            )
        self._joining = joining = Joining(
            dispatchers,
            credentials,
            {
                "name": name,
                "address": list(numbered(address)),
                "told": show_address(address),
                "cores": config.cores or usable_cores(),
                "host": machine,
            },
            jobs,
            interval_s=seconds(config.heartbeat_interval_ms, 12.0),
            patience_s=seconds(config.dispatcher_timeout_ms, 3600.0),
            ended=running.stop,
        )
        running.closes(joining.close)
        joining.start()
        joining.joined()

    def join(self) -> None:
        """Wait until it is stopped, by another thread or by a signal's handler.

        Raises
        ------
        TimeoutError
            The dispatcher was gone for too long.
        """
        super().join()
        if self._joining is not None and self._joining.error is not None:
            raise self._joining.error

    @property
    def _address(self) -> str:
        self._started()
        return show_address(self._agent.address)

    def _num_tasks(self) -> int:
        """Return the number of worker processes that trainers have here."""
        self._started()
        return self._agent.workers
