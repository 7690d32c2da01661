"""An agent's connection to its dispatcher: joins, sends heartbeats, and starts and stops jobs on request.

A heartbeat is a call that the dispatcher answers when it has a request, or after an interval. So the agent notices at once when the
dispatcher is gone, and a restarted dispatcher has heard from all agents a second later.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tundish.loader.service.connections.credentials import Address, Credentials, show_addresses
from tundish.loader.service.connections.handshake import versions
from tundish.loader.service.dispatching.places import dispatcher_caller
from tundish.loader.service.jobs.hosting import JobOrder

if TYPE_CHECKING:
    from tundish.loader.service.connections.calling import Outstanding
    from tundish.loader.service.jobs.hosting import Jobs, LostJob

_log = logging.getLogger("tundish.service")

_TOLD_S = 5.0
"""The time for which a dispatcher cannot be reached until that is logged."""
_NOTICE_S = 0.5
"""The time for telling the dispatcher that an agent leaves."""


class Joining:
    """Keeps an agent known to a dispatcher, in a thread of its own.

    Parameters
    ----------
    dispatchers : sequence of (str, int)
        The addresses to try; the dispatcher has one of them.
    credentials : Credentials
        The token and certificates.
    agent : dict
        The agent: ``name``, ``address``, ``cores`` and ``host``.
    jobs : Jobs
        The jobs that it serves.
    interval_s : float
        Seconds between heartbeats.
    patience_s : float
        The number of seconds without an answer after which it gives up.
    ended : callable
        Called when it has given up.

    Attributes
    ----------
    error : Exception or None
        The reason why it gave up.
    """

    def __init__(
        self,
        dispatchers: Sequence[Address],
        credentials: Credentials,
        agent: dict[str, Any],
        jobs: Jobs,
        *,
        interval_s: float = 12.0,
        patience_s: float = 3600.0,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        self.error: Exception | None = None
        self._agent = {**agent, "versions": list(versions().values())}
        self._interval_s, self._patience_s = interval_s, patience_s
        self._dispatchers = dispatchers
        self._caller = dispatcher_caller(dispatchers, credentials)
        self._jobs = jobs
        self._joined = threading.Event()
        self._stopping = self._news = False
        self._gone_since = math.inf
        self._starting = threading.Lock()
        self._ended = ended
        self._bell, self._ear = socket.socketpair()
        for end in (self._bell, self._ear):
            end.setblocking(False)
        jobs.changed = self._ring
        self._thread = threading.Thread(target=self._run, daemon=True, name="tundish-joining")

    def start(self) -> None:
        """Join, and rejoin when necessary; `joined` waits for it. Do nothing once it is closed."""
        with self._starting:
            if not self._stopping:
                self._thread.start()

    def joined(self) -> None:
        """Wait until the dispatcher knows the agent.

        Raises
        ------
        Exception
            The reason why it gave up.
        """
        self._joined.wait()
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Leave, and end the jobs that the agent serves. Safe to call twice."""
        if self._stopping:
            return
        with self._starting:
            self._stopping = True
            started = self._thread.ident is not None
        if not started:
            self._end()
            return
        self._ring()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _ring(self) -> None:
        """Have the thread send a heartbeat now; from any thread."""
        with contextlib.suppress(OSError):  # it has ended by itself, or is awake
            self._bell.send(b"!")

    def _run(self) -> None:
        try:
            self._beat()
        except _StoppedError:
            self._leave()
        except Exception as error:  # noqa: BLE001 - `joined` and `join` raise it
            self.error = error
        finally:
            self._end()

    def _end(self) -> None:
        try:
            self._jobs.end()
        finally:
            self._caller.close()
            self._bell.close()
            self._ear.close()
            self._joined.set()
        if not self._stopping:
            self._ended()

    def _beat(self) -> None:
        wait_s = 0.0
        while True:
            self._news = False
            serves, lost = self._jobs.serves(), self._jobs.lost()
            jobs = {"serves": serves, "gave": self._jobs.gave(), **_told_of(lost)}
            request = self._caller.begin("heartbeat", wait_s=wait_s, **self._agent, **jobs)
            if not self._answered(request, news=True):
                self._caller.cancel(request)
                continue
            answer, _ = request.result()
            self._jobs.told(lost)
            self._joined.set()
            wait_s = 0.0 if answer["start"] else self._interval_s
            orders = [JobOrder(**each) for each in answer["start"]]
            self._jobs.do(orders, answer["stop"], self._fetch)

    def _fetch(self, dataset: str) -> bytes:
        request = self._caller.begin("dataset", id=dataset)
        self._answered(request)
        return request.result()[1][0]

    def _leave(self) -> None:
        """Tell the dispatcher, if it hears it soon; it sees the connection's end otherwise."""
        if self._caller.fileno() >= 0:
            request = self._caller.begin("leave", name=self._agent["name"])
            self._wait(request, time.monotonic() + _NOTICE_S, lambda: False)

    def _answered(self, request: Outstanding, *, news: bool = False) -> bool:
        """Wait for the answer to a call; with `news`, return False if a job has ended first, and the dispatcher must hear of it now."""
        until = time.monotonic() + self._patience_s
        self._wait(request, until, lambda: self._stopping or (news and self._news))
        if self._stopping:
            raise _StoppedError
        if request.done or (news and self._news):
            return request.done
        reason = f" ({self._caller.error})" if self._caller.error is not None else ""
        raise TimeoutError(
            errno.ETIMEDOUT,
            f"the dispatcher at {show_addresses(self._dispatchers)} did not answer within "
            f"{self._patience_s:g} s{reason}; this is tried again until dispatcher_timeout_ms has passed",
        )

    def _wait(self, request: Outstanding, until: float, given_up: Callable[[], bool]) -> None:
        """Wait until a call is answered, a time has come, or the bell has rung for what gives it up."""
        self._caller.advance()
        while not (request.done or given_up() or time.monotonic() >= until):
            self._caller.wait(until, self._ear)
            self._listen()
            self._caller.advance()
            self._log_absence()

    def _log_absence(self) -> None:
        """Log once that the dispatcher has been out of reach for a while."""
        error, now = self._caller.error, time.monotonic()
        if error is None:
            self._gone_since = math.inf
        elif self._gone_since == math.inf:
            self._gone_since = now
        elif now - self._gone_since > _TOLD_S:
            self._gone_since = math.nan  # which no time is later than
            _log.warning(
                "the dispatcher at %s cannot be reached (%s); worker %s tries again, for at most %g s",
                show_addresses(self._dispatchers),
                error.strerror or error,
                self._agent["name"],
                self._patience_s,
            )

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._ear.recv(64):
                self._news = True


def _told_of(lost: Mapping[str, LostJob]) -> dict[str, Any]:
    """Return the part of a heartbeat that reports lost jobs."""
    return {
        "failed": {name: each.why for name, each in lost.items() if each.failed},
        "ended": {
            name: {"how": each.why, "gave": each.gave, "life": each.life}
            for name, each in lost.items()
            if not each.failed
        },
        "orders": {name: each.order.wanted for name, each in lost.items()},
    }


class _StoppedError(Exception):
    """The agent is to leave."""
