"""Answers to calls over a connection, each on the listener's thread, or later from any thread.

A caller whose connection ended repeats its unanswered requests, so a handler may be called twice for one request:
the second call must have the same effect, or none.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.service.connections.handshake import is_silent
from tundish.loader.service.connections.loop import READ, WRITE
from tundish.loader.service.connections.mail import Blobs, Mail, encoded
from tundish.loader.service.connections.roles import Accepted, Role

if TYPE_CHECKING:
    from tundish.loader.service.connections.loop import Loop

_MOST_UNSENT = 1 << 30  # bytes of answers that a caller may leave unread
_LOOK_S = 1.0
"""Between looks for callers whose machines have fallen silent."""

Answer = tuple[Mapping[str, Any], Blobs]


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
        blobs of the answer, or a `Later`. An exception in it is raised at the caller.
    left : callable, optional
        Called with the number of a caller whose connection has ended.
    """

    alike = ()

    def __init__(
        self,
        handler: Handler,
        left: Callable[[int], object] | None = None,
    ) -> None:
        self.handle, self._left = handler, left
        self._callers: dict[int, _Served] = {}
        self._numbers = itertools.count(1)
        self._looking = False

    def welcome(self, accepted: Accepted) -> dict[str, Any]:
        return {}

    def attach(self, loop: Loop) -> None:
        self._loop = loop

    def begin(self, accepted: Accepted) -> None:
        number = next(self._numbers)
        self._callers[number] = served = _Served(self._loop, accepted.socket, number, self)
        if not self._looking:
            self._looking = True
            self._loop.later(_LOOK_S, self._look)
        served.advance()

    def _look(self) -> None:
        """Close connections to unresponsive machines; the kernel would retransmit for a quarter of an hour."""
        for each in list(self._callers.values()):
            if is_silent(each.stream):
                each.close()
        self._looking = bool(self._callers)
        if self._looking:
            self._loop.later(_LOOK_S, self._look)

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
        self.stream = stream
        self._mail = Mail(stream, self._arrived)
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
                self._mail.post(encoded({"call": number, "answer": dict(what[0])}, what[1]))
            except (TypeError, ValueError) as error:  # no JSON
                what = error
            else:
                return
        text = f"{type(what).__name__}: {what}"
        self._mail.post(encoded({"call": number, "error": text}, [dumps_exception(what)]))

    def _answer_late(self, number: Any, what: Answer | BaseException) -> None:
        if self._open:
            self._answer(number, what)
            self.advance()
