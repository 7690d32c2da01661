"""The process of a shared job, as its agent has it."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tundish.forked import not_inherited
from tundish.loader.run.starting.control import Control, ControlKind, scratch_file
from tundish.loader.run.starting.launcher import launcher, start_method
from tundish.loader.service.connections.loop import READ, WRITE
from tundish.loader.service.jobs.jobmain import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.service.connections.credentials import TlsFiles
    from tundish.loader.service.connections.loop import Loop
    from tundish.loader.service.connections.roles import Accepted
    from tundish.loader.service.jobs.hosting import JobOrder

_log = logging.getLogger("tundish.service")

_PRELOAD = ("tundish.loader.run.parallelengine", "tundish.loader.service.distributing.staff")
"""The modules that the iterator of a job needs, and that its server does not import."""

_ENDING_S = 3.0
"""The time after which a job that was told to end is killed."""
_REPORT_S = 1.0
"""The time that the report of an end may take to come."""
_LOOK_S = 0.02
"""Between looks for it."""


class JobProcess:
    """A job that is served by a process of its own; see `tundish.loader.service.jobs.hosting.HostedJob`.

    The process runs the consumers' functions, and the connections of consumers are its own: no element passes through this process.

    Parameters
    ----------
    order : JobOrder
        The job.
    payload : bytes
        The registration of its dataset.
    loop : Loop
        The loop of the listener to which its consumers connect.
    tls : TlsFiles or None
        The certificates for sessions with consumers.
    changed : callable
        Called when the process has ended by itself; from the loop's thread.

    Attributes
    ----------
    failed : str or None
        The error that has prevented its start.
    ended : str or None
        How the process has ended by itself, once that is known.
    gave : bool
        True if a consumer may have received an element.
    """

    def __init__(
        self,
        order: JobOrder,
        payload: bytes,
        loop: Loop,
        tls: TlsFiles | None,
        changed: Callable[[], object],
    ) -> None:
        self._name, self._loop, self._changed = order.name, loop, changed
        self._consumers = 0
        self.failed: str | None = None
        self.ended: str | None = None
        self.gave = False
        self._settled = threading.Event()
        self._closing = False
        self._socket, theirs = socket.socketpair()
        self._control = control = Control(self._socket)
        not_inherited(self._socket, socket.socket.close)
        weakref.finalize(self, control.close).atexit = False
        kind = start_method()
        file = scratch_file(payload)
        try:
            begins = launcher(1, "spawn" if kind == "fork" else kind)
            begins.preload([main.__module__, *_PRELOAD])
            self._process = begins.start(
                f"{main.__module__}:main",
                [theirs.fileno(), file],
                pickle.dumps((order, tls)),
                hidden=False,
            )
        finally:
            theirs.close()
            os.close(file)
        loop.soon(self._watch)

    def ready(self, timeout_s: float) -> bool:
        """Wait until consumers may come, or it has failed; return False if that takes longer."""
        return self._settled.wait(timeout_s)

    def consumers(self) -> int:
        """Return how many consumers are there, or may come back."""
        return self._consumers

    def close(self) -> None:
        """End the process. Safe to call twice."""
        self._closing = True
        self._shut()
        self._loop.soon(self.hang_up)
        with contextlib.suppress(RuntimeError):  # its launcher could not start
            if self._process.wait_exit(_ENDING_S) is None:
                self._process.kill()
                self._process.wait_exit(_ENDING_S)
        self._process.release()

    # -- on the listener's thread ---------------------------------------------------------------

    def begin(self, accepted: Accepted) -> None:
        """Hand the connection of a consumer over."""
        with accepted.socket as sock:
            if self._control.closed:
                return
            text = pickle.dumps(replace(accepted, socket=None, blobs={}))  # type: ignore[arg-type]
            self._control.send(ControlKind.CONSUMER, text=text, fds=(sock.fileno(),))
        self._watch()

    def hang_up(self) -> None:
        """Close this end of the socket, so that the process ends, with its connections."""
        if self._control.fileno() >= 0:
            self._loop.unwatch(self._control.fileno())
            self._shut()
            self._control.close()

    def _watch(self) -> None:
        if self._control.fileno() >= 0:
            self._control.flush()
            mask = READ | WRITE if self._control.unsent else READ
            self._loop.watch(self._control.fileno(), mask, self._heard)

    def _heard(self, _: int) -> None:
        for message in self._control.receive():
            match message.kind:
                case ControlKind.READY:
                    self._settled.set()
                case ControlKind.FAILED:
                    self.failed = message.text.decode(errors="replace")
                    self._settled.set()
                case ControlKind.CONSUMERS:
                    before, self._consumers = self._consumers, message.value
                    if bool(before) != bool(self._consumers):
                        self._changed()  # a job that nobody uses is forgotten, perhaps before the next heartbeat
                case ControlKind.GIVES:
                    self.gave = True
        if self._control.closed:
            self._ended()
        else:
            self._watch()

    def _ended(self) -> None:
        self.hang_up()
        if not self._closing and self.failed is None:
            self._report(time.monotonic() + _REPORT_S)

    def _report(self, until: float) -> None:
        """Say how a process ended that was not told to, once that is known."""
        try:
            exit_ = self._process.wait_exit(0.0)
        except RuntimeError as error:  # its launcher could not start
            self._over(str(error))
            return
        if exit_ is None and time.monotonic() < until:
            self._loop.later(_LOOK_S, partial(self._report, until))
            return
        how = "its process has ended" + ("" if exit_ is None else f": {exit_.how}")
        if exit_ is not None and exit_.stderr:
            how = f"{how}\n{exit_.stderr}"
        self._over(how)

    def _over(self, how: str) -> None:
        if self._settled.is_set():
            _log.warning("job %r: %s", self._name, how)
            self.ended = how
        else:
            self.failed = how
            self._settled.set()
        self._changed()

    def _shut(self) -> None:
        """Shut the socket down: a forked child of the user's may have it, too."""
        with contextlib.suppress(OSError):  # it is closed, or the process has ended
            self._socket.shutdown(socket.SHUT_RDWR)
