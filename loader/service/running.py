"""Starting and ending, as both servers of the service do it, and the addresses by which they are reached."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tundish.forked import renewed
from tundish.loader.service.dialing import resolve

if TYPE_CHECKING:
    from tundish.loader.service.credentials import Address

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - of those that listen everywhere


class Running:
    """What a server has running; it refers to no server, so one that nobody refers to ends."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.stopped = threading.Event()
        self._closing: list[Callable[[], object]] = []
        self._lock = renewed(threading.Lock())

    def closes(self, close: Callable[[], object]) -> None:
        """Have a function called when it is stopped, before those that were given earlier."""
        self._closing.append(close)

    def check_not_stopped(self) -> None:
        """Raise if it was stopped: a server does not begin twice."""
        if self.stopped.is_set():
            raise RuntimeError("this server was stopped; make another")

    def stop(self) -> None:
        """End everything."""
        with self._lock:
            closing, self._closing = self._closing, []
        while closing:
            closing.pop()()
        self.stopped.set()


def reached_here(address: Address) -> Address:
    """Return the address by which this machine's processes reach what listens at one."""
    return _LOOPBACK.get(address[0], address[0]), address[1]


def reached_there(host: str) -> str:
    """Return the host by which other machines reach what listens at one: this machine's name, if it is everywhere."""
    return socket.gethostname() if host in _LOOPBACK else host


def numbered(address: Address) -> Address:
    """Return an address with a number for its host, which nobody has to look up; as it is, if it is not known here."""
    try:
        place = resolve(address)[1]
    except OSError:
        return address
    return str(place[0]), address[1]
