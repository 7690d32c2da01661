"""An HTTP endpoint that Prometheus scrapes, for as long as it is held open."""

from __future__ import annotations

import os
import weakref
from types import NoneType
from typing import TYPE_CHECKING, Any, Self

from tundish.calls import check_is
from tundish.loader.watch.exposition import registry_of
from tundish.loader.watch.summary import StatsAggregator
from tundish.loader.watch.watch import take_no_more, take_of_all

if TYPE_CHECKING:
    from tundish.loader.watch.answering import Answering


class MetricsServer:
    """Serves measurements over HTTP, as text for Prometheus, until it is closed.

    It runs in a thread of this process: one that was asked for. It ends with the process; a forked
    child has no share in it.

    Parameters
    ----------
    port : int
        0: any that is free, which `port` then says.
    host : str
        The address to listen at. The default can only be reached from this machine: the numbers
        name your operators and tags, and anyone who reaches the port can read them.
    aggregator : StatsAggregator, optional
        What is served. None: all iterators of this process that are made from now on, until it is closed.

    Attributes
    ----------
    port : int
        The port at which it listens.
    url : str
        The address to scrape.

    Raises
    ------
    ModuleNotFoundError
        prometheus_client is not installed: ``pip install prometheus_client``.
    TypeError
        `port` is not an int, `host` not a str, or `aggregator` something else.
    ValueError
        `port` is not from 0 to 65535.
    OSError
        The port is in use or not allowed, or `host` is not an address of this machine.

    Examples
    --------
    >>> from urllib.request import urlopen
    >>> import tundish as td
    >>> with td.experimental.serve_metrics() as server:
    ...     _ = list(td.Dataset.range(5))
    ...     text = urlopen(server.url).read().decode()
    >>> [line for line in text.splitlines() if line.startswith("tundish_elements_total")]
    ['tundish_elements_total{dataset=""} 5.0']
    """

    def __init__(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        aggregator: StatsAggregator | None = None,
    ) -> None:
        _check(port, host, aggregator)
        served = StatsAggregator() if aggregator is None else aggregator
        self._of_all = served if aggregator is None else None
        registry = registry_of(served.summary)
        self._server = _listening(port, host, registry)
        self.host, self.port = host, int(self._server.server_port)
        self._open = True
        if self._of_all is not None:
            take_of_all(self._of_all)
        _SERVERS.add(self)

    @property
    def url(self) -> str:
        """The address to scrape."""
        host = f"[{self.host}]" if ":" in self.host else self.host or "localhost"
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop listening, and end the threads; again it does nothing."""
        if not self._open:
            return
        self._open = False
        if self._of_all is not None:
            take_no_more(self._of_all)
        self._server.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MetricsServer {self.url if self._open else 'closed'}>"

    def leave_to_parent(self) -> None:
        """Close, in a forked child, the copy of the socket, which else would keep the port taken."""
        if self._open:
            self._open = False
            if self._of_all is not None:
                take_no_more(self._of_all)
            self._server.socket.close()


def _check(port: Any, host: Any, aggregator: Any) -> None:
    if isinstance(port, bool) or not isinstance(port, int):
        raise TypeError(f"port must be an int, not {type(port).__name__} ({port!r})")
    if not 0 <= port <= 65535:
        raise ValueError(f"port must be from 0 to 65535 (0: any that is free), not {port}")
    check_is(host, str, "host must be a str")
    check_is(
        aggregator, (StatsAggregator, NoneType), "aggregator must be a td.StatsAggregator or None"
    )


def _listening(port: int, host: str, registry: Any) -> Answering:
    from tundish.loader.watch.answering import listening  # noqa: PLC0415 - an extra: `registry_of` has asked

    try:
        return listening(port, host, registry)
    except OSError as problem:
        where = f"{host or '*'}:{port}"
        hint = "; port=0 takes one that is free" if port else ""
        text = f"cannot serve metrics at {where}: {problem.strerror or problem}{hint}"
        raise OSError(problem.errno, text) from problem


_SERVERS: weakref.WeakSet[MetricsServer] = weakref.WeakSet()


def _forked() -> None:
    for server in list(_SERVERS):
        server.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
