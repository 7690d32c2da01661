"""Calls over a connection: a request and an answer, each an object of JSON and some blobs.

A caller whose connection ends dials again and repeats its unanswered requests.
"""

from __future__ import annotations

import errno
import itertools
import select
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from tundish.forked import not_inherited
from tundish.loader.protocols.failure import loads_exception
from tundish.loader.service.connections.credentials import Address, Credentials, show_address
from tundish.loader.service.connections.dialing import Dial, Refused
from tundish.loader.service.connections.handshake import is_silent
from tundish.loader.service.connections.loop import READ, WRITE
from tundish.loader.service.connections.mail import Blobs, Mail, encoded

_REDIAL_S = (0.02, 1.0)  # from the first attempt to the last
_LONGEST_S = 60.0
_LOOK_S = 1.0
"""Between looks at a connection that has calls under way, whether its machine has fallen silent."""


class Outstanding:
    """A call that was made; made by `Caller.begin`.

    Attributes
    ----------
    done : bool
        True if it was answered, or never will be.
    answered : bool
        True if it was answered, with a result or with an error.
    """

    def __init__(self, message: list[memoryview], *, again: bool) -> None:
        self.message = message
        self.again = again
        self.done = self.sent = self.answered = False
        self._answer: tuple[dict[str, Any], list[bytes]] = ({}, [])
        self._error: BaseException | None = None

    def finish(self, answer: tuple[dict[str, Any], list[bytes]]) -> None:
        """Note its answer."""
        self.done = self.answered = True
        self._answer = answer

    def fail(self, error: BaseException, *, answered: bool = False) -> None:
        """Note its error: the handler's, or why there will be no answer."""
        self.done, self.answered, self._error = True, answered, error

    def result(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return fields and blobs of the answer; raise the handler's exception."""
        if self._error is not None:
            raise self._error
        return self._answer


class Caller:
    """Calls a role of another process; dials before the first call, and again after the connection has ended.

    `call` waits. Code that must not wait uses `begin`, and `advance` whenever `fileno` is ready or `deadline` has come.

    Parameters
    ----------
    address : (str, int)
        The address of the listener.
    credentials : Credentials
        The token and certificates.
    role : str
        The role, one of `Calls`.
    ask : mapping, optional
        The request of the connection, as JSON.
    others : sequence of (str, int)
        Other addresses where the listener may be: when one cannot be reached, the next one is dialled.
    rest_s : float
        The longest time between attempts to connect.

    Attributes
    ----------
    address : (str, int)
        The address that is dialled now.
    error : OSError or None
        Why there is no connection.
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        role: str,
        ask: Mapping[str, Any] | None = None,
        *,
        others: Sequence[Address] = (),
        rest_s: float = _REDIAL_S[1],
    ) -> None:
        self.address = address
        self._addresses = (address, *others)
        self._rest_s = rest_s
        self.error: OSError | None = None
        self._credentials, self._role, self._ask = credentials, role, dict(ask or {})
        self._numbers = itertools.count(1)
        self._open: dict[int, Outstanding] = {}
        self._dial: Dial | None = None
        self._mail: Mail | None = None
        self._patience = _REDIAL_S[0]
        self._not_before = self._look_at = 0.0
        self._lock = threading.RLock()
        not_inherited(self, Caller._hang_up)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        do: str,
        blobs: Blobs = (),
        timeout_s: float = 30.0,
        *,
        again: bool = True,
        **fields: Any,
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Make a call and wait for its answer.

        Parameters
        ----------
        do : str
            The name of the call.
        blobs : sequence of bytes-like
            Sent with it.
        timeout_s : float
            The time for the call and all attempts to connect.
        again : bool
            False if the request must not be repeated after the connection has ended without an answer.
        **fields : object
            As JSON.

        Raises
        ------
        TimeoutError
            There was no answer; with the last error of the connection.
        Refused
            The other end does not serve this one.
        Exception
            The handler's exception.
        """
        until = time.monotonic() + timeout_s
        with self._lock:
            request = self.begin(do, blobs, again=again, **fields)
            while True:
                self.advance()
                if request.done:
                    return request.result()
                if time.monotonic() >= until:
                    self.cancel(request)
                    raise self._too_late(do, timeout_s)
                self.wait(until)

    def _too_late(self, do: str, timeout_s: float) -> OSError:
        reason = f"; {self.error.strerror}" if self.error is not None else ""
        where = ", ".join(map(show_address, self._addresses))
        text = f"{where} did not answer {do!r} within {timeout_s:g} s{reason}"
        return OSError(errno.ETIMEDOUT, text)

    def begin(
        self, do: str, blobs: Blobs = (), *, again: bool = True, **fields: Any
    ) -> Outstanding:
        """Make a call without waiting; `advance` sends it and finds its answer."""
        if self._mail is not None:
            self.advance()  # the connection may have ended meanwhile
        number = next(self._numbers)
        message = encoded({**fields, "call": number, "do": do}, blobs)
        self._open[number] = request = Outstanding(message, again=again)
        if self._mail is not None:
            self._post(request)
        return request

    def cancel(self, request: Outstanding) -> None:
        """Stop waiting for a call; its answer is ignored."""
        for number, each in list(self._open.items()):
            if each is request:
                del self._open[number]

    def fileno(self) -> int:
        """Return the descriptor to wait for, -1 if there is none now; another one after some calls of `advance`."""
        if self._mail is not None:
            fileno: int = self._mail.stream.fileno()
            return fileno
        return -1 if self._dial is None else self._dial.fileno()

    @property
    def wants_write(self) -> bool:
        """True if it waits until its descriptor is writable."""
        if self._mail is not None:
            return self._mail.waits_to_write
        return self._dial is not None and self._dial.wants_write

    def wait(self, until: float, *bells: socket.socket) -> None:
        """Wait until `advance` is to be called, a bell can be read or a time has come."""
        poll = select.poll()
        for bell in bells:
            poll.register(bell, READ)
        if self.fileno() >= 0:
            poll.register(self.fileno(), READ | WRITE if self.wants_write else READ)
        wait_s = min(until, self.deadline) - time.monotonic()
        poll.poll(max(0.0, min(wait_s, _LONGEST_S)) * 1000 + 0.5)

    @property
    def deadline(self) -> float:
        """When to call `advance` though nothing is ready, by ``time.monotonic``; infinity if never."""
        if not self._open:
            return float("inf")
        if self._mail is not None:
            return self._look_at
        return self._not_before if self._dial is None else self._dial.deadline + 0.001

    def advance(self) -> None:
        """Make all progress that is possible without waiting; `Outstanding.done` and `error` have the results."""
        try:
            if self._mail is None and not self._connect():
                return
            assert self._mail is not None
            self._mail.advance()
            self._look()
        except Refused as error:
            self._hang_up()
            self.error = error
            for request in self._open.values():
                request.fail(error)
            self._open.clear()
        except (OSError, ValueError) as error:
            self._lost(error if isinstance(error, OSError) else OSError(errno.EPROTO, str(error)))

    def _look(self) -> None:
        """Raise if the machine of the other end has fallen silent: the kernel would repeat a call for a quarter of an hour."""
        now = time.monotonic()
        if self._open and now >= self._look_at:
            self._look_at = now + _LOOK_S
            assert self._mail is not None
            if is_silent(self._mail.stream):
                raise OSError(errno.ETIMEDOUT, "the other end's machine does not answer")

    def _connect(self) -> bool:
        """Dial if there are calls to send; return True if there is a connection."""
        if self._dial is None:
            if not self._open or time.monotonic() < self._not_before:
                return False
            self._dial = Dial(self.address, self._credentials, self._role, self._ask)
        dialed = self._dial.advance()
        if dialed is None:
            return False
        self._dial, self.error, self._patience = None, None, _REDIAL_S[0]
        self._mail = Mail(dialed.socket, self._arrived)
        for request in self._open.values():
            self._post(request)
        return True

    def _post(self, request: Outstanding) -> None:
        assert self._mail is not None
        request.sent = True
        self._mail.post(request.message)

    def _arrived(self, head: dict[str, Any], blobs: list[bytes]) -> None:
        request = self._open.pop(head.get("call", 0), None)
        if request is None:
            return  # cancelled
        if "error" in head:
            request.fail(loads_exception(blobs[0]), answered=True)
        else:
            request.finish((head.get("answer", {}), blobs))

    def _lost(self, error: OSError) -> None:
        self._hang_up()
        self.error = error
        after = self._addresses.index(self.address) + 1
        self.address = self._addresses[after % len(self._addresses)]
        if after == len(self._addresses):  # all were tried
            self._not_before = time.monotonic() + self._patience
            self._patience = min(2 * self._patience, self._rest_s)
        for number, request in list(self._open.items()):
            if request.sent and not request.again:
                request.fail(error)
                del self._open[number]

    def _hang_up(self) -> None:
        if self._dial is not None:
            self._dial.close()
        if self._mail is not None:
            self._mail.stream.close()
        self._dial = self._mail = None

    def close(self) -> None:
        """End the connection; calls that were not answered fail. Safe to call twice."""
        with self._lock:
            self._hang_up()
            for request in self._open.values():
                request.fail(ConnectionAbortedError(errno.ECONNABORTED, "the caller was closed"))
            self._open.clear()
