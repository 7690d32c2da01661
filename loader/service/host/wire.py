"""Packets between a host process and its consumers: whole messages, with descriptors.

A consumer sends JSON, and a host process reads nothing else from strangers. A host process sends pickles: it runs the very functions
that its consumers gave it. A message larger than a packet is in an unnamed file whose descriptor the packet carries.
"""

from __future__ import annotations

import array
import errno
import json
import os
import pickle
import socket
import stat
from typing import Any

from tundish.loader.run.starting.control import scratch_file
from tundish.loader.service.connections import handshake

PROTOCOL = 1
LARGEST = 100 << 10
"""Bytes of a packet; a larger message is in a file."""

_RECEIVED = LARGEST + 4096
_MOST_FDS = 8
_MOST_FILE = 1 << 30
_SMALL, _LARGE = b"\0", b"\1"
_IN_A_FILE = b"file"
_INT = 4


def versions() -> dict[str, Any]:
    """Return what must be equal at both ends."""
    return {"protocol": PROTOCOL, **handshake.versions()}


class Packet:
    """A packet of the host process, encoded once for all consumers that it is sent to.

    Parameters
    ----------
    data : bytes
        The packet.
    fds : tuple of int
        The descriptors that travel with it, which it then owns.
    """

    __slots__ = ("data", "fds")

    def __init__(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        self.data, self.fds = data, fds

    def __del__(self) -> None:
        for fd in self.fds:
            os.close(fd)

    @classmethod
    def of(cls, message: Any, fds: tuple[int, ...] = ()) -> Packet:
        """Encode a message; the packet has copies of the descriptors."""
        body = pickle.dumps(message, protocol=5)
        kept = tuple(os.dup(fd) for fd in fds)
        if len(body) < LARGEST:
            return cls(_SMALL + body, kept)
        return cls(_LARGE, (scratch_file(body), *kept))


def send_packet(sock: socket.socket, packet: Packet) -> bool:
    """Send a packet; return False if the kernel has no room for it now.

    Raises
    ------
    ConnectionError
        The other end is gone.
    """
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", packet.fds))]
    try:
        sock.sendmsg(
            [packet.data], rights if packet.fds else [], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        )
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOBUFS, errno.ETOOMANYREFS):
            return False
        raise
    return True


def send_told(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send a consumer's message to the host process, waiting for room."""
    data, file = json.dumps(message, separators=(",", ":")).encode(), None
    if len(data) > LARGEST:
        file = scratch_file(data)
        data, fds = _IN_A_FILE, (file, *fds)
    try:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sock.sendmsg([data], rights, socket.MSG_NOSIGNAL)
    finally:
        if file is not None:
            os.close(file)


def receive_packet(sock: socket.socket, flags: int = 0) -> tuple[bytes, list[int]]:
    """Receive one packet with its descriptors; an empty one means that the other end is gone.

    Raises
    ------
    BlockingIOError, TimeoutError
        There is none.
    OSError
        This process had no descriptor left for one that came with it; the packet is lost.
    """
    try:
        data, rights, told, _ = sock.recvmsg(
            _RECEIVED, socket.CMSG_SPACE(_MOST_FDS * _INT), flags | socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError:
        return b"", []
    fds = array.array("i")
    for level, kind, packed in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(packed[: len(packed) // _INT * _INT])
    if told & socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        raise OSError(
            errno.EMFILE, "no descriptor is left for a batch of the host process (ulimit -n)"
        )
    return data, list(fds)


def parse_packet(data: bytes, fds: list[int]) -> Any:
    """Return the message of a host process's packet; descriptors other than the message's own stay in `fds`."""
    if data[:1] == _SMALL:
        return pickle.loads(memoryview(data)[1:])
    return pickle.loads(read_file(fds.pop(0)))


def parse_told(data: bytes, fds: list[int]) -> dict[str, Any]:
    """Return a consumer's message; descriptors other than the message's own stay in `fds`.

    Raises
    ------
    ValueError
        The bytes are something else.
    """
    if data == _IN_A_FILE:
        if not fds:
            raise ValueError("its file is missing")
        data = read_file(fds.pop(0))
    try:
        message = json.loads(data)
    except (RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(message, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - its bytes are wrong
    return message


def read_file(fd: int) -> bytes:
    """Return the bytes of a received file, and close it.

    Raises
    ------
    ValueError
        It is no file, or a larger one than anybody sends.
    """
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= _MOST_FILE:
            raise ValueError(
                f"descriptor of mode {found.st_mode:o} with {found.st_size:,} bytes is not a message"
            )
        return os.pread(fd, found.st_size, 0)  # not mapped: the sender may truncate it
    finally:
        os.close(fd)
