"""Agents as processes of their own, a list of places, and iterators whose workers are there."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self
from unittest.mock import patch

import psutil
from tests.service.jobprocesses import Processes
from tests.service.listeners import OURS, free_port
from tests.service.waiting import until

from tundish.loader.run.pool.crew import crew_of
from tundish.loader.service.connections.credentials import Address, Credentials
from tundish.loader.service.distributing.seats import Places, SeatRecruiting


class Machine:
    """An agent as a process; `kill` takes its workers along, as the end of a machine does."""

    def __init__(self, program: Processes, environ: dict[str, str]) -> None:
        self._program = program
        self.address: Address = ("127.0.0.1", free_port())
        self.pid = program.ask("agent", self.address[1], environ)

    def workers(self) -> list[psutil.Process]:
        """The processes of its workers."""
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(self.pid).children(recursive=True)
            return [each for each in found if is_worker(each)]
        return []

    def listens(self) -> bool:
        """Return True if it can be reached."""
        with contextlib.suppress(OSError), socket.create_connection(self.address):
            return True
        return False

    def kill(self) -> None:
        self._program.kill(self.pid)


def is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.name() == "tundish-worker")
    return False


@contextlib.contextmanager
def machines(program: Processes, count: int, **environ: str) -> Iterator[list[Machine]]:
    """Start agents, with some environment; in the end they are killed."""
    found = [Machine(program, environ) for _ in range(count)]
    try:
        for each in found:
            until(each.listens, "an agent listens")
        yield found
    finally:
        for each in found:
            each.kill()


class Listed:
    """The places that a list has."""

    def __init__(self, addresses: Sequence[Address], credentials: Credentials = OURS) -> None:
        self.list = list(addresses)
        self.credentials = credentials
        self.failures: list[tuple[Address, str]] = []

    def addresses(self) -> Sequence[Address]:
        return self.list

    def failed(self, address: Address, error: OSError) -> None:
        self.failures.append((address, str(error)))


@contextlib.contextmanager
def remotely(places: Places, local: int = 0) -> Iterator[None]:
    """Have the workers of iterators that begin in here at these places, but for some at home."""
    recruiting = partial(SeatRecruiting, places=places, local=local)

    def hired(*args: Any, **kwargs: Any) -> Any:
        return replace(crew_of(*args, **kwargs), recruiting=recruiting)

    with patch("tundish.loader.run.parallelengine.crew_of", hired):
        yield


class Cutter:
    """Forwards connections to a place, and cuts each after so many bytes that came from there.

    Parameters
    ----------
    to : (str, int)
        The place.
    after : list of int
        After how many bytes each connection is cut, in turn; when it is empty they last.
    """

    def __init__(self, to: Address, after: list[int]) -> None:
        self._to, self._after = to, after
        self.cut = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._server.getsockname()
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._after.clear()
        for thread in self._threads:
            thread.join(30)

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            after = self._after.pop(0) if self._after else None
            self._threads.append(threading.Thread(target=self._forward, args=(near, after)))
            self._threads[-1].start()

    def _forward(self, near: socket.socket, left: int | None) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(self._to) as far:
            while True:
                ready = select.select([near, far], [], [])[0]
                for source in ready:
                    data = source.recv(1 << 16 if left is None or source is near else left)
                    if source is far and left is not None:
                        left -= len(data)
                    (near if source is far else far).sendall(data)
                    if left == 0:
                        self.cut += 1
                        return
                    if not data:
                        return


def worker_count(pids: Sequence[int]) -> int:
    """Return how many of these processes are there."""
    return sum(os.path.exists(f"/proc/{pid}") for pid in pids)  # noqa: PTH110 - quick
