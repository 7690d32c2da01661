"""Dialling without waiting: connects to a listener, proves the token, says HELLO, sends the blobs that are wanted.

An iterator's `next` must not wait for a machine that does not answer, so a `Dial` is a descriptor to wait for among others.
"""

from __future__ import annotations

import errno
import functools
import ipaddress
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from tundish.forked import not_inherited
from tundish.loader.service.connections.credentials import Address, Credentials, show_address
from tundish.loader.service.connections.handshake import (
    PROTOCOL,
    Refused,
    Steps,
    give,
    hear,
    named_error,
    prove,
    tell,
    tune,
    versions,
    wait_ready,
)

__all__ = ["Dial", "Dialed", "Refused", "resolve"]

_PATIENCE_S = 5.0
_GRACES = 4
"""The number of steps that may be checked late and still get their full time; more would help a peer that sends single bytes."""
_STARTING_S = 60.0
"""The time in which a worker's process must begin a session; keepalive notices a machine that is gone."""
_PIECE = 1 << 20
_PROVING = "proving the token to"


@dataclass(frozen=True)
class Dialed:
    """A connection that has become a role's own.

    Attributes
    ----------
    socket : socket.socket
        Not blocking. With TLS it is a `TlsStream`, which has the methods of a socket that a channel uses.
    answer : dict
        The answer of the other end's role.
    """

    socket: socket.socket
    answer: dict[str, Any]


class Dial:
    """A connection that is being made. Nothing here waits, but for a name that was never resolved before (`resolve`).

    Parameters
    ----------
    address : (str, int)
        The address of the listener.
    credentials : Credentials
        The token and certificates.
    role : str
        The role of the connection.
    ask : dict
        The request, as JSON.
    blobs : mapping of str to bytes-like
        By their digests (`digest_of`), the blobs that the other end may want. They must stay as they are.

    Attributes
    ----------
    wants_write : bool
        True if it waits until its descriptor is writable, False until it is readable.
    deadline : float
        By ``time.monotonic``: unless it gets on before, `advance` then raises ``TimeoutError``.

    Raises
    ------
    OSError
        There is no such host, or no descriptor is left.
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        role: str,
        ask: Mapping[str, Any],
        blobs: Mapping[str, Any] | None = None,
    ) -> None:
        self.address = address
        self.wants_write = True
        self._doing = "connecting to"
        self._credentials = credentials
        self._hello = {
            **versions(),
            "protocol": PROTOCOL,
            "role": role,
            "ask": dict(ask),
            "blobs": {name: memoryview(blob).nbytes for name, blob in (blobs or {}).items()},
        }
        self._blobs = dict(blobs or {})
        self._graces = _GRACES
        family, self._place = resolve(address)
        self._stream: Any = socket.socket(family, socket.SOCK_STREAM | _CLOEXEC)
        not_inherited(self, Dial.close)
        self._got_on()
        self._steps = self._make()

    def fileno(self) -> int:
        """Return the descriptor, the same from beginning to end; -1 when closed."""
        return -1 if self._stream is None else self._stream.fileno()

    def advance(self) -> Dialed | None:
        """Go on as far as possible; call it after each readiness, and at the deadline.

        Returns
        -------
        Dialed or None
            The connection; None while it is not there.

        Raises
        ------
        Refused
            The other end does not serve this one; trying again does not help.
        OSError
            There is no connection, or it ended.
        """
        try:
            late = time.monotonic() > self.deadline
            came = late and wait_ready(self.fileno(), write=self.wants_write, seconds=0)
            self.wants_write = next(self._steps)
            if came and self._graces:  # asked late: the other end did go on meanwhile
                self._graces -= 1
                self._got_on()
            if time.monotonic() > self.deadline:
                text = f"no answer within {self._patience_s:g} s"
                raise OSError(errno.ETIMEDOUT, text)  # noqa: TRY301 - named below
        except StopIteration as end:
            result: Dialed = end.value
            return result
        except Refused:
            self.close()
            raise
        except OSError as error:
            self.close()
            forget_names()  # it may have another address by now
            raise named_error(error, self.address, self._doing, self._hint()) from error
        except (KeyError, TypeError, ValueError) as error:
            self.close()
            reason = f"what it answered is not understood ({type(error).__name__}: {error})"
            raise Refused(show_address(self.address), reason) from error
        except BaseException:
            self.close()
            raise
        return None

    def close(self) -> None:
        """Give up. Safe to call twice; what `advance` has returned stays open."""
        if self._stream is not None:
            self._stream.close()

    def _hint(self) -> str:
        """Return the likely reason if the other end leaves before it has sent anything."""
        if self._doing != _PROVING or self._credentials.tls is not None:
            return ""
        return "does it speak TLS, and this end has no certificates? Or is it another service?"

    def _got_on(self, patience_s: float | None = None) -> None:
        self._patience_s = _PATIENCE_S if patience_s is None else patience_s
        self.deadline = time.monotonic() + self._patience_s

    def _make(self) -> Steps[Dialed]:
        where = show_address(self.address)
        yield from self._connect()
        tls = self._credentials.tls
        if tls is not None:
            from tundish.loader.service.connections.tls import TlsStream  # noqa: PLC0415 - few use TLS

            self._doing = "beginning TLS with"
            self._stream = TlsStream(self._stream, tls, server=False)
            yield from self._stream.shake(where)
        self._doing = _PROVING
        yield from prove(self._stream, self._credentials.token, where, dials=True)
        self._doing = "waiting for the answer of"
        self._got_on()
        yield from tell(self._stream, self._hello)
        wanted = (yield from self._hear("want"))["want"]
        for name in wanted:
            blob = memoryview(self._blobs[name]).cast("B")
            for at in range(0, len(blob), _PIECE):
                yield from give(self._stream, blob[at : at + _PIECE])
                self._got_on()
                if at + _PIECE < len(blob):
                    yield True  # the caller has other things to do, too
        answer = yield from self._hear("answer")
        if secret := answer.get("session"):
            yield from self._another_session(bytes.fromhex(secret))
        stream, self._stream = self._stream, None
        return Dialed(cast("socket.socket", stream), answer["answer"])

    def _connect(self) -> Steps[None]:
        sock: socket.socket = self._stream
        sock.setblocking(False)
        tune(sock)
        number = sock.connect_ex(self._place)
        while number in (errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK, errno.EINTR):
            yield True
            number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not number:
                try:
                    sock.getpeername()
                except OSError:  # called before it was ready
                    number = errno.EINPROGRESS
        if number:
            raise OSError(number, os.strerror(number))

    def _hear(self, key: str) -> Steps[dict[str, Any]]:
        """Receive frames up to the one with a key."""
        while True:
            frame = yield from hear(self._stream)
            self._got_on()
            if "refused" in frame:
                raise Refused(show_address(self.address), str(frame["refused"]))
            if key in frame:
                return frame
            if "wait" not in frame:
                raise Refused(
                    show_address(self.address),
                    f"it answered {sorted(frame)} where {key!r} was expected",
                )

    def _another_session(self, secret: bytes) -> Steps[None]:
        from tundish.loader.service.connections.tls import TlsStream, resume  # noqa: PLC0415 - few use TLS

        self._doing = "beginning TLS with a worker of"
        self._got_on(_STARTING_S)
        assert self._credentials.tls is not None
        bare = self._stream.detach()
        self._stream = bare
        self._stream = TlsStream(bare, self._credentials.tls, server=False)
        yield from self._stream.shake(show_address(self.address))
        yield from resume(self._stream, secret, server=False)


_CLOEXEC = getattr(socket, "SOCK_CLOEXEC", 0)


# --------------------------------------------------------------------------------------- names


def resolve(address: Address) -> tuple[socket.AddressFamily, Any]:
    """Return the family and the place of an address, as sockets take it; IPv4 is preferred.

    A name is looked up once in this process, which may take a while, and again when it did not answer. So what must
    not wait is given numbers.

    Raises
    ------
    OSError
        There is no such host.
    """
    host, port = address
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return _looked_up(host, port)
    if number.version == 6:
        return socket.AF_INET6, (host, port, 0, 0)
    return socket.AF_INET, (host, port)


@functools.lru_cache(maxsize=4096)
def _looked_up(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(errno.EHOSTUNREACH, f"{error.strerror}: {host!r}") from error
    family, _, _, _, place = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, place


def forget_names() -> None:
    """Look names up again from now on."""
    _looked_up.cache_clear()
