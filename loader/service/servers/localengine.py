"""The engine of one machine: each agent is a process, a child of this one, which ends with it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import select
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tundish.forked import not_inherited, renewed
from tundish.loader.run.starting.surroundings import import_path, interpreter
from tundish.loader.service.connections.credentials import TOKEN_FILE
from tundish.loader.service.servers.configs import DispatcherConfig
from tundish.loader.service.servers.dispatchserver import DispatchServer
from tundish.loader.service.servers.fleet import Fleet

if TYPE_CHECKING:
    from tundish.loader.service.servers.engine import AgentOrder

_ENDING_S = 3.0
"""The time after which an agent that was told to end is killed."""

_MAIN = "tundish.loader.service.servers.agentprocess"


@dataclass(eq=False)
class AgentProcess:
    """A process that is an agent; it ends when its input does, so it never outlives this process."""

    process: subprocess.Popen[bytes]
    pidfd: int

    def let_go(self) -> None:
        """Tell it to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def release(self) -> None:
        """Close open resources after the process has ended."""
        self.process.wait()
        self.let_go()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


class LocalEngine:
    """Runs agents as processes of this machine.

    Parameters
    ----------
    token_file : str, optional
        The file of the token that they know; by default the one that this process finds.
    """

    def __init__(self, token_file: str | None = None) -> None:
        self._environ = dict(os.environ)
        if token_file is not None:
            self._environ[TOKEN_FILE] = token_file
        self._agents: dict[str, AgentProcess] = {}
        self._numbers = itertools.count(1)
        self._prefix = f"local-{os.getpid()}-{secrets.token_hex(4)}"
        self._lock = renewed(threading.Lock())
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        not_inherited(self, LocalEngine._forget)
        weakref.finalize(self, _close, self._bell, self._ear)

    def start(self, order: AgentOrder, count: int = 1) -> list[str]:
        names = []
        for _ in range(count):
            name = f"{self._prefix}-{next(self._numbers)}"
            config = {"dispatcher_address": order.dispatcher, "cores": order.cores, "name": name}
            program = (
                f"import sys; sys.path[:] = {import_path()!a}; from {_MAIN} import main; main()"
            )
            command = [interpreter(), "-c", program, json.dumps(config)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, env=self._environ)
            with self._lock:
                self._agents[name] = AgentProcess(process, _pidfd(process.pid))
            names.append(name)
        return names

    def stop(self, names: Sequence[str]) -> None:
        with self._lock:
            found = [self._agents.pop(name) for name in names if name in self._agents]
        for each in found:
            each.let_go()
        until = time.monotonic() + _ENDING_S
        for each in found:
            try:
                each.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
            each.release()

    def watch(self, timeout_s: float) -> list[str]:
        until = time.monotonic() + timeout_s
        while True:
            ended = self._ended()
            left = until - time.monotonic()
            if ended or left <= 0 or self._wait(left):
                return ended

    def _wait(self, seconds: float) -> bool:
        """Wait for the end of an agent; return True if the engine was closed."""
        poll = select.poll()
        poll.register(self._ear, select.POLLIN)
        with self._lock:
            watched = [each.pidfd for each in self._agents.values()]
        for pidfd in watched:
            if pidfd >= 0:
                poll.register(pidfd, select.POLLIN)
        if any(pidfd < 0 for pidfd in watched):
            seconds = min(seconds, 0.05)  # a system without such descriptors
        ready = poll.poll(seconds * 1000 + 0.5)
        return any(fd == self._ear.fileno() for fd, _ in ready)

    def _ended(self) -> list[str]:
        with self._lock:
            ended = [n for n, each in self._agents.items() if each.process.poll() is not None]
            gone = [self._agents.pop(name) for name in ended]
        for each in gone:
            each.release()
        return ended

    def find(self) -> list[str]:
        with self._lock:
            return [n for n, each in self._agents.items() if each.process.poll() is None]

    def close(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.send(b"!")

    def _forget(self) -> None:
        _close(self._bell, self._ear)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        each.close()


def _pidfd(pid: int) -> int:
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1


def local_fleet(workers: int | None = None, cpus_per_worker: int = 1) -> Fleet:
    """Start a dispatcher in this process, and agents as processes of this machine.

    Parameters
    ----------
    workers : int, optional
        The number of agents; by default as many as trainers need.
    cpus_per_worker : int
        The number of seats that an agent offers.
    """
    dispatcher = DispatchServer(DispatcherConfig())
    try:
        engine = LocalEngine()
        target, stop = dispatcher.target, dispatcher.stop
        return Fleet(engine, target, workers, cores=cpus_per_worker, closes=stop)
    except BaseException:
        dispatcher.stop()
        raise
