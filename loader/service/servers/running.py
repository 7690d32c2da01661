"""Start and end of the service's servers."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from tundish.forked import renewed

_AGAIN_S = 0.1


class Running:
    """Parts that run and end together, at the latest with the last reference to their owner: they must have none."""

    def __init__(self, owner: object) -> None:
        self.stopped = threading.Event()
        self._closing = ExitStack()
        self._lock = renewed(threading.RLock())  # garbage may be collected within it
        self._pid = os.getpid()
        weakref.finalize(owner, self.stop)

    def closes(self, close: Callable[[], object]) -> None:
        """Have a function called when it is stopped, before those that were given earlier."""
        self._closing.callback(close)

    def stop(self) -> None:
        """End everything; in a forked child, do nothing: the parts belong to the parent. Safe to call twice."""
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

    def start(self) -> None:
        """Start it, unless it has started."""
        raise NotImplementedError

    def join(self) -> None:
        """Wait until it is stopped: by another thread, or by a signal's handler."""
        self._started().stopped.wait()

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

    def _started(self) -> Running:
        if self._running is None:
            raise RuntimeError(f"the {self._what} is not started; call start()")
        return self._running

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve(server: StartedServer, started: Callable[[], object] = lambda: None) -> None:
    """Run a server until it ends, or until SIGTERM or SIGINT, after which it has ended when this returns.

    `started` is called when it has started.
    """
    told, ended = threading.Event(), threading.Event()

    def stop() -> None:
        while not ended.is_set():  # it may not have started yet
            server.stop()
            ended.wait(_AGAIN_S)

    def tell(*_: object) -> None:
        if not told.is_set():
            told.set()
            # In a thread: the signal may have come within something that holds a lock.
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
