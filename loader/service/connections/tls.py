"""TLS over a connection: a stream that has the methods of a socket that channels use.

A session cannot be handed to another process, so each worker has its own. After HELLO the agent ends its session and gives the
worker the bare connection. The worker and the trainer begin another session there, and prove a secret that was sent within the
first one. No byte of a batch passes through the agent, and none is readable on the way.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tundish.loader.service.connections.handshake import (
    NONCE,
    Refused,
    Steps,
    finish,
    give,
    take,
    wait_ready,
)

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import TlsFiles

_RECORD = 16 << 10  # bytes that one record of TLS carries; sending less costs as much
_DONT_WAIT = getattr(socket, "MSG_DONTWAIT", 0)
_PATIENCE_S = 60.0
"""The time in which the other end must begin a process's own session; it may do something else meanwhile."""


class _Session(ssl.SSLSocket):
    """A session over a connected socket; if the socket is no longer connected, the handshake fails with that reason."""

    def getpeername(self) -> Any:
        try:
            return super().getpeername()
        except OSError:  # `ssl` would treat the socket as one that is still to be connected
            return None


class TlsStream:
    """One end of a TLS session, used as a socket is used.

    Each call sends its data in separate records. So after a whole message was received, no decrypted bytes remain that the
    descriptor does not announce. A stream has one user at a time, as a channel has. The socket below never blocks. A blocking
    stream (`setblocking`) waits by itself, so a record that has partly arrived never blocks a caller that does not wait.

    Parameters
    ----------
    sock : socket.socket
        A connected socket, which the stream takes over.
    files : TlsFiles
        The certificates.
    server : bool
        True for the end that was dialled.

    Attributes
    ----------
    waits_to_write : bool
        True if the last call that would have blocked waits to write.
    """

    type = socket.SOCK_STREAM

    def __init__(self, sock: socket.socket, files: TlsFiles, *, server: bool) -> None:
        sock.setblocking(False)
        self.waits_to_write = False
        self._blocking = False
        context = files.context(server=server)
        context.sslsocket_class = _Session
        self._tls = context.wrap_socket(sock, server_side=server, do_handshake_on_connect=False)

    def shake(self, where: str) -> Steps[None]:
        """Begin the session.

        Raises
        ------
        Refused
            The other end does not speak TLS, or its certificate is not of the authority.
        OSError
            The connection has ended.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                yield False
            except ssl.SSLWantWriteError:
                yield True
            except ssl.SSLEOFError as error:  # it may have been killed
                text = "the other end left; does it speak TLS?"
                raise ConnectionResetError(errno.ECONNRESET, text) from error
            except ssl.SSLError as error:
                raise Refused(where, _failed(error)) from error
            else:
                return

    def detach(self) -> socket.socket:
        """Return the bare socket; nothing of the session may be on the way."""
        return socket.socket(fileno=self._tls.detach())

    def __getattr__(self, name: str) -> Any:
        if name in ("fileno", "getpeername", "getsockname", "getsockopt", "setsockopt", "close"):
            return getattr(self._tls, name)
        raise AttributeError(name)

    def setblocking(self, flag: bool) -> None:
        self._blocking = flag

    def shutdown(self, how: int) -> None:
        socket.socket.shutdown(self._tls, how)  # without TLS's own farewell, which may block

    def send(self, data: Any, flags: int = 0) -> int:
        """Send some of `data`; return how many bytes were taken."""
        while True:
            try:
                return self._tls.send(data)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                self._wait(error, flags)
            except ssl.SSLError as error:
                raise BrokenPipeError(errno.EPIPE, str(error)) from error

    def sendmsg(self, parts: Sequence[Any], ancillary: Sequence[Any] = (), flags: int = 0) -> int:
        """Send some of the first part, joined with the next parts if all are small."""
        views = [memoryview(part).cast("B") for part in parts]
        first = next((view for view in views if len(view)), None)
        if first is None:
            return 0
        if len(first) < _RECORD and len(views) > 1:
            gathered, size = [], 0
            for view in views:
                gathered.append(view[: _RECORD - size])
                size += len(gathered[-1])
                if size == _RECORD:
                    break
            return self.send(b"".join(gathered), flags)
        return self.send(first, flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive into a buffer; return the number of bytes, 0 at the end."""
        size = nbytes or len(memoryview(buffer).cast("B"))
        while True:
            try:
                return self._tls.recv_into(buffer, size)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                self._wait(error, flags)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0
            except ssl.SSLError as error:
                if "ALERT" in (error.reason or ""):  # the other end does not take the certificate
                    raise Refused("the other end", _failed(error)) from error
                raise ConnectionResetError(errno.ECONNRESET, str(error)) from error  # no record

    def recvmsg_into(
        self, buffers: Sequence[Any], ancbufsize: int = 0, flags: int = 0
    ) -> tuple[int, list[Any], int, None]:
        """Receive into the buffers, as far as bytes have arrived."""
        total = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            at = 0
            while at < len(view):
                try:
                    count = self.recv_into(view[at:], 0, flags if not total else _DONT_WAIT)
                except BlockingIOError:
                    if total:
                        return total, [], 0, None
                    raise
                if not count:
                    return total, [], 0, None
                at += count
                total += count
        return total, [], 0, None

    def _wait(self, error: ssl.SSLError, flags: int) -> None:
        """Wait until the session can go on; raise `BlockingIOError` if the caller does not wait."""
        self.waits_to_write = isinstance(error, ssl.SSLWantWriteError)
        if not self._blocking or flags & _DONT_WAIT:
            raise BlockingIOError(errno.EAGAIN, str(error)) from None
        wait_ready(self._tls, write=self.waits_to_write, seconds=None)


def _failed(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return f"it does not speak TLS ({reason}); both ends need certificates of one authority, or neither"
    return (
        f"its certificate or this end's is not accepted ({reason}): "
        f"{getattr(error, 'verify_message', '') or error}; both must be signed by the authority that the other end names"
    )


def resumed(sock: socket.socket, tls: TlsFiles, secret: bytes, peer: str) -> TlsStream:
    """Return a process's own session over a connection that its agent has accepted.

    Raises
    ------
    OSError
        The other end has left, or is none of ours; the connection is closed.
    """
    stream = TlsStream(sock, tls, server=True)
    try:
        finish(stream.shake(peer), stream, _PATIENCE_S)
        finish(resume(stream, secret, server=True), stream, _PATIENCE_S)
    except OSError:
        stream.close()
        raise
    return stream


def resume(stream: TlsStream, secret: bytes, *, server: bool) -> Steps[None]:
    """Prove, at the beginning of a worker's own session, the secret that was told in the agent's.

    Raises
    ------
    Refused
        The other end does not know it.
    """
    ours, theirs = (b"worker", b"trainer") if server else (b"trainer", b"worker")
    yield from give(stream, hmac.digest(secret, ours, hashlib.sha256))
    shown = yield from take(stream, NONCE)
    if not hmac.compare_digest(shown, hmac.digest(secret, theirs, hashlib.sha256)):
        raise Refused("a worker's session", "the other end does not know the secret of the first")
