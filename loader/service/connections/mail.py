"""Messages of calls over a connection: each a head of JSON, followed by blobs whose sizes are in the head."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from tundish.loader.service.connections.handshake import NO_SIGNAL, Steps, framed, hear, take_into

_MOST_HEAD = 16 << 20
_MOST_BYTES = 64 << 30

Blobs = Sequence[Any]


def encoded(head: Mapping[str, Any], blobs: Blobs) -> list[memoryview]:
    """Encode a message: the frame of its head, and the blobs.

    Raises
    ------
    ValueError
        The head is too long.
    TypeError
        It is no JSON.
    """
    views = [memoryview(blob).cast("B") for blob in blobs]
    frame = framed({**head, "blobs": [len(view) for view in views]}, _MOST_HEAD)
    return [memoryview(frame), *(view for view in views if len(view))]


def next_message(stream: Any) -> Steps[tuple[dict[str, Any], list[bytes]]]:
    """Receive a message: its head, and its blobs in memory of the receiver's own.

    Raises
    ------
    ValueError
        It is none, or is too large.
    """
    head = yield from hear(stream, _MOST_HEAD)
    sizes = head.pop("blobs", [])
    if not isinstance(sizes, list) or not all(type(n) is int and n >= 0 for n in sizes):
        raise ValueError(f"blobs of {sizes!r} bytes")
    if sum(sizes) > _MOST_BYTES:
        raise ValueError(f"{sum(sizes):,} bytes of blobs")
    blobs: list[Any] = []
    for nbytes in sizes:
        blob = bytearray(nbytes)
        yield from take_into(stream, memoryview(blob))
        blobs.append(blob)
    return head, blobs


class Mail:
    """Messages over a stream that does not block.

    Parameters
    ----------
    stream : socket or TlsStream
        The stream.
    arrived : callable
        Called with the head and the blobs of each message that comes.

    Attributes
    ----------
    unsent : int
        The number of bytes that wait to be sent.
    """

    def __init__(self, stream: Any, arrived: Callable[[dict[str, Any], list[bytes]], None]) -> None:
        self.stream = stream
        self.unsent = 0
        self._arrived = arrived
        self._out: deque[memoryview] = deque()
        self._reading = self._read()
        self._reads_by_writing = False

    @property
    def waits_to_write(self) -> bool:
        """True if it waits until the stream is writable."""
        return bool(self._out) or self._reads_by_writing

    def post(self, message: Iterable[memoryview]) -> None:
        """Have a message sent by the next calls of `advance`."""
        for part in message:
            self._out.append(part)
            self.unsent += len(part)

    def advance(self) -> None:
        """Send and receive as far as possible.

        Raises
        ------
        OSError, ValueError
            The connection has ended, or a message is malformed.
        """
        try:
            self._send()
        except OSError:
            next(self._reading)  # the other end is gone: what it said last still counts
            raise
        self._reads_by_writing = next(self._reading)
        self._send()  # answers to messages that have just arrived

    def _send(self) -> None:
        while self._out:
            try:
                sent = self.stream.send(self._out[0], NO_SIGNAL)
            except BlockingIOError:
                return
            self.unsent -= sent
            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]

    def _read(self) -> Generator[bool, None, None]:
        while True:
            head, blobs = yield from next_message(self.stream)
            self._arrived(head, blobs)
