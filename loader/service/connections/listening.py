"""Listening: accepts connections, has each prove the token, and gives it to the role that it asks for.

One thread serves all connections, with bounds on memory, descriptors and time. An unproven connection has 5 s. When there are 256
of them, the oldest is closed for the next one, so a client that knows the token and proves it at once gets through.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from tundish.forked import not_inherited
from tundish.loader.service.connections.credentials import Address, Credentials, show_address
from tundish.loader.service.connections.handshake import (
    Refused,
    Steps,
    check_versions,
    framed,
    give,
    hear,
    prove,
    take_into,
    tell,
    tune,
)
from tundish.loader.service.connections.loop import LEFT, READ, WRITE, Complaints, Loop
from tundish.loader.service.connections.roles import Accepted, Role

_MOST_UNPROVEN = 256
_PATIENCE_S = 5.0
_SWEEP_S = 0.25
_WAIT_S = 1.0  # between messages that tell a dialer to wait
_SHORT_S = 0.1  # without descriptors, until the next attempt
_BACKLOG = 1024
_AT_A_TIME = 64
_PIECE = 1 << 20
_DIGEST = 32  # characters
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(eq=False)
class _Incoming:
    """A connection that belongs to no role yet."""

    stream: Any
    peer: str
    steps: Any = None
    deadline: float = field(default_factory=lambda: time.monotonic() + _PATIENCE_S)
    proven: bool = False
    parked: bool = False
    mask: int = 0


class Listener:
    """Accepts connections and gives them to roles.

    Parameters
    ----------
    host, port : str, int
        The interface and port; port 0 draws a free one.
    credentials : Credentials
        The token and certificates.
    roles : mapping of str to Role
        What connections may be for.

    Attributes
    ----------
    address : (str, int)
        Its address.
    loop : Loop
        The loop that it runs in, for a role's own descriptors and clocks.
    """

    def __init__(
        self, host: str, port: int, credentials: Credentials, roles: Mapping[str, Role]
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server(
                (host, port),
                family=family,
                backlog=_BACKLOG,
                dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
            )
        except OSError as error:
            where = show_address((host, port))
            raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from error
        self._socket.setblocking(False)
        not_inherited(self._socket, socket.socket.close)
        name = self._socket.getsockname()
        self.address: Address = (name[0], name[1])
        self.loop = Loop()
        self._credentials = credentials
        self._roles = dict(roles)
        self._incoming: dict[_Incoming, None] = {}  # in the order in which they came
        self._complaints = Complaints()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._ending = threading.Lock()
        self._ended = False
        self._sweeping = False
        self.loop.watch(self._socket.fileno(), READ, self._accept)
        for role in dict.fromkeys(self._roles.values()):
            role.attach(self.loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> threading.Thread:
        """Serve in a thread of its own.

        Raises
        ------
        RuntimeError
            It was closed.
        """
        thread = threading.Thread(target=self.serve, daemon=True, name="tundish-service")
        with self._starting:  # a thread that has not started cannot be waited for
            if self._ended:
                raise RuntimeError("this listener was closed; make another")
            thread.start()
            self._thread = thread
        return thread

    def serve(self) -> None:
        """Serve in this thread until `close`."""
        try:
            self.loop.run()
        finally:
            self._end()

    def close(self) -> None:
        """End the listener, with all connections. Safe to call twice, and from any thread."""
        self.loop.stop()
        with self._starting:
            thread = self._thread
            if thread is None:
                self._end()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _end(self) -> None:
        with self._ending:
            if self._ended:
                return
            self._ended = True
        self._socket.close()
        for each in list(self._incoming):
            self._drop(each)
        for role in dict.fromkeys(self._roles.values()):
            role.close()
        self.loop.close()

    # ------------------------------------------------------------------------------- accepting

    def _accept(self, _: int) -> None:
        for _ in range(_AT_A_TIME):
            try:
                sock, place = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _SHORT:
                    self._short(error)
                    return
                continue  # that one left before it was accepted
            self._add(sock, show_address(place[:2]))

    def _short(self, error: OSError) -> None:
        """Accept nothing for a moment: a waiting connection would wake the poll again at once."""
        self._complaints.say(
            "short",
            f"{self._here()} cannot accept connections: {os.strerror(error.errno or 0)}; it tries again "
            f"every {_SHORT_S} s. Raise the limit (ulimit -n)",
        )
        unproven = [each for each in self._incoming if not each.proven]
        for each in unproven[: len(unproven) // 2]:
            self._drop(each)
        self.loop.unwatch(self._socket.fileno())
        self.loop.later(
            _SHORT_S, partial(self.loop.watch, self._socket.fileno(), READ, self._accept)
        )

    def _add(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        tune(sock)
        unproven = [each for each in self._incoming if not each.proven]
        if len(unproven) >= _MOST_UNPROVEN:
            self._complaints.say(
                "many",
                f"{self._here()} has {_MOST_UNPROVEN} connections that have not proved the token; it closes "
                f"the oldest, of {unproven[0].peer}",
            )
            self._drop(unproven[0])
        each = _Incoming(sock, peer)
        each.steps = self._welcome(each)
        self._incoming[each] = None
        if not self._sweeping:
            self._sweeping = True
            self.loop.later(_SWEEP_S, self._sweep)
        self._advance(each)

    def _sweep(self) -> None:
        """Close connections that take too long; tell parked ones that they still have to wait."""
        now = time.monotonic()
        for each in list(self._incoming):
            if each.parked:
                if now > each.deadline:
                    self._advance(each)
            elif now > each.deadline:
                what = "get on" if each.proven else "prove the token"
                self._complain(each, "slow", f"it did not {what} within {_PATIENCE_S:g} s")
                self._drop(each)
        self._sweeping = bool(self._incoming)
        if self._sweeping:
            self.loop.later(_SWEEP_S, self._sweep)

    def _here(self) -> str:
        return f"tundish's service at {show_address(self.address)}"

    def _complain(
        self, each: _Incoming, kind: str, reason: str, level: int = logging.WARNING
    ) -> None:
        text = f"{self._here()} closed a connection of {each.peer}: {reason}"
        self._complaints.say(kind, text, level)

    def _drop(self, each: _Incoming) -> None:
        if self._incoming.pop(each, self) is self:
            return
        self.loop.unwatch(each.stream.fileno())
        each.steps.close()
        each.stream.close()
        self._revive()

    # ------------------------------------------------------------------------------- a connection

    def _advance(self, each: _Incoming, ready: int = 0) -> None:
        if each not in self._incoming:
            return
        try:
            if each.parked and ready:
                raise ConnectionResetError(errno.ECONNRESET, "it left")  # noqa: TRY301 - told below
            write = next(each.steps)
        except StopIteration:
            self._incoming.pop(each, None)
            self._revive()
        except Refused as error:
            self._complain(
                each, "stranger" if "token" not in error.reason else "token", error.reason
            )
            self._drop(each)
        except (ValueError, TypeError, KeyError, MemoryError) as error:
            self._complain(each, "request", f"{type(error).__name__}: {error}")
            self._drop(each)
        except OSError as error:
            self._complain(each, "left", error.strerror or str(error), logging.INFO)
            self._drop(each)
        except BaseException:
            self._drop(each)
            raise
        else:
            mask = LEFT if each.parked else WRITE if write else READ
            self.loop.watch(each.stream.fileno(), mask, partial(self._advance, each))

    def _revive(self) -> None:
        """Ask again for connections that wait for a blob which another connection was to bring."""
        for each in list(self._incoming):
            if each.parked:
                self.loop.soon(partial(self._advance, each))

    def _welcome(self, each: _Incoming) -> Steps[None]:
        tls = self._credentials.tls
        if tls is not None:
            from tundish.loader.service.connections.tls import TlsStream  # noqa: PLC0415 - few use TLS

            try:
                tls.context(server=True)
            except OSError as error:  # certificates that were exchanged since it started
                self._complain(each, "certificates", f"its own certificates are not right: {error}")
                raise
            each.stream = TlsStream(each.stream, tls, server=True)
            yield from each.stream.shake(each.peer)
        yield from prove(each.stream, self._credentials.token, each.peer, dials=False)
        self._got_on(each)
        each.proven = True
        hello = yield from hear(each.stream)
        self._got_on(each)
        try:
            role, blobs = self._understood(hello)
            role.check(hello)
            wanted = yield from self._lacking(each, role, blobs)
        except (ValueError, OSError) as error:
            yield from self._refuse(each, error)
            return
        received = yield from self._receive(each, role, {name: blobs[name] for name in wanted})
        accepted = Accepted(each.stream, hello, received, each.peer)
        try:
            envelope: dict[str, Any] = {"answer": role.welcome(accepted)}
            if tls is not None and role.hands_over:
                accepted.secret = secrets.token_bytes(32)
                envelope["session"] = accepted.secret.hex()
            frame = framed(envelope)
        except ConnectionError:  # it may try again
            raise
        except (ValueError, OSError) as error:
            yield from self._refuse(each, error)
            return
        yield from give(each.stream, frame)
        self.loop.unwatch(each.stream.fileno())
        if accepted.secret:
            accepted.socket = each.stream.detach()
        role.begin(accepted)

    def _got_on(self, each: _Incoming) -> None:
        each.deadline = time.monotonic() + _PATIENCE_S

    def _understood(self, hello: dict[str, Any]) -> tuple[Role, dict[str, int]]:
        """Return the role that a HELLO asks for, and the sizes of its blobs."""
        name = hello.get("role")
        role = self._roles.get(name) if isinstance(name, str) else None
        check_versions(hello, role.alike if role is not None else (), self._here())
        if role is None:
            raise ValueError(
                f"{self._here()} has no role {name!r}, but {', '.join(map(repr, sorted(self._roles)))}; "
                "is this the address of another part of the service?"
            )
        blobs = hello.setdefault("blobs", {})
        if not isinstance(hello.setdefault("ask", {}), dict) or not isinstance(blobs, dict):
            raise ValueError("HELLO's ask or blobs are not objects")  # noqa: TRY004 - received
        for digest, nbytes in blobs.items():
            if len(digest) != _DIGEST or type(nbytes) is not int or nbytes < 0:
                raise ValueError(f"a blob {digest!r} of {nbytes!r} bytes")
        return role, blobs

    def _refuse(self, each: _Incoming, error: Exception) -> Steps[None]:
        reason = str(error)
        self._complain(each, "refused", reason)
        yield from tell(each.stream, {"refused": reason[:16_000]})
        self.loop.unwatch(each.stream.fileno())
        each.stream.close()

    def _lacking(self, each: _Incoming, role: Role, blobs: dict[str, int]) -> Steps[list[str]]:
        while (wanted := role.lacks(blobs)) is None:
            each.parked = True
            each.deadline = time.monotonic() + _WAIT_S
            yield False
            each.parked = False
            if time.monotonic() > each.deadline:
                yield from tell(each.stream, {"wait": True})
        self._got_on(each)
        return wanted

    def _receive(self, each: _Incoming, role: Role, sizes: dict[str, int]) -> Steps[dict[str, Any]]:
        received: dict[str, Any] = {}
        try:
            yield from tell(each.stream, {"want": list(sizes)})
            for digest, nbytes in sizes.items():
                place = role.place(digest, nbytes)
                view, found = memoryview(place).cast("B"), hashlib.blake2b(digest_size=_DIGEST // 2)
                for at in range(0, nbytes, _PIECE):
                    piece = view[at : at + _PIECE]
                    yield from take_into(each.stream, piece)
                    found.update(piece)
                    self._got_on(each)
                    if at + _PIECE < nbytes:
                        yield True  # others have their turn
                _check_digest(digest, found.hexdigest())
                received[digest] = place
        except BaseException:
            for digest in sizes:
                role.spoilt(digest)
            raise
        return received


def _check_digest(wanted: str, found: str) -> None:
    if wanted != found:
        raise ValueError(f"a blob of digest {found} came where the one of {wanted} was wanted")
