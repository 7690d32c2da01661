"""One wait for both messages and deaths."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tundish.forked import not_inherited
from tundish.shm.budget import portable

# select.poll and select.epoll agree on these numbers and on all methods but the unit of time.
_READ, _WRITE = 0x1, 0x4
_LOOK_MS = 200.0


class Poller:
    """Waits until one of many descriptors is ready; uses epoll if available, else poll.

    A forked child must not change it, since it would change what its parent waits for. Another thread or a signal handler
    may close it while it waits; the wait then ends.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._waiting = self._closed = False
        self._alarm: list[int] = []  # readable, to wake a thread that waits during `close`
        self._tokens: dict[int, Any] = {}
        not_inherited(self, Poller.close)
        self._poll: Any
        self._wakes = hasattr(select, "epoll") and not portable()  # when a descriptor is added
        if self._wakes:
            self._poll, self._unit = select.epoll(), 1.0
        else:
            self._poll, self._unit = select.poll(), 1000.0

    def register(self, fd: int, token: object, write: bool = False) -> None:
        """Watch a descriptor.

        Parameters
        ----------
        fd : int
            An open descriptor; call `unregister` before closing it.
        token : object
            The name that `poll` returns for it.
        write : bool
            True to wait until it is writable, too. Reading is always waited for.
        """
        if os.getpid() == self._owner:
            self._poll.register(fd, _READ | _WRITE if write else _READ)
            self._tokens[fd] = token

    def modify(self, fd: int, token: object, write: bool = False) -> None:
        """Change a watched descriptor's token, and whether to wait until it is writable."""
        if os.getpid() == self._owner:
            self._poll.modify(fd, _READ | _WRITE if write else _READ)
            self._tokens[fd] = token

    def unregister(self, fd: int) -> None:
        """Stop watching a descriptor; one that is not watched is ignored."""
        if os.getpid() == self._owner and self._tokens.pop(fd, self) is not self:
            self._poll.unregister(fd)

    def poll(self, timeout_s: float | None = None) -> list[tuple[Any, bool, bool]]:
        """Wait until something is ready; without a timeout, as long as necessary.

        Returns
        -------
        list of (token, bool, bool)
            Token, readable (also at an end or an error), and writable for each ready descriptor; empty after the
            timeout.

        Raises
        ------
        ValueError
            The poller is closed.
        """
        timeout = None if timeout_s is None else timeout_s * self._unit
        tokens = self._tokens
        self._waiting = True
        try:
            if self._closed:
                raise ValueError("nothing is waited for any more: it is closed")
            found = self._poll.poll(timeout) if self._wakes else self._polled(timeout)
        finally:
            self._waiting = False
            if self._closed:
                self._let_go()
        ready = []
        for fd, events in found:  # no comprehension: this is called for every answer
            if fd in tokens:
                ready.append((tokens[fd], bool(events & ~_WRITE), bool(events & _WRITE)))
        return ready

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when something is ready; None where the system has none."""
        return self._poll.fileno() if self._wakes and not self._closed else None

    def close(self) -> None:
        """Release the kernel's object. Safe to call twice, and in a forked child."""
        self._tokens.clear()
        first, self._closed = not self._closed, True
        if not self._waiting or os.getpid() != self._owner:
            self._let_go()
        elif first and self._wakes:
            # The kernel keeps it open for the thread that waits in it, possibly for ever: wake that thread to release it.
            reading, writing = os.pipe()
            self._alarm.append(reading)
            os.close(writing)
            try:
                self._poll.register(reading, _READ)
            except (OSError, ValueError):  # the thread has released it: its wait was over
                self._let_go()

    def _polled(self, timeout: float | None) -> list[tuple[int, int]]:
        """Poll; without a timeout, wake up to notice that it was closed, which the system does not report."""
        found: list[tuple[int, int]] = self._poll.poll(_LOOK_MS if timeout is None else timeout)
        while timeout is None and not found and not self._closed:
            found = self._poll.poll(_LOOK_MS)
        return found

    def _let_go(self) -> None:
        if self._wakes:
            self._poll.close()
        with contextlib.suppress(IndexError):  # two may do so at once
            while True:
                os.close(self._alarm.pop())


def describe_exit(code: int) -> str:
    """Return how a process ended, from its exit code: ``SIGKILL (9)`` or ``exit status 3``.

    Parameters
    ----------
    code : int
        The exit status, or minus the number of a signal, as `subprocess` reports it.
    """
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"{signal.Signals(-code).name} ({-code})"
    except ValueError:
        return f"signal {-code}"


def kill_session(session: int) -> None:
    """Kill every process of a session except the caller, if the system can list them.

    Parameters
    ----------
    session : int
        The session's number: the id of a process that exists or has not been waited for.
    """
    killed: set[int] = set()
    while found := set(_members(session)) - killed:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found  # once more: one of them may have started another meanwhile


def _members(session: int) -> Iterator[int]:
    if portable() or not sys.platform.startswith("linux"):
        return
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                # pid (name) state parent group session ...; the name may hold anything
                stat = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                if int(stat[3]) == session and stat[0] not in b"ZX":
                    yield int(folder.name)
