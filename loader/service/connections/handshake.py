"""The beginning of every connection: both ends prove the token, then exchange their versions and the request, in JSON.

Each step is a generator that gives True when it waits to write and False when it waits to read, so the same code serves a
dialer that must not block and a listener with hundreds of connections::

    dialer                              listener
      48 bytes: magic, nonce   <------->   48 bytes: magic, nonce
      32 bytes: proof          -------->
                               <--------   32 bytes: proof, or that the dialer's was wrong
      HELLO                    -------->
                               <--------   {"refused": text} or {"wait": true}, ... or {"want": [digests]}
      the wanted blobs         -------->
                               <--------   {"answer": {...}} or {"refused": text}

The first 48 bytes never change. Before the other end's proof only a fixed number of bytes is read. A proof is an HMAC of both
nonces and of the role of the end that gives it, so an end never accepts its own bytes as a proof.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import platform
import secrets
import select
import socket
import sys
from collections.abc import Generator, Mapping
from typing import Any, TypeVar

import numpy as np

import tundish.errors
from tundish.loader.service.connections.credentials import Address, show_address

PROTOCOL = 2
"""The version of all that comes after HELLO; it changes when older versions would misunderstand it."""

MAGIC = b"tundish service\n"
NONCE = 32
MOST_JSON = 1 << 20
_PIECE = 1 << 20
_WRONG_TOKEN = hashlib.sha256(b"tundish: wrong token").digest()

_T = TypeVar("_T")
Steps = Generator[bool, None, _T]
"""Gives True when it waits to write, False when it waits to read; returns a result."""


class Refused(tundish.errors.TundishError, ConnectionError):  # noqa: N818 - it says what happened
    """The other end of a connection does not serve this one, for a reason that time alone does not change.

    Parameters
    ----------
    where : str
        The address of the other end.
    reason : str
        The mismatch, with both ends' values, and the remedy.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(errno.ECONNREFUSED, reason)
        self.where = where
        self.reason = reason

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str], dict[str, object]]:
        return Refused, (self.where, self.reason), vars(self)  # notes are there

    def __str__(self) -> str:
        return f"{self.where} refused the connection: {self.reason}"


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """Return the digest by which a blob is named."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


# ------------------------------------------------------------------------------- bytes and frames


def take_into(stream: Any, view: memoryview) -> Steps[None]:
    """Receive exactly as many bytes as there is room for."""
    at = 0
    while at < len(view):
        try:
            count = stream.recv_into(view[at : at + _PIECE])
        except BlockingIOError:
            yield stream_waits(stream, write=False)
            continue
        if not count:
            raise ConnectionResetError(errno.ECONNRESET, "the other end closed the connection")
        at += count


def take(stream: Any, size: int) -> Steps[bytes]:
    """Receive exactly `size` bytes."""
    data = bytearray(size)
    yield from take_into(stream, memoryview(data))
    return bytes(data)


def give(stream: Any, data: bytes | bytearray | memoryview) -> Steps[None]:
    """Send all of some bytes."""
    view = memoryview(data).cast("B")
    at = 0
    while at < len(view):
        try:
            at += stream.send(view[at : at + _PIECE], NO_SIGNAL)
        except BlockingIOError:
            yield stream_waits(stream, write=True)


NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


def stream_waits(stream: Any, *, write: bool) -> bool:
    """Return True if a stream waits to write; TLS may have to read in order to write, and the reverse."""
    waits: bool | None = getattr(stream, "waits_to_write", None)
    return write if waits is None else waits


def framed(what: Mapping[str, Any], most: int = MOST_JSON) -> bytes:
    """Return one frame of JSON.

    Raises
    ------
    ValueError
        It is too long for a frame.
    """
    data = json.dumps(what, separators=(",", ":")).encode()
    if len(data) > most:
        raise ValueError(f"{len(data):,} bytes of JSON; a frame may have {most:,}")
    return len(data).to_bytes(4, "big") + data


def tell(stream: Any, what: Mapping[str, Any]) -> Steps[None]:
    """Send one frame of JSON."""
    yield from give(stream, framed(what))


def hear(stream: Any, most: int = MOST_JSON) -> Steps[dict[str, Any]]:
    """Receive one frame of JSON.

    Raises
    ------
    ValueError
        It is too long, or no JSON object.
    """
    size = int.from_bytes((yield from take(stream, 4)), "big")
    if size > most:
        raise ValueError(f"a frame of {size:,} bytes; it may have {most:,}")
    data = yield from take(stream, size)
    try:
        what = json.loads(data)
    except RecursionError:
        what = None
    if not isinstance(what, dict):
        raise ValueError("a frame that is not a JSON object")  # noqa: TRY004 - of what was received
    return what


def finish(steps: Steps[Any], stream: Any, timeout_s: float) -> Any:
    """Go through steps, waiting for each; return their result.

    Raises
    ------
    TimeoutError
        One of them waited longer than `timeout_s`.
    """
    try:
        write = next(steps)
        while True:
            if not wait_ready(stream, write=write, seconds=timeout_s):
                raise TimeoutError("the other end does not continue")
            write = steps.send(None)
    except StopIteration as end:
        return end.value


def wait_ready(source: Any, *, write: bool, seconds: float | None) -> bool:
    """Wait until a descriptor can be written or read, at most `seconds` (None: without limit); return False after that time."""
    poll = select.poll()
    poll.register(source, select.POLLOUT if write else select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


# ------------------------------------------------------------------------------------ the proof


def prove(stream: Any, token: bytes, where: str, *, dials: bool) -> Steps[None]:
    """Show the other end that this one knows the token, and have it do the same.

    Raises
    ------
    Refused
        The other end does not know it, or speaks something else.
    """
    mine = secrets.token_bytes(NONCE)
    yield from give(stream, MAGIC + mine)
    greeting = yield from take(stream, len(MAGIC) + NONCE)
    if not greeting.startswith(MAGIC):
        raise Refused(where, _stranger(greeting))
    theirs = greeting[len(MAGIC) :]
    if theirs == mine:
        raise Refused(where, "it sends back what it is sent, so it does not know the token")
    if dials:
        yield from give(stream, _proof(token, b"dials", theirs, mine))
        shown = yield from take(stream, NONCE)
        if shown == _WRONG_TOKEN:
            raise Refused(where, _wrong_token("this process"))
        if not hmac.compare_digest(shown, _proof(token, b"answers", mine, theirs)):
            raise Refused(where, _wrong_token("it"))
        return
    shown = yield from take(stream, NONCE)
    if not hmac.compare_digest(shown, _proof(token, b"dials", mine, theirs)):
        yield from give(stream, _WRONG_TOKEN)
        raise Refused(where, "it does not know the token")
    yield from give(stream, _proof(token, b"answers", theirs, mine))


def _proof(token: bytes, role: bytes, theirs: bytes, mine: bytes) -> bytes:
    """Return the proof of one end: of its role, and of both nonces, the one it was given first."""
    return hmac.digest(token, MAGIC + role + theirs + mine, hashlib.sha256)


def _stranger(greeting: bytes) -> str:
    if greeting[:1] in (b"\x15", b"\x16"):
        return "it speaks TLS and this end does not; both need certificates of one authority, or neither"
    return f"it is not of tundish's service: its first bytes are {greeting[:16]!r}"


def _wrong_token(who: str) -> str:
    return f"{who} does not know the token. Both ends need the same one: give them one file with TUNDISH_SERVICE_TOKEN_FILE, or run them as one user of one machine, with the same XDG_RUNTIME_DIR or none"


# ------------------------------------------------------------------------------------- versions


def versions() -> dict[str, str]:
    """Return the versions that ends of a connection compare."""
    minor = ".".join(platform.python_version_tuple()[:2])
    numpy = ".".join(np.__version__.split(".")[:2])
    return {"tundish": tundish.__version__, "python": minor, "numpy": numpy}


def check_versions(theirs: Mapping[str, Any], alike: tuple[str, ...], here: str) -> None:
    """Raise unless a HELLO is of this protocol, and of the same versions of what must be alike.

    Parameters
    ----------
    theirs : mapping
        The HELLO of the other end.
    alike : tuple of {"tundish", "python", "numpy"}
        What must be the same on both ends.
    here : str
        What this end is, for the error that the other end's user reads.

    Raises
    ------
    ValueError
        They differ; it names both ends' versions.
    """
    ours = versions()
    if theirs.get("protocol") != PROTOCOL:
        raise ValueError(
            f"{here} speaks protocol {PROTOCOL} (tundish {ours['tundish']}), the other end "
            f"protocol {theirs.get('protocol')!r} (tundish {theirs.get('tundish')}); install one version on both"
        )
    differ = [name for name in alike if theirs.get(name) != ours[name]]
    if differ:
        raise ValueError(
            f"{here} has "
            + ", ".join(f"{name} {ours[name]}" for name in differ)
            + "; the other end has "
            + ", ".join(f"{name} {theirs.get(name)}" for name in differ)
            + "; functions and arrays travel between them, so install the same on both"
        )


# -------------------------------------------------------------------------------------- sockets


def tune(sock: socket.socket) -> None:
    """Set a connection's options: small messages at once, and a machine that is gone is noticed within 5 s.

    ``TCP_USER_TIMEOUT`` is not set: with it Linux also ends a connection whose other end answers but does not read, such as a
    trainer that writes a checkpoint. `is_silent` finds data that is not acknowledged.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "SO_NOSIGPIPE"):  # macOS has this in place of MSG_NOSIGNAL
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)


def is_silent(sock: socket.socket, patience_s: float = 5.0) -> bool:
    """Return True if data was sent to a machine that has acknowledged nothing since; it is most likely gone.

    The kernel's keepalive notices an idle connection's end by itself, but does not ask while data is on the way.
    Something that waits for such a connection asks this about once a second.
    """
    if not hasattr(socket, "TCP_INFO"):
        return False
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8 + 13 * 4)
    except OSError:
        return False
    if len(info) < 8 + 13 * 4:
        return False
    retransmitted, probes = info[2], info[3]
    last_ack_ms = int.from_bytes(info[56:60], sys.byteorder)
    # Probes of a window that is closed come ever more rarely, so one alone may just have been sent.
    return (retransmitted > 0 or probes > 1) and last_ack_ms > patience_s * 1000


def named_error(error: OSError, where: Address, doing: str, hint: str = "") -> OSError:
    """Return an error of the system with the address that it concerns, and a hint."""
    number = error.errno or errno.ECONNRESET
    text = error.strerror or str(error)
    if number == errno.ECONNREFUSED:
        hint = "nothing listens there (an agent listens on loopback unless it has another address)"
    return OSError(number, f"{text}, while {doing} {show_address(where)}{'; ' * bool(hint)}{hint}")
