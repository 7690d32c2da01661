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

LARGEST = 100 << 10
"""Bytes of a packet; a larger message is in a file."""

_RECEIVED = LARGEST + 4096
_MOST_FDS = 8
_MOST_FILE = 1 << 30
_IN_A_FILE = b"file"  # neither JSON nor a pickle
_INT = 4


class Packet:
    """A packet, encoded once for all processes that it is sent to.

    Parameters
    ----------
    message : bytes
        The message.
    fds : tuple of int
        The descriptors that travel with it; the packet has copies of them.
    """

    __slots__ = ("_data", "_fds")

    def __init__(self, message: bytes, fds: tuple[int, ...] = ()) -> None:
        self._data, self._fds = message, array.array("i")
        if len(message) > LARGEST:
            self._data = _IN_A_FILE
            self._fds.append(scratch_file(message))
        for fd in fds:
            self._fds.append(os.dup(fd))

    def __del__(self) -> None:
        for fd in self._fds:
            os.close(fd)

    @classmethod
    def of(cls, message: Any, fds: tuple[int, ...] = ()) -> Packet:
        """Encode a message of the host process."""
        return cls(pickle.dumps(message, protocol=5), fds)

    def send(self, sock: socket.socket) -> None:
        """Send it, as ``socket.send`` does: one that must not wait raises `BlockingIOError`."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, self._fds)] if self._fds else []
        sock.sendmsg([self._data], rights, socket.MSG_NOSIGNAL)


def send_told(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send a consumer's message to the host process, waiting for room."""
    Packet(json.dumps(message, separators=(",", ":")).encode(), fds).send(sock)


def receive_packet(sock: socket.socket) -> tuple[bytes, list[int]]:
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
            _RECEIVED, socket.CMSG_SPACE(_MOST_FDS * _INT), socket.MSG_CMSG_CLOEXEC
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
    return pickle.loads(_message(data, fds))


def parse_told(data: bytes, fds: list[int]) -> dict[str, Any]:
    """Return a consumer's message; descriptors other than the message's own stay in `fds`.

    Raises
    ------
    ValueError
        The bytes are something else.
    """
    try:
        message = json.loads(_message(data, fds))
    except (RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(message, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - its bytes are wrong
    return message


def _message(data: bytes, fds: list[int]) -> bytes:
    if data != _IN_A_FILE:
        return data
    if not fds:
        raise ValueError("its file is missing")
    return read_file(fds.pop(0))


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
