"""A listener of one connection, step by step, a listener with a job, and credentials for tests."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tundish.loader.service.connections.credentials import Address, Credentials
from tundish.loader.service.connections.dialing import Dial, Dialed
from tundish.loader.service.connections.handshake import wait_ready
from tundish.loader.service.connections.listening import Listener
from tundish.loader.service.connections.loop import Loop
from tundish.loader.service.connections.roles import Accepted
from tundish.loader.service.jobs.dealing import ROLE
from tundish.loader.service.jobs.hosting import HostedJob, JobOrder, Jobs, job_wanted

TOKEN = b"a token that only these tests know"
OURS = Credentials(TOKEN)
OTHERS = Credentials(b"a token that nobody else knows..")


@dataclass(frozen=True)
class FixedPlace:
    """A job whose server does not move."""

    where: Address
    credentials: Credentials
    name: str = "j"

    @property
    def wanted(self) -> dict[str, Any]:
        """Return the job, as `listening` serves it."""
        return job_wanted(self.name, "d", "shared", None)

    def address(self, *, received: bool = False) -> Address:
        """Return its address."""
        return self.where


class JobDouble:
    """A job's server that does nothing, is ready when the test says so, and closes when it may."""

    failed: str | None = None
    ended: str | None = None
    gave = False

    def __init__(self, order: JobOrder, payload: bytes, loop: Loop) -> None:
        self.order, self.payload, self.is_ready = order, payload, True
        self.closes, self.closed = threading.Event(), threading.Event()
        self.closes.set()

    def ready(self, timeout_s: float) -> bool:
        """Return True if consumers may come."""
        return self.is_ready

    def consumers(self) -> int:
        """Return how many there are."""
        return 1

    def begin(self, accepted: Accepted) -> None:
        """Refuse a consumer."""
        raise NotImplementedError

    def hang_up(self) -> None:
        """End no connection: there is none."""

    def close(self) -> None:
        """End, when it may."""
        assert self.closes.wait(10)
        self.closed.set()


@contextlib.contextmanager
def listening(
    job: Callable[[Loop], HostedJob], name: str = "j", port: int = 0
) -> Iterator[Address]:
    """Serve a job at an address, under a name."""
    jobs = Jobs(start=lambda order, payload, loop: job(loop))
    with Listener("127.0.0.1", port, OURS, {ROLE: jobs}) as listener:
        listener.start()
        jobs.do([JobOrder(name, "d", "shared")], (), lambda _: b"")
        try:
            assert not jobs.lost()
            yield listener.address
        finally:
            jobs.end()


@contextlib.contextmanager
def answering(behave: Callable[[socket.socket], Any]) -> Iterator[Address]:
    """Have a thread accept connections and behave in some way with each; a connection ends with its function."""
    server = socket.create_server(("127.0.0.1", 0))
    going: list[threading.Thread] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            thread = threading.Thread(target=one, args=(connection,))
            thread.start()
            going.append(thread)

    def one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            behave(connection)

    accepting = threading.Thread(target=serve)
    accepting.start()
    try:
        yield server.getsockname()
    finally:
        server.shutdown(socket.SHUT_RDWR)
        accepting.join()
        for thread in going:
            thread.join()
        server.close()


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def dial(
    address: Address,
    credentials: Credentials,
    role: str,
    ask: Mapping[str, Any],
    blobs: Mapping[str, Any] | None = None,
    *,
    timeout_s: float = 5.0,
) -> Dialed:
    """Connect as `Dial` does, and wait for it; `timeout_s` is for all of it."""
    until = time.monotonic() + timeout_s
    made = Dial(address, credentials, role, ask, blobs)
    try:
        while (result := made.advance()) is None:
            left = min(until, made.deadline + 0.001) - time.monotonic()
            wait_ready(made.fileno(), write=made.wants_write, seconds=max(0.0, left))
            if time.monotonic() > until:
                raise TimeoutError(f"no connection within {timeout_s:g} s")
    finally:
        made.close()
    return result
