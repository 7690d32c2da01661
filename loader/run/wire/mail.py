"""A worker's end of its channel: messages received, and answers that are sent together."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from tundish.loader.run.wire.messages import (
    DONE,
    MORE,
    NO_LAYOUT,
    POINTER,
    RECORD,
    MessageKind,
    in_pieces,
)
from tundish.shm.channel import ChannelClosed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from tundish.loader.run.wire.messages import Task
    from tundish.shm.channel import Channel
    from tundish.shm.memory import Arena

_FLUSH_S = 150e-6
_FLUSH_BYTES = 32768
_DIRECT = 32768
"""The size in bytes from which rows are not copied into a message."""
_MOST_MICROS = 2**32 - 1


class Outbox:
    """Collects records for the coordinator.

    Parameters
    ----------
    channel : Channel
        The worker's end.
    """

    __slots__ = ("_channel", "_flushed", "_nbytes", "_records", "tolerant")

    def __init__(self, channel: Channel) -> None:
        self.tolerant = False
        """True if a closed channel is ignored."""
        self._channel = channel
        self._records: list[bytes] = []
        self._nbytes = 0
        self._flushed = time.perf_counter()

    def holds(self, nbytes: int) -> bool:
        """Return True if an answer with a tail of so many bytes fits into a message."""
        limit = self._channel.max_message
        return limit is None or DONE.size + nbytes <= limit

    def say(self, record: bytes, tail: bytes = b"") -> None:
        """Add a record; if it does not fit with the collected ones, send those first."""
        limit = self._channel.max_message
        size = len(record) + len(tail)
        if limit is not None and self._nbytes + size > limit:
            self.flush()
        self._records.append(record)
        if tail:
            self._records.append(tail)
        self._nbytes += size

    def answer(
        self,
        kind: MessageKind,
        task: Task,
        flags: int = 0,
        tail: bytes = b"",
        *,
        layout: int = NO_LAYOUT,
        took_s: float = 0.0,
        busy_s: float = 0.0,
        nbytes: int = 0,
        encoded: int = 0,
        parts: Sequence[np.ndarray] = (),
    ) -> None:
        """Add the answer to a task, DONE or NEED; send an answer with large parts at once, without copying them."""
        micros, busy = min(int(took_s * 1e6), _MOST_MICROS), min(int(busy_s * 1e6), _MOST_MICROS)
        fields = (kind, flags, task.stage, task.block, task.first, task.rows, layout, micros, busy)
        size = sum(map(len, parts))
        record = DONE.pack(*fields, size + len(tail), nbytes, encoded)
        if size >= _DIRECT and self._channel.max_message is None:
            self.flush()
            with contextlib.suppress(*([ChannelClosed] if self.tolerant else [])):
                self._channel.send_parts(
                    [memoryview(record), *(part.data for part in parts), memoryview(tail)]
                )
            return
        self.say(record, b"".join([*map(bytes, parts), tail]) if parts else tail)

    def tell(self, kind: MessageKind, number: int, tail: bytes) -> None:
        """Add a record whose tail may be larger than a message."""
        for record in in_pieces(kind, number, tail):
            self.say(record)

    def begins(self, element: int) -> None:
        """Report at once which element of a task is begun: if this process dies now, that element caused it."""
        self.say(RECORD.pack(MessageKind.PROGRESS, 0, 0, element, 0))
        self.flush()

    def flush_if_due(self) -> None:
        """Send if there is much to send, or it has waited."""
        if self._nbytes > _FLUSH_BYTES or time.perf_counter() - self._flushed > _FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Send all collected records."""
        if self._records:
            with contextlib.suppress(*([ChannelClosed] if self.tolerant else [])):
                self._channel.send(b"".join(self._records))
            self._records.clear()
            self._nbytes = 0
        self._flushed = time.perf_counter()


class Inbox:
    """The messages received by a worker; those that arrive before an answer are queued.

    Parameters
    ----------
    channel : Channel
        The worker's end.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: deque[bytes] = deque()

    def waits(self, timeout_s: float) -> bool:
        """Return True as soon as `recv` would not wait, False after some seconds without a message."""
        return bool(self._waiting) or self._channel.readable(timeout_s)

    def recv(self) -> bytes | memoryview:
        """Return the next message."""
        if self._waiting:
            return self._waiting.popleft()
        message = self._channel.recv()
        assert message is not None  # a worker's end blocks
        return message

    def ask(self, question: Any) -> Any:
        """Ask the coordinator a question; raise the answer if it is an exception."""
        tail = pickle.dumps(question)
        for piece in in_pieces(MessageKind.ASK, 0, tail):
            self._channel.send(piece)
        parts: list[bytes] = []
        while True:
            message = self._channel.recv()
            assert message is not None
            if message[0] == MessageKind.TOLD:
                parts.append(bytes(message[RECORD.size :]))
                if message[1] == MORE:
                    continue
                answer = pickle.loads(b"".join(parts))
                if isinstance(answer, BaseException):
                    raise answer
                return answer
            self._waiting.append(bytes(message))


def input_of(tail: bytes | memoryview, arena: Arena | None) -> Any:
    """Decode the input of a task from its tail, or from the slot that it names."""
    if not tail[0]:
        return tail[1:]
    assert arena is not None
    return arena.root(*POINTER.unpack_from(tail, 1))
