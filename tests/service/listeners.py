"""A listener of one connection, step by step, and credentials for tests."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tundish.loader.service.connections.credentials import Address, Credentials

TOKEN = b"a token that only these tests know"
OURS = Credentials(TOKEN)
OTHERS = Credentials(b"a token that nobody else knows..")


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
