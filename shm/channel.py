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
import math
import os
import socket
import struct
import sys
from collections import deque

import numpy as np

from tundish.forked import not_inherited
from tundish.shm.budget import forced_memory, portable

Message = bytes | memoryview

# The largest packet, and what a stream reads at once; what is larger there is received straight
# into its place. Kernels refuse packets beyond the send buffer, 208 KiB if nobody changed it.
_PACKET = 180 * 1024

# What is asked for as buffers; the kernel grants less when its own limit is lower.
_BUFFER = 1 << 20

# Below this, a length and its message are joined: one system call is dearer than the copy.
_JOIN = 16 * 1024

# A dead worker must not kill a trainer that has restored SIGPIPE's default, as command line tools do.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)

_CLOSED = "this channel is closed"

_LENGTH = struct.Struct("<Q")


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
        self._frames = _Frames() if kind == "stream" else None
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

    def fileno(self) -> int:
        """Return the descriptor, -1 when closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end. Safe to call twice; in a forked child it does not disturb the parent."""
        self._broken = True
        self._socket.close()

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
            self._out.append(b"".join((_LENGTH.pack(size), message)))
        else:
            self._out.append(_LENGTH.pack(size))
            self._out.append(message)
        return not waiting and self.flush()

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
        except (BrokenPipeError, ConnectionResetError) as error:
            out.clear()  # but what the peer had sent can still be received
            raise ChannelClosed(str(error)) from error
        except BaseException:
            self._broken = True
            raise
        return True

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
            except ConnectionResetError:
                # The peer went without reading all of ours. On a packet socket Linux says so before
                # it hands out what the peer had still sent; so go on until the end is reached.
                if not self._reset:
                    self._reset = True
                    continue
                count = 0
            except BaseException:
                self._broken = True
                raise
            if not count:
                self._broken = True
        messages = list(arrived)
        arrived.clear()
        return messages


class _Frames:
    """Splits a stream into messages."""

    __slots__ = ("_filled", "_large", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()  # read, but not yet a whole message
        self._large: memoryview | None = None  # a message too large for that, and its progress
        self._filled = 0

    def receive(
        self, sock: socket.socket, flags: int, scratch: memoryview, arrived: deque[Message]
    ) -> int:
        """Read once, append complete messages to `arrived`, and return the number of bytes read."""
        if self._large is None:
            count = sock.recv_into(scratch, 0, flags)
            self._rest += scratch[:count]
            self._split(arrived)
            return count
        count = sock.recv_into(self._large[self._filled :], 0, flags)
        self._filled += count
        if self._filled == len(self._large):
            arrived.append(self._large)
            self._large = None
        return count

    def _split(self, arrived: deque[Message]) -> None:
        rest = self._rest
        start = 0
        while len(rest) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(rest, start)
            body = start + _LENGTH.size
            if body + size <= len(rest):
                arrived.append(bytes(memoryview(rest)[body : body + size]))
                start = body + size
                continue
            if size > _PACKET:
                self._large = memoryview(bytearray(size))
                self._filled = len(rest) - body
                self._large[: self._filled] = memoryview(rest)[body:]
                start = len(rest)
            break
        del rest[:start]


def _type(kind: str) -> socket.SocketKind:
    if kind == "packet":
        return socket.SOCK_SEQPACKET
    if kind == "stream":
        return socket.SOCK_STREAM
    raise ValueError(f"a channel is of kind 'packet' or 'stream', not {kind!r}")
