"""The HTTP server of `MetricsServer`, which answers each request in a thread."""

from __future__ import annotations

import contextlib
import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

_ANSWERING_S = 1.0


class Answering(ThreadingMixIn, WSGIServer):
    """Answers each request in a daemon thread."""

    def __init__(self, *given: Any) -> None:
        self._serving: threading.Thread | None = None
        self._answers: dict[threading.Thread, socket.socket] = {}
        super().__init__(*given)

    def start(self) -> None:
        """Start answering."""
        self._serving = threading.Thread(
            target=self.serve_forever, name="tundish-metrics", daemon=True
        )
        self._serving.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        # The base class keeps no thread that is a daemon, so closing would not wait for it.
        self._answers = {t: r for t, r in self._answers.items() if t.is_alive()}
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="tundish-metrics-answer",
            daemon=True,
        )
        thread.start()
        self._answers[thread] = request

    def end(self) -> None:
        """Stop listening; finish the requests in progress."""
        if self._serving is not None:
            self.shutdown()
            self._serving.join()
        self.server_close()
        for thread, request in self._answers.items():
            with contextlib.suppress(OSError):  # it is closed
                request.shutdown(socket.SHUT_RD)
            thread.join(_ANSWERING_S)


class _Quiet(WSGIRequestHandler):
    """A request handler that logs nothing."""

    def log_message(self, *_: Any) -> None:
        pass


def listening(port: int, host: str, registry: Any) -> Answering:
    """Listen at an address, and serve a registry.

    Parameters
    ----------
    port : int
        The port; 0 for a free one.
    host : str
        A name or an address, of IPv4 or IPv6.
    registry : prometheus_client.registry.Collector
        The registry to serve.

    Raises
    ------
    OSError
        The address cannot be listened at.
    """
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    server = type("Answering", (Answering,), {"address_family": family})
    made: Answering = make_server(
        str(address[0]), port, make_wsgi_app(registry), server, handler_class=_Quiet
    )
    made.start()
    return made
