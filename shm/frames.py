"""Splitting of a stream into messages; large ones may be received directly into their final place.

Each message is preceded by its length. A message that is too large for the scratch memory is received into newly
allocated memory. If the owner of the channel knows the place of each part (the columns of a slot), the parts are
received there instead, without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections import deque

Message = bytes | memoryview

LENGTH = struct.Struct("<Q")

LARGE = 64 * 1024
"""Messages of more bytes are received into their place."""

HEAD = 64
"""The number of bytes of a message that `Place` gets."""

_PEEK = 8192
_MOST_BUFFERS = 512

Placing = Generator[list[memoryview], None, Message]
"""Yields byte buffers for the parts of a message, until all of it has a place; returns the message to deliver."""

Place = Callable[[bytes, int], "Placing | None"]
"""Returns the place of a message, given its first `HEAD` bytes and its length; None: newly allocated memory."""


class Frames:
    """Splits a stream into messages.

    Attributes
    ----------
    place : Place or None
        Returns the places of large messages.
    held : bool
        True if the place of the next message depends on messages that have arrived, to be processed first.
    """

    __slots__ = (
        "_buffers", "_filled", "_large", "_left", "_placing", "_rest", "_short", "held", "place"
    )  # fmt: skip

    def __init__(self) -> None:
        self.place: Place | None = None
        self.held = False
        self._rest = bytearray()  # read, but not yet a whole message
        self._large: memoryview | None = None  # a message in memory of its own, and its progress
        self._filled = 0
        self._placing: Placing | None = None  # a message that is received into its place
        self._buffers: list[memoryview] = []
        self._left = 0
        self._short = False  # another large one may follow: read only its head

    def receive(
        self, sock: socket.socket, flags: int, scratch: memoryview, arrived: deque[Message]
    ) -> int:
        """Read once, append complete messages to `arrived`, and return the number of bytes read."""
        if self.held:
            self.held = False
            self._split(arrived)
        if self._placing is not None:
            count = sock.recvmsg_into(self._buffers[:_MOST_BUFFERS], 0, flags)[0]
            self._advance(count, arrived)
            return count
        if self._large is not None:
            count = sock.recv_into(self._large[self._filled :], 0, flags)
            self._filled += count
            if self._filled == len(self._large):
                arrived.append(self._large)
                self._large = None
            return count
        count = sock.recv_into(scratch[:_PEEK] if self._short else scratch, 0, flags)
        self._rest += scratch[:count]
        self._split(arrived)
        return count

    def _split(self, arrived: deque[Message]) -> None:
        rest = self._rest
        start = 0
        while len(rest) - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(rest, start)
            body = start + LENGTH.size
            if body + size <= len(rest):
                arrived.append(bytes(memoryview(rest)[body : body + size]))
                start = body + size
                self._short = False
                continue
            if size > LARGE and (self.place is None or len(rest) - body >= HEAD):
                if self.place is not None and arrived:
                    self.held = True
                    break
                self._begin(size, memoryview(rest)[body:], arrived)
                start = len(rest)
            break
        del rest[:start]

    def _begin(self, size: int, have: memoryview, arrived: deque[Message]) -> None:
        """Begin a large message, some bytes of which have arrived."""
        placing = None if self.place is None else self.place(bytes(have[:HEAD]), size)
        if placing is None:
            self._large = memoryview(bytearray(size))
            self._filled = len(have)
            self._large[: self._filled] = have
        else:
            self._placing, self._left, self._short = placing, size, True
            self._advance(0, arrived)
            while have:
                count = min(len(have), len(self._buffers[0]))
                self._buffers[0][:count] = have[:count]
                have = have[count:]
                self._advance(count, arrived)
        have.release()

    def divert(self) -> None:
        """Stop writing to the places of a message that is being received; the message is still delivered."""
        self._buffers[:] = [memoryview(bytearray(len(each))) for each in self._buffers]

    def _advance(self, count: int, arrived: deque[Message]) -> None:
        """Note that `count` bytes of a placed message have arrived."""
        assert self._placing is not None
        buffers = self._buffers
        self._left -= count
        while buffers and count >= len(buffers[0]):
            count -= len(buffers.pop(0))
        if count:
            buffers[0] = buffers[0][count:]
        try:
            while not buffers:
                buffers += [each for each in next(self._placing) if len(each)]
        except StopIteration as end:
            self._placing = None
            if self._left:
                raise AssertionError(f"a message ended {self._left} bytes early") from None
            arrived.append(end.value)
