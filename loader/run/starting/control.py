"""Messages between a process and one that it has started: a consumer and its zygote, an agent and a shared job.

They are small, with file descriptors attached.

Neither end ever blocks in a send: what the kernel does not accept is queued, and sent before the next message or by
`flush`. The end that is not being read has unread messages itself, so it will answer them, and its answers
make the other end flush.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from functools import partial
from itertools import islice
from typing import NamedTuple

from tundish.shm.budget import portable

# kind, descriptors, bytes of text, which worker, a number
_HEAD = struct.Struct("<BBHIq")
_INT = struct.Struct("i")
_MOST_FDS = 253  # the kernel's limit for one message
_READ = 1 << 16
_LOST = -1  # stands after the descriptors of a message that had more
_READS = 64  # receives at a time, since a closed socket can be read for ever
_FULL = {errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS}


class ControlKind(IntEnum):
    """The kind of a message."""

    # To the zygote.
    START = 1
    KILL = 2
    QUIT = 3
    PRELOAD = 8
    # From the zygote: it has imported everything; a worker runs; one has ended; one did not begin.
    READY = 4
    STARTED = 5
    ENDED = 6
    FAILED = 7
    # Between an agent and the process of a shared job, beside READY and FAILED: the connection of a consumer, how
    # many consumers there are, and that one is about to receive an element.
    CONSUMER = 9
    CONSUMERS = 10
    GIVES = 11


class Message(NamedTuple):
    """One message between consumer and zygote.

    Attributes
    ----------
    kind : ControlKind
        The meaning of the message.
    worker : int
        The number that the consumer gave to the worker.
    value : int
        A process id, an exit code or an errno, depending on the kind.
    text : bytes
        The last lines of stderr, or a reason.
    fds : tuple of int
        File descriptors, now the receiver's; fewer than were sent if it reached its limit of open files.
    """

    kind: ControlKind
    worker: int
    value: int
    text: bytes
    fds: tuple[int, ...]


class Control:
    """One end of the socket between the consumer and its zygote.

    Attributes
    ----------
    closed : bool
        True if the other end is gone, or this end can no longer be trusted.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.closed = False
        self._socket = sock
        self._receive = partial(
            sock.recvmsg,
            _READ,
            socket.CMSG_SPACE(_MOST_FDS * _INT.size),
            getattr(socket, "MSG_CMSG_CLOEXEC", 0),
        )
        self._arrived: deque[tuple[bytes, list[tuple[int, int, bytes]], int, object]] = deque()
        self._bytes = bytearray()
        self._fds: deque[int] = deque()
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()

    @classmethod
    def pair(cls) -> tuple[Control, socket.socket]:
        """Return this process's end and the socket to hand to the zygote."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), theirs

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is something to receive."""
        return self._socket.fileno()

    @property
    def unsent(self) -> bool:
        """True if messages are queued because the kernel's buffer is full."""
        return bool(self._unsent)

    def send(
        self,
        kind: ControlKind,
        worker: int = 0,
        value: int = 0,
        *,
        text: bytes = b"",
        fds: tuple[int, ...] = (),
    ) -> None:
        """Send a message now, or queue it; either way the caller may close the descriptors."""
        if self.closed:
            return
        data = _HEAD.pack(kind, len(fds), len(text), worker, value) + text
        if self._unsent or not self._write(data, fds):
            self._unsent.append((data, tuple(os.dup(fd) for fd in fds)))

    def flush(self) -> None:
        """Send queued messages, as far as the kernel accepts them."""
        while self._unsent and not self.closed:
            data, fds = self._unsent.popleft()
            if not self._write(data, fds):
                self._unsent.appendleft((data, fds))
                return
            _close(fds)

    def _write(self, data: bytes, fds: tuple[int, ...]) -> bool:
        """Send a message; return False if the kernel's buffer is full."""
        packed = b"".join(map(_INT.pack, fds))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)] if fds else []
        try:
            sent = self._socket.sendmsg([data], rights)
        except OSError as error:
            if error.errno in _FULL:
                return False
            # A dead peer. What it sent before is still read; then `receive` notices.
            if error.errno in (errno.EPIPE, errno.ECONNRESET):
                return True
            raise
        if sent < len(data):  # its descriptors went with the first byte
            self._unsent.appendleft((data[sent:], ()))
        return True

    def receive(self) -> list[Message]:
        """Return the messages that have arrived, without waiting.

        An interrupt in here may lose half a message. The end is then closed, and the other side counts as dead, with
        everything it has started.
        """
        try:
            self._fill()
            messages = []
            while len(self._bytes) >= _HEAD.size:
                kind, n_fds, n_text, worker, value = _HEAD.unpack_from(self._bytes)
                end = _HEAD.size + n_text
                if len(self._bytes) < end:
                    break
                text = bytes(self._bytes[_HEAD.size : end])
                del self._bytes[:end]
                messages.append(Message(ControlKind(kind), worker, value, text, self._take(n_fds)))
        except BaseException:
            self.closed = True
            raise
        return messages

    def _fill(self) -> None:
        try:
            # All in C: an interrupt cannot come between the kernel and the list.
            self._arrived.extend(islice(iter(self._receive, None), _READS))
        except BlockingIOError:
            pass
        except ConnectionResetError:  # it died with messages of ours unread
            self.closed = True
        while self._arrived:
            data, ancillary, flags, _ = self._arrived.popleft()
            if not data:
                self.closed = True
            self._bytes += data
            for _, _, packed in ancillary:
                whole = len(packed) - len(packed) % _INT.size
                self._fds.extend(fd for (fd,) in _INT.iter_unpack(packed[:whole]))
            if flags & socket.MSG_CTRUNC:
                self._fds.append(_LOST)

    def _take(self, count: int) -> tuple[int, ...]:
        """Return a message's descriptors; fewer when the kernel could not open all of them."""
        fds: list[int] = []
        while len(fds) < count and self._fds:
            fd = self._fds.popleft()
            if fd == _LOST:
                break
            fds.append(fd)
        return tuple(fds)

    def close(self) -> None:
        """Close this end and every descriptor in flight. Safe to call twice."""
        self.closed = True
        self._socket.close()
        _close(self._fds)
        for _, fds in self._unsent:
            _close(fds)
        self._fds.clear()
        self._unsent.clear()


def scratch_file(data: bytes = b"") -> int:
    """Return a descriptor of an unnamed file that contains `data`."""
    if hasattr(os, "memfd_create") and not portable():
        fd = os.memfd_create("tundish", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        import tempfile  # noqa: PLC0415 - takes a while, and is needed where there is no memfd

        with tempfile.TemporaryFile(buffering=0) as file:
            fd = os.dup(file.fileno())
    if data:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
    return fd


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
