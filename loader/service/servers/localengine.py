"""The engine of one machine: each agent is a process, a child of this one, which ends with it."""

from __future__ import annotations

import itertools
import json
import logging
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tundish.forked import renewed
from tundish.loader.run.starting.surroundings import command, import_path, interpreter
from tundish.loader.service.servers.configs import DispatcherConfig
from tundish.loader.service.servers.dispatchserver import DispatchServer
from tundish.loader.service.servers.fleet import Fleet

if TYPE_CHECKING:
    from tundish.loader.service.servers.engine import AgentOrder

_log = logging.getLogger("tundish.service")

_ENDING_S = 3.0
"""The time after which an agent that was told to end is killed."""
_LOOK_S = 0.05
"""Between looks for agents that have ended."""

_MAIN = "from tundish.loader.service.servers.agentprocess import main;main()"


class LocalEngine:
    """Runs agents as processes of this machine; each ends when its input does, so none outlives this process."""

    def __init__(self) -> None:
        self._environ = dict(os.environ)  # with the token file of now
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._numbers = itertools.count(1)
        self._prefix = f"local-{os.getpid()}-{secrets.token_hex(4)}"
        self._lock = renewed(threading.Lock())
        self._closed = threading.Event()

    def start(self, order: AgentOrder, count: int = 1) -> list[str]:
        names: list[str] = []
        for _ in range(count):
            name = f"{self._prefix}-{next(self._numbers)}"
            config = {"dispatcher_address": order.dispatcher, "cores": order.cores, "name": name}
            program = [*command(interpreter(), import_path(), _MAIN), json.dumps(config)]
            try:
                process = subprocess.Popen(
                    program,
                    stdin=subprocess.PIPE,
                    env=self._environ,
                    start_new_session=True,  # Ctrl-C is for this process
                )
            except OSError as error:
                if not names:
                    raise
                _log.warning("%d of %d agents could be started: %s", len(names), count, error)
                break
            with self._lock:
                self._agents[name] = process
            names.append(name)
        return names

    def stop(self, names: Sequence[str]) -> None:
        with self._lock:
            found = [self._agents.pop(name) for name in names if name in self._agents]
        for each in found:
            _close_input(each)
        until = time.monotonic() + _ENDING_S
        for each in found:
            try:
                each.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()

    def watch(self, timeout_s: float) -> list[str]:
        until = time.monotonic() + timeout_s
        while not (ended := self._ended()):
            left = until - time.monotonic()
            if left <= 0 or self._closed.wait(min(left, _LOOK_S)):
                break
        return ended

    def _ended(self) -> list[str]:
        with self._lock:
            ended = [name for name, each in self._agents.items() if each.poll() is not None]
            gone = [self._agents.pop(name) for name in ended]
        for each in gone:
            _close_input(each)
        return ended

    def find(self) -> list[str]:
        with self._lock:
            return [name for name, each in self._agents.items() if each.poll() is None]

    def close(self) -> None:
        self._closed.set()


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def local_fleet(workers: int | None = None, cpus_per_worker: int = 1) -> Fleet:
    """Start a dispatcher in this process, and agents as processes of this machine; by default as many as trainers need."""
    dispatcher = DispatchServer(DispatcherConfig())
    try:
        engine = LocalEngine()
        target, stop = dispatcher.target, dispatcher.stop
        return Fleet(engine, target, workers, cores=cpus_per_worker, closes=stop)
    except BaseException:
        dispatcher.stop()
        raise
