"""The channel between the coordinator and a worker: a socket that carries whole messages.

There are two kinds. A *packet* socket keeps messages separate and delivers each whole or not at all, so a
killed worker never leaves half of one. Every Unix has *stream* sockets: there each message is
preceded by its length, and may have any size.

The coordinator's end never blocks: messages that the kernel does not accept are queued. The
worker's end blocks in both directions, which is its back-pressure.

A message orders memory: its receiver sees the shared memory as its sender did when it sent it.
Nothing else in the transport relies on the order of writes.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
import sys
from collections import deque
from collections.abc import Sequence

import numpy as np

from tundish.forked import not_inherited
from tundish.shm.budget import forced_memory, portable
from tundish.shm.frames import LENGTH, Frames, Message, Place

# The size of the largest packet, and of a stream's reads. Kernels refuse packets beyond the send buffer, which is 208 KiB by default.
_PACKET = 180 * 1024

# The requested size of buffers; the kernel grants less if its own limit is lower.
_BUFFER = 1 << 20

# Below this, a length and its message are joined: one system call is dearer than the copy.
_JOIN = 16 * 1024

# The kernel takes at most 1024.
_MOST_PARTS = 512

# A dead worker must not kill a trainer that has restored SIGPIPE's default, as command line tools do.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)

_CLOSED = "this channel is closed"

# What the kernel says of a machine that cannot be reached any more.
_UNREACHED = {
    getattr(errno, name)
    for name in ("EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN", "ENETRESET")
    if hasattr(errno, name)
}


class ChannelClosed(Exception):  # noqa: N818 - an event to handle, not a mistake
    """The other end is closed, or this end can no longer be trusted."""


def default_kind() -> str:
    """Return the kind of channel for this system: packet on Linux, else stream."""
    # Without shared memory whole batches travel in messages, and packets are too small for that.
    if portable() or forced_memory() == "none" or not sys.platform.startswith("linux"):
        return "stream"
    return "packet"


class Channel:
    """One end of a pair; use `pair` or `adopt` to make one.

    Any error during a transfer, including KeyboardInterrupt, closes the channel: a
    message may have been lost, and half a message would be misread. The peer is
    then treated as dead, which restores a consistent state.
    """

    __slots__ = (
        "__weakref__",
        "_arrived",
        "_blocking",
        "_broken",
        "_frames",
        "_out",
        "_reset",
        "_scratch",
        "_socket",
        "_whole",
        "kind",
        "max_message",
    )

    def __init__(self, sock: socket.socket, kind: str) -> None:
        # Python gives new sockets the process's default timeout, which user code may have set.
        sock.setblocking(True)
        self.kind = kind
        self.max_message: int | None = None
        self._socket = sock
        self._blocking = True
        self._broken = False
        self._reset = False
        self._out: deque[Message] = deque()
        self._arrived: deque[Message] = deque()
        self._frames = Frames() if kind == "stream" else None
        # Bytes that were received and decrypted make no descriptor readable, so they must be read at once.
        self._whole = not isinstance(sock, socket.socket)
        not_inherited(self, Channel.close)
        # Kept, since a fresh buffer of this size costs malloc a mapping: 12 us a message. Its
        # pages exist as far as messages have filled them.
        self._scratch = np.empty(_PACKET, np.uint8).data
        if kind == "packet":
            buffer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            self.max_message = min(_PACKET, buffer - 1024)

    @classmethod
    def pair(cls, kind: str | None = None) -> tuple[Channel, Channel]:
        """Return two connected ends, both blocking and closed on exec.

        Parameters
        ----------
        kind : {"packet", "stream"}, optional
            By default the result of `default_kind`.
        """
        kind = default_kind() if kind is None else kind
        ends = socket.socketpair(socket.AF_UNIX, _type(kind))
        for end in ends:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                with contextlib.suppress(OSError):  # some systems refuse instead of granting less
                    end.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
            if hasattr(socket, "SO_NOSIGPIPE"):  # macOS has this in place of MSG_NOSIGNAL
                end.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)
        return cls(ends[0], kind), cls(ends[1], kind)

    @classmethod
    def adopt(cls, fd: int | socket.socket, kind: str) -> Channel:
        """Make a channel from a received descriptor, which it then owns; or from what has the methods of a socket."""
        if isinstance(fd, int):
            os.set_inheritable(fd, False)
            sock = socket.socket(fileno=fd)
        else:
            sock = fd
        if sock.type != _type(kind):
            sock.close()
            raise ValueError(f"descriptor {fd} is not of a {kind} socket")
        return cls(sock, kind)

    def set_nonblocking(self) -> None:
        """Make this end non-blocking; it is the coordinator's."""
        self._socket.setblocking(False)
        self._blocking = False

    def receive_into(self, place: Place) -> None:
        """Receive the large messages of a stream where `place` says."""
        assert self._frames is not None
        self._frames.place = place

    def divert(self) -> None:
        """Receive the rest of a message that is being placed into new memory, which nobody reads."""
        assert self._frames is not None
        self._frames.divert()

    def fileno(self) -> int:
        """Return the descriptor, -1 when closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end. Safe to call twice; in a forked child it does not disturb the parent."""
        self._broken = True
        self._socket.close()

    @property
    def held(self) -> bool:
        """True if `recv_all` has more to give once what it gave has been processed."""
        return self._frames is not None and self._frames.held

    @property
    def pending(self) -> bool:
        """True if messages are queued here."""
        return bool(self._out)

    def send(self, message: Message) -> bool:
        """Send a message; on a non-blocking end queue what cannot be sent now.

        Parameters
        ----------
        message : bytes or memoryview of bytes
            Not empty, not larger than `max_message`, and unchanged until it is sent.

        Returns
        -------
        bool
            True if everything was sent. If not, call `flush` when the descriptor is writable.

        Raises
        ------
        ChannelClosed
            The other end is closed.
        """
        if self._broken:
            raise ChannelClosed(_CLOSED)
        size = len(message)
        if not size or (self.max_message is not None and size > self.max_message):
            raise ValueError(f"a message of {size:,} bytes; 1 to {self.max_message:,} can be sent")
        waiting = bool(self._out)
        if self._frames is None:
            self._out.append(message)
        elif size <= _JOIN:
            self._out.append(b"".join((LENGTH.pack(size), message)))
        else:
            self._out.append(LENGTH.pack(size))
            self._out.append(message)
        return not waiting and self.flush()

    def send_parts(self, parts: Sequence[memoryview]) -> None:
        """Send one message of a stream, given in parts, without copying them; the end must be blocking.

        Raises
        ------
        ChannelClosed
            The other end is closed.
        """
        assert self._frames is not None
        assert not self._out
        if self._broken:
            raise ChannelClosed(_CLOSED)
        size = sum(part.nbytes for part in parts)
        left = [memoryview(LENGTH.pack(size)), *(part for part in parts if part.nbytes)]
        try:
            while left:
                if self._whole:
                    sent = self._socket.sendmsg(left[:_MOST_PARTS])
                else:
                    sent = self._socket.sendmsg(left[:_MOST_PARTS], (), _NO_SIGNAL)
                while left and sent >= len(left[0]):
                    sent -= len(left.pop(0))
                if sent:
                    left[0] = left[0][sent:]
        except BaseException as error:
            self._broken = True  # half of it may be sent
            if isinstance(error, OSError) and _is_gone(error):
                raise ChannelClosed(str(error)) from error
            raise

    def flush(self) -> bool:
        """Send queued messages as far as the kernel accepts them; return True if everything was sent."""
        out = self._out
        if self._broken:
            raise ChannelClosed(_CLOSED)
        try:
            while out:
                piece = out[0]
                sent = self._socket.send(piece, _NO_SIGNAL)
                if sent < len(piece):
                    out[0] = memoryview(piece)[sent:]
                else:
                    out.popleft()
        except BlockingIOError:
            return False
        except BaseException as error:
            if isinstance(error, OSError) and _is_gone(error):
                out.clear()  # but what the peer had sent can still be received
                raise ChannelClosed(str(error)) from error
            self._broken = True
            raise
        return True

    def readable(self, timeout_s: float) -> bool:
        """Return True as soon as `recv` of a blocking end would not wait, False after some seconds."""
        if self._arrived or self._broken or self._whole:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(1000 * timeout_s))

    def recv(self) -> Message | None:
        """Return the next message.

        Returns
        -------
        bytes or memoryview or None
            One whole message; None if a non-blocking end has none now.

        Raises
        ------
        ChannelClosed
            The other end is closed, and everything it sent has been returned.
        """
        if not self._arrived:
            self._arrived += self.recv_all(1)
        return self._arrived.popleft() if self._arrived else None

    def recv_all(self, enough: float = math.inf) -> list[Message]:
        """Return all messages that have arrived; a blocking end waits for the first.

        Parameters
        ----------
        enough : int
            Stop after this many.

        Raises
        ------
        ChannelClosed
            As from `recv`, if there is no message left to return.
        """
        arrived, sock, frames, scratch = self._arrived, self._socket, self._frames, self._scratch
        if self._whole:
            enough = math.inf
        while len(arrived) < enough:
            if self._broken:
                if arrived:
                    break
                raise ChannelClosed(_CLOSED)
            flags = 0 if self._blocking and not arrived else socket.MSG_DONTWAIT
            try:
                if frames is None:
                    count = sock.recv_into(scratch, 0, flags)
                    if count:
                        arrived.append(bytes(scratch[:count]))
                else:
                    count = frames.receive(sock, flags, scratch, arrived)
            except BlockingIOError:
                break
            except BaseException as error:
                if not (isinstance(error, OSError) and _is_gone(error)):
                    self._broken = True
                    raise
                # The peer went without reading all of ours. On a packet socket Linux says so before
                # it hands out what the peer had still sent; so go on until the end is reached.
                if not self._reset:
                    self._reset = True
                    continue
                count = 0
            if not count:
                self._broken = True
            if frames is not None and frames.held:
                break
        messages = list(arrived)
        arrived.clear()
        return messages


def _is_gone(error: OSError) -> bool:
    """Return True if an error says that the other end, or the machine it was on, is gone."""
    gone = (BrokenPipeError, ConnectionError, TimeoutError)
    return isinstance(error, gone) or error.errno in _UNREACHED


def _type(kind: str) -> socket.SocketKind:
    if kind == "packet":
        return socket.SOCK_SEQPACKET
    if kind == "stream":
        return socket.SOCK_STREAM
    raise ValueError(f"a channel is of kind 'packet' or 'stream', not {kind!r}")
