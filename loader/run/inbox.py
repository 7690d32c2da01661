"""A worker's end of its channel while it begins: it may ask something and wait for the answer."""

from __future__ import annotations

import pickle
from collections import deque
from typing import TYPE_CHECKING, Any

from tundish.loader.run.messages import RECORD, Kind

if TYPE_CHECKING:
    from tundish.shm.channel import Channel


class Inbox:
    """What has come for a worker: messages that arrive before an answer wait.

    Parameters
    ----------
    channel : Channel
        The worker's end.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: deque[bytes] = deque()

    def recv(self) -> bytes | memoryview:
        """Return the next message."""
        if self._waiting:
            return self._waiting.popleft()
        message = self._channel.recv()
        assert message is not None  # a worker's end waits
        return message

    def ask(self, question: Any) -> Any:
        """Ask the coordinator something; raise what it answers if that is an exception."""
        tail = pickle.dumps(question)
        self._channel.send(RECORD.pack(Kind.ASK, 0, 0, 0, len(tail)) + tail)
        while True:
            message = self._channel.recv()
            assert message is not None
            if message[0] == Kind.TOLD:
                answer = pickle.loads(bytes(message[RECORD.size :]))
                if isinstance(answer, BaseException):
                    raise answer
                return answer
            self._waiting.append(bytes(message))
