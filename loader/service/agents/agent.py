"""An agent: gives trainers on other machines worker processes on this one.

Its workers end with it, however it ends: their zygote watches it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from tundish.loader.service.agents.seats import Seats
from tundish.loader.service.connections.credentials import Address, Credentials, show_address
from tundish.loader.service.connections.listening import Listener
from tundish.shm.budget import default_budget, usable_cores

if TYPE_CHECKING:
    from tundish.loader.service.connections.roles import Role

WORKERS_PER_CORE = 16
"""Seats are shared where trainers want more than there are; an agent that is asked for so many is asked by mistake."""


class Agent:
    """Gives trainers on other machines worker processes on this one.

    Parameters
    ----------
    host, port : str, int
        The interface on which to listen, and the port; port 0 draws a free one.
    credentials : Credentials
        The token and certificates.
    name : str, optional
        Its name, for errors and lists. By default the host's name and the port.
    payload_bytes : int, optional
        How many bytes of what functions and sources of pipelines hold to keep. By default a quarter of the memory.
    cores : int, optional
        The number of its cores. It runs at most sixteen workers for each, whatever trainers and dispatchers ask for. By
        default those of this process.
    roles : mapping of str to Role, optional
        What else its connections may be for.

    Attributes
    ----------
    address : (str, int)
        Its address.
    """

    def __init__(
        self,
        host: str,
        port: int,
        credentials: Credentials,
        *,
        name: str | None = None,
        payload_bytes: int | None = None,
        cores: int | None = None,
        roles: Mapping[str, Role] | None = None,
    ) -> None:
        if payload_bytes is None:
            payload_bytes = default_budget().limit // 4
        most_workers = WORKERS_PER_CORE * (usable_cores() if cores is None else cores)
        self.seats = Seats(payload_bytes, most_workers, credentials.tls)
        self.listener = Listener(host, port, credentials, {"seat": self.seats, **(roles or {})})
        self.address: Address = self.listener.address
        host_and_port = show_address((socket.gethostname(), self.address[1]))
        self.name = self.seats.name = name or host_and_port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workers(self) -> int:
        """The number of its workers."""
        return len(self.seats.taken)

    def start(self) -> threading.Thread:
        """Serve in a thread of its own."""
        return self.listener.start()

    def close(self) -> None:
        """End it and its workers. Safe to call twice."""
        self.listener.close()
