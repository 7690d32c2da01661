"""A loop of one thread: calls functions when descriptors are ready, when time has passed, and when another thread asks."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from tundish.forked import not_inherited

READ, WRITE = select.POLLIN, select.POLLOUT
LEFT = getattr(select, "POLLRDHUP", 0)
"""The other end of a connection is gone, whether or not bytes of it wait to be read."""

_log = logging.getLogger("tundish.service")
_EVERY_S = 60.0  # between complaints of one kind

Call = Callable[[], object]


class DueCall:
    """A call that is due at some time.

    Attributes
    ----------
    call : callable or None
        None once it was called or cancelled.
    """

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call

    def cancel(self) -> None:
        """Cancel the call."""
        self.call = None


class Loop:
    """Waits for descriptors, timers and other threads, and calls the function that was registered for each.

    Other threads may call only `soon` and `stop`. An error in a call is logged, and the loop continues.
    """

    def __init__(self) -> None:
        self._poll = select.poll()
        self._calls: dict[int, Callable[[int], object]] = {}
        self._masks: dict[int, int] = {}
        self._timers: list[tuple[float, int, DueCall]] = []
        self._numbers = itertools.count()
        self._soon: deque[Call] = deque()
        self._stopped = False
        self._thread: int | None = None
        self._bell, self._ear = socket.socketpair()
        for end in (self._bell, self._ear):
            end.setblocking(False)
        not_inherited(self, Loop.close)
        self.watch(self._ear.fileno(), READ, self._heard)

    def watch(self, fd: int, mask: int, call: Callable[[int], object]) -> None:
        """Call a function with the events of a descriptor, whenever there are some; a second `watch` replaces the first.

        The function may be called although nothing is ready.
        """
        if self._masks.get(fd) != mask:
            self._poll.register(fd, mask)
            self._masks[fd] = mask
        self._calls[fd] = call

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor, before it is closed; one that is not watched is ignored."""
        if self._calls.pop(fd, None) is not None:
            del self._masks[fd]
            self._poll.unregister(fd)

    def later(self, seconds: float, call: Call) -> DueCall:
        """Call a function once, after a time."""
        timer = DueCall(call)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), timer))
        return timer

    def soon(self, call: Call) -> None:
        """Have the loop call a function; from any thread."""
        self._soon.append(call)
        if threading.get_ident() != self._thread:
            with contextlib.suppress(
                OSError
            ):  # full: the loop is awake; closed: the loop has ended
                self._bell.send(b"!")

    def stop(self) -> None:
        """End `run`, or the next one; from any thread."""
        self._stopped = True
        self.soon(lambda: None)

    def run(self) -> None:
        """Wait and call functions until `stop`; functions passed to `soon` before that are still called."""
        self._thread = threading.get_ident()
        try:
            while not self._stopped:
                self._once()
            self._call_soon()  # all that other threads asked for before the end
        finally:
            self._thread = None

    def _once(self) -> None:
        for fd, ready in self._poll.poll(self._patience_ms()):
            if (call := self._calls.get(fd)) is not None:
                self._try(call, ready)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, _, timer = heapq.heappop(self._timers)
            due, timer.call = timer.call, None
            if due is not None:
                self._try(due)
        self._call_soon()

    def _call_soon(self) -> None:
        for _ in range(len(self._soon)):
            self._try(self._soon.popleft())

    def _patience_ms(self) -> float | None:
        if self._soon:
            return 0
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic()) * 1000 + 0.5

    def _try(self, call: Callable[..., object], *arguments: int) -> None:
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001 - one that fails does not end the others
            _log.exception("an error in the loop of the service, which continues")

    def _heard(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._ear.recv(4096):
                continue

    def close(self) -> None:
        """Close the loop's own descriptors; call it when the loop does not run."""
        self._bell.close()
        self._ear.close()


class Complaints:
    """Logs mistakes of other processes: each kind once a minute, with the number of cases since the last time."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def say(self, kind: str, text: str, level: int = logging.WARNING) -> None:
        """Log a text, unless one of its kind was logged within the last minute."""
        now = time.monotonic()
        if now - self._told.get(kind, -_EVERY_S) < _EVERY_S:
            self._untold[kind] = self._untold.get(kind, 0) + 1
            return
        self._told[kind] = now
        more = self._untold.pop(kind, 0)
        _log.log(level, "%s%s", text, f" ({more} more like it since the last time)" if more else "")
