"""Calls over a connection: a request and an answer, each an object of JSON and some blobs.

A caller whose connection ends dials again and repeats what was not answered, so a handler may be called twice for one request:
it has to do the same again, or nothing.
"""

from __future__ import annotations

import errno
import itertools
import json
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Self

from tundish.forked import not_inherited
from tundish.loader.protocols.failure import dumps_exception, loads_exception
from tundish.loader.service.connections.credentials import Address, Credentials, show_address
from tundish.loader.service.connections.dialing import Dial, Refused
from tundish.loader.service.connections.handshake import NO_SIGNAL, Steps, parsed, take, take_into
from tundish.loader.service.connections.listening import Accepted, Role
from tundish.loader.service.connections.loop import READ, WRITE, Loop

_MOST_HEAD = 16 << 20
_MOST_BYTES = 64 << 30
_MOST_UNSENT = 1 << 30  # bytes of answers that a caller may leave unread
_REDIAL_S = (0.02, 1.0)  # from the first attempt to the last

Blobs = Sequence[Any]
Answer = tuple[Mapping[str, Any], Blobs]


def _message(head: Mapping[str, Any], blobs: Blobs) -> list[memoryview]:
    """Return what is sent: the length of the head, the head, the blobs."""
    views = [memoryview(blob).cast("B") for blob in blobs]
    sizes = {"blobs": [len(view) for view in views]}
    text = json.dumps({**head, **sizes}, separators=(",", ":")).encode()
    if len(text) > _MOST_HEAD:
        raise ValueError(f"{len(text):,} bytes of JSON; a call may have {_MOST_HEAD:,}")
    return [memoryview(len(text).to_bytes(4, "big") + text), *(view for view in views if len(view))]


def _next_message(stream: Any) -> Steps[tuple[dict[str, Any], list[bytes]]]:
    size = int.from_bytes((yield from take(stream, 4)), "big")
    if size > _MOST_HEAD:
        raise ValueError(f"a message of {size:,} bytes; it may have {_MOST_HEAD:,}")
    head = parsed((yield from take(stream, size)))
    sizes = head.pop("blobs", [])
    if not isinstance(sizes, list) or not all(type(n) is int and n >= 0 for n in sizes):
        raise ValueError(f"blobs of {sizes!r} bytes")
    if sum(sizes) > _MOST_BYTES:
        raise ValueError(f"{sum(sizes):,} bytes of blobs")
    blobs: list[Any] = []
    for nbytes in sizes:
        blob = bytearray(nbytes)  # the receiver's own, which it may write
        yield from take_into(stream, memoryview(blob))
        blobs.append(blob)
    return head, blobs


class _Mail:
    """Messages over a stream that does not block."""

    def __init__(self, stream: Any, arrived: Callable[[dict[str, Any], list[bytes]], None]) -> None:
        self.stream = stream
        self.unsent = 0
        self._arrived = arrived
        self._out: deque[memoryview] = deque()
        self._reading = self._read()
        self._reads_by_writing = False

    @property
    def waits_to_write(self) -> bool:
        return bool(self._out) or self._reads_by_writing

    def post(self, message: Iterable[memoryview]) -> None:
        for part in message:
            self._out.append(part)
            self.unsent += len(part)

    def advance(self) -> None:
        """Send and receive as far as possible.

        Raises
        ------
        OSError, ValueError
            The connection has ended, or what came is not understood.
        """
        self._send()
        self._reads_by_writing = next(self._reading)
        self._send()  # answers to what has just come

    def _send(self) -> None:
        while self._out:
            try:
                sent = self.stream.send(self._out[0], NO_SIGNAL)
            except BlockingIOError:
                return
            self.unsent -= sent
            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]

    def _read(self) -> Generator[bool, None, None]:
        while True:
            head, blobs = yield from _next_message(self.stream)
            self._arrived(head, blobs)


# ------------------------------------------------------------------------------------- answering


class Later:
    """An answer that a handler gives later: it returns this, and calls `answer` or `fail` from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._send: Callable[[Answer | BaseException], None] | None = None
        self._what: Answer | BaseException | None = None

    def answer(self, fields: Mapping[str, Any], blobs: Blobs = ()) -> None:
        """Give the answer."""
        self._give((fields, blobs))

    def fail(self, error: BaseException) -> None:
        """Have the caller raise an error."""
        self._give(error)

    def _give(self, what: Answer | BaseException) -> None:
        with self._lock:
            if self._what is not None:
                return  # the first counts
            self._what = what
            send = self._send
        if send is not None:
            send(what)

    def bind(self, send: Callable[[Answer | BaseException], None]) -> None:
        """Say how the answer is sent."""
        with self._lock:
            self._send = send
            what = self._what
        if what is not None:
            send(what)


Handler = Callable[[dict[str, Any], list[bytes], int], "Answer | Later"]


class Calls(Role):
    """A role whose connections carry calls, which are answered on the listener's thread.

    Parameters
    ----------
    handler : callable
        Called with the fields of a request (``"do"`` among them), its blobs and the number of the caller; returns fields and
        blobs of the answer, or a `Later`. What it raises is raised at the caller.
    left : callable, optional
        Called with the number of a caller whose connection has ended.
    """

    alike: tuple[str, ...] = ()

    def __init__(self, handler: Handler, left: Callable[[int], object] | None = None) -> None:
        self._handler, self._left = handler, left
        self._callers: dict[int, _Served] = {}
        self._numbers = itertools.count(1)

    def welcome(self, accepted: Accepted) -> dict[str, Any]:
        return {}

    def attach(self, loop: Loop) -> None:
        self._loop = loop

    def begin(self, accepted: Accepted) -> None:
        number = next(self._numbers)
        self._callers[number] = served = _Served(self._loop, accepted.socket, number, self)
        served.advance()

    def handle(self, fields: dict[str, Any], blobs: list[bytes], caller: int) -> Answer | Later:
        """Call the handler."""
        return self._handler(fields, blobs, caller)

    def gone(self, caller: int) -> None:
        """Forget a caller whose connection has ended."""
        if self._callers.pop(caller, None) is not None and self._left is not None:
            self._left(caller)

    def close(self) -> None:
        for each in list(self._callers.values()):
            each.close()


class _Served:
    """The connection of one caller."""

    def __init__(self, loop: Loop, stream: Any, number: int, role: Calls) -> None:
        self._loop, self._number, self._role = loop, number, role
        self._mail = _Mail(stream, self._arrived)
        self._open = True

    def advance(self, _: int = 0) -> None:
        if not self._open:
            return
        try:
            self._mail.advance()
            if self._mail.unsent > _MOST_UNSENT:
                raise ValueError("it leaves its answers unread")  # noqa: TRY301 - closed below
        except (OSError, ValueError, StopIteration):
            self.close()
            return
        except BaseException:
            self.close()
            raise
        mask = READ | WRITE if self._mail.waits_to_write else READ
        self._loop.watch(self._mail.stream.fileno(), mask, self.advance)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.unwatch(self._mail.stream.fileno())
            self._mail.stream.close()
            self._role.gone(self._number)

    def _arrived(self, head: dict[str, Any], blobs: list[bytes]) -> None:
        number = head.pop("call", None)
        try:
            what: Answer | Later | BaseException = self._role.handle(head, blobs, self._number)
        except Exception as error:  # noqa: BLE001 - it is the caller's to raise
            what = error
        if isinstance(what, Later):
            what.bind(lambda what: self._loop.soon(lambda: self._answer_late(number, what)))
        else:
            self._answer(number, what)

    def _answer(self, number: Any, what: Answer | BaseException) -> None:
        if not isinstance(what, BaseException):
            try:
                self._mail.post(_message({"call": number, "answer": dict(what[0])}, what[1]))
            except (TypeError, ValueError) as error:  # no JSON
                what = error
            else:
                return
        text = f"{type(what).__name__}: {what}"
        self._mail.post(_message({"call": number, "error": text}, [dumps_exception(what)]))

    def _answer_late(self, number: Any, what: Answer | BaseException) -> None:
        if self._open:
            self._answer(number, what)
            self.advance()


# --------------------------------------------------------------------------------------- calling


class Outstanding:
    """A call that was made; made by `Caller.begin`.

    Attributes
    ----------
    done : bool
        True if it was answered, or never will be.
    """

    def __init__(self, message: list[memoryview], *, again: bool) -> None:
        self.message = message
        self.again = again
        self.done = False
        self.sent = False
        self._answer: tuple[dict[str, Any], list[bytes]] = ({}, [])
        self._error: BaseException | None = None

    def finish(self, answer: tuple[dict[str, Any], list[bytes]]) -> None:
        """Note its answer."""
        self.done, self._answer = True, answer

    def fail(self, error: BaseException) -> None:
        """Note its error."""
        self.done, self._error = True, error

    def result(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return fields and blobs of the answer; raise what the handler raised."""
        if self._error is not None:
            raise self._error
        return self._answer


class Caller:
    """Calls a role of another process; dials when something is to be said, and again when the connection ended.

    `call` waits. Who must not wait uses `begin`, and `advance` whenever `fileno` is ready or `deadline` has come.

    Parameters
    ----------
    address : (str, int)
        The address of the listener.
    credentials : Credentials
        The token and certificates.
    role : str
        The role, one of `Calls`.
    ask : dict, optional
        The request with which the connection begins.
    rest_s : float
        The longest time between attempts to connect.
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        role: str,
        ask: Mapping[str, Any] | None = None,
        *,
        rest_s: float = _REDIAL_S[1],
    ) -> None:
        self.address = address
        self._rest_s = rest_s
        self.error: OSError | None = None
        self._credentials, self._role, self._ask = credentials, role, dict(ask or {})
        self._numbers = itertools.count(1)
        self._open: dict[int, Outstanding] = {}
        self._dial: Dial | None = None
        self._mail: _Mail | None = None
        self._patience = _REDIAL_S[0]
        self._not_before = 0.0
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
            What to do.
        blobs : sequence of bytes-like
            Sent with it.
        timeout_s : float
            How long it may take, with all attempts to connect.
        again : bool
            False if the request must not be repeated when the connection ends before the answer came.
        **fields : object
            As JSON.

        Raises
        ------
        TimeoutError
            There was no answer; with the last error of the connection.
        Refused
            The other end does not serve this one.
        Exception
            What the handler raised.
        """
        until = time.monotonic() + timeout_s
        with self._lock:
            request = self.begin(do, blobs, again=again, **fields)
            while True:
                self.advance()
                if request.done:
                    return request.result()
                now = time.monotonic()
                if now >= until:
                    self.cancel(request)
                    raise self._too_late(do, timeout_s)
                wait_s = max(0.0, min(until, self.deadline) - now)
                poll = select.poll()
                if self.fileno() >= 0:
                    poll.register(self.fileno(), READ | WRITE if self.wants_write else READ)
                poll.poll(min(wait_s, 60.0) * 1000 + 0.5)

    def _too_late(self, do: str, timeout_s: float) -> OSError:
        reason = f"; {self.error.strerror}" if self.error is not None else ""
        where = show_address(self.address)
        text = f"{where} did not answer {do!r} within {timeout_s:g} s{reason}"
        return OSError(errno.ETIMEDOUT, text)

    def begin(
        self, do: str, blobs: Blobs = (), *, again: bool = True, **fields: Any
    ) -> Outstanding:
        """Make a call without waiting; `advance` sends it and finds its answer."""
        if self._mail is not None:
            self.advance()  # the connection may have ended meanwhile
        number = next(self._numbers)
        message = _message({**fields, "call": number, "do": do}, blobs)
        self._open[number] = request = Outstanding(message, again=again)
        if self._mail is not None:
            self._post(request)
        return request

    def cancel(self, request: Outstanding) -> None:
        """Wait for a call no more."""
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

    @property
    def deadline(self) -> float:
        """When to call `advance` though nothing is ready, by ``time.monotonic``; infinity if never."""
        if self._mail is not None or not self._open:
            return float("inf")
        return self._not_before if self._dial is None else self._dial.deadline + 0.001

    def advance(self) -> None:
        """Go on as far as possible, without waiting; `Outstanding.done` and `error` say what came of it."""
        try:
            if self._mail is None and not self._connect():
                return
            assert self._mail is not None
            self._mail.advance()
        except Refused as error:
            self._hang_up()
            self.error = error
            for request in self._open.values():
                request.fail(error)
            self._open.clear()
        except (OSError, ValueError) as error:
            self._lost(error if isinstance(error, OSError) else OSError(errno.EPROTO, str(error)))

    def _connect(self) -> bool:
        """Dial, if something is to be said; return True if there is a connection."""
        if self._dial is None:
            if not self._open or time.monotonic() < self._not_before:
                return False
            self._dial = Dial(self.address, self._credentials, self._role, self._ask)
        dialed = self._dial.advance()
        if dialed is None:
            return False
        self._dial, self.error, self._patience = None, None, _REDIAL_S[0]
        self._mail = _Mail(dialed.socket, self._arrived)
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
            request.fail(loads_exception(blobs[0]))
        else:
            request.finish((head.get("answer", {}), blobs))

    def _lost(self, error: OSError) -> None:
        self._hang_up()
        self.error = error
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
