"""Start and end of the service's servers, and the addresses by which they are reached."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, Self

from tundish.forked import renewed
from tundish.loader.service.connections.dialing import resolve

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Address

_AGAIN_S = 0.1
OUTSIDE = ("192.0.2.1", 9)
"""An address of no machine, which stands for all others; nothing is sent to it."""

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - of those that listen everywhere


class Running:
    """The running parts of a server; they do not refer to the server, so that it ends when its last reference goes."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.stopped = threading.Event()
        self._closing = ExitStack()
        self._lock = renewed(threading.RLock())  # garbage may be collected within it
        self._pid = os.getpid()

    def closes(self, close: Callable[[], object]) -> None:
        """Have a function called when it is stopped, before those that were given earlier."""
        self._closing.callback(close)

    def stop(self) -> None:
        """End everything; in a forked child, do nothing: the parts belong to the parent."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            closing = self._closing.pop_all()
        closing.close()
        self.stopped.set()


class StartedServer:
    """A server that a user starts and stops: the part of it that dispatcher and worker have alike."""

    _what = "server"
    _running: Running | None = None

    def stop(self) -> None:
        """Stop it: a worker with its processes, a dispatcher but for its journal. Safe to call twice."""
        if self._running is not None:
            self._running.stop()

    def _stop(self) -> None:
        self.stop()

    def _began(self) -> bool:
        """Return True if it was started; raise if it was stopped since."""
        if self._running is not None and self._running.stopped.is_set():
            raise RuntimeError("this server was stopped; make another")
        return self._running is not None

    def _runs(self, address: Address, close: Callable[[], object]) -> Running:
        """Note that it runs, and what closes it when it is stopped or when nothing refers to it any more."""
        self._running = running = Running(address)
        running.closes(close)
        weakref.finalize(self, running.stop)
        return running

    def _started(self) -> Running:
        if self._running is None:
            raise RuntimeError(f"the {self._what} is not started; call start()")
        return self._running

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def reached_here(address: Address) -> Address:
    """Return the address by which this machine's processes reach what listens at one."""
    return _LOOPBACK.get(address[0], address[0]), address[1]


def reached_there(host: str, towards: Address | None = None) -> str:
    """Return the host by which other machines reach what listens at one.

    Of what listens everywhere it is this machine's name. Many an ``/etc/hosts`` makes that name a loopback address: then
    it is the number of the interface on the way to `towards`, unless that is on this machine, too.
    """
    if host not in _LOOPBACK:
        return host
    name = socket.gethostname()
    if towards is None or not is_loopback(numbered((name, 0))) or is_loopback(numbered(towards)):
        return name
    with contextlib.suppress(OSError):  # there is no way
        family, place = resolve(towards)
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect(place)  # sends nothing
            return str(way.getsockname()[0])
    return name


def is_loopback(address: Address) -> bool:
    """Return True if only processes of this machine reach an address, whose host is a number."""
    try:
        return ipaddress.ip_address(address[0]).is_loopback
    except ValueError:  # a name that cannot be resolved
        return False


def numbered(address: Address) -> Address:
    """Return an address with its host as a number, which needs no look-up; unchanged if this machine cannot resolve it."""
    try:
        place = resolve(address)[1]
    except OSError:
        return address
    return str(place[0]), address[1]


class Server(Protocol):
    """A server that a command runs."""

    def start(self) -> None:
        """Start it."""

    def join(self) -> None:
        """Wait until it is stopped."""

    def stop(self) -> None:
        """Stop it."""


def serve(server: Server, started: Callable[[], object] = lambda: None) -> None:
    """Run a server until it ends, or until SIGTERM or SIGINT, after which it has ended when this returns.

    Parameters
    ----------
    server : Server
        The server, not started.
    started : callable
        Called when it is started.
    """
    told, ended = threading.Event(), threading.Event()

    def stop() -> None:
        while not ended.is_set():  # it may not have started yet
            server.stop()
            ended.wait(_AGAIN_S)

    def tell(*_: object) -> None:
        if (
            not told.is_set()
        ):  # in a thread: the signal may have come within something that holds a lock
            told.set()
            threading.Thread(target=stop, daemon=True).start()

    before = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.start()
        if not told.is_set():
            started()
            server.join()
    except Exception:
        if not told.is_set():  # else it was stopped while it started
            raise
    finally:
        ended.set()
        server.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
