"""The beginning of a worker process that an agent has started for a trainer on another machine."""

from __future__ import annotations

import importlib
import pickle
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.loader.run.starting.surroundings import enter

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import TlsFiles


@dataclass(frozen=True)
class SeatOrder:
    """The order by which an agent starts a worker.

    Parameters
    ----------
    entry, config : str, bytes
        The function that the trainer names, and its argument.
    cwd : str or None
        The trainer's working directory; taken if it is there.
    path : tuple of str
        The trainer's ``sys.path``; its entries that exist here are added after this machine's own.
    tls : TlsFiles or None
        The certificates for a session of the worker's own.
    secret : bytes
        The secret to be proved in it.
    """

    entry: str
    config: bytes
    cwd: str | None = None
    path: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    secret: bytes = b""


def main(fds: list[Any], config: bytes) -> int:
    """Run a worker: the entry that an agent's launcher calls. The connection is the first descriptor."""
    order: SeatOrder = pickle.loads(config)
    enter(order.cwd, order.path)
    if order.tls is not None:
        from tundish.loader.service.connections.tls import resumed  # noqa: PLC0415 - few use TLS

        fds[0] = resumed(socket.socket(fileno=fds[0]), order.tls, order.secret, "the trainer")
    module, _, name = order.entry.partition(":")
    status: int = getattr(importlib.import_module(module), name)(fds, order.config)
    return status
