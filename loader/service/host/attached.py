"""A host process's record of a consumer."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from tundish.loader.service.host.wire import Packet

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from tundish.loader.service.host.parcels import Parcel
    from tundish.loader.service.host.pipeline import HostPipeline
    from tundish.loader.service.host.streams import HostStream

_NO_ROOM = (errno.ENOBUFS, errno.ETOOMANYREFS)


class Attached:
    """A consumer's connection.

    Attributes
    ----------
    stream : HostStream or None
        The stream that it reads; None before it has joined.
    wanted : int
        The number of the next element that it is to be sent.
    taken : int
        The number of an element before which it asks for no states.
    out : int
        Parcels that it was sent and has not taken.
    holds : dict
        The parcels that it may have views of, by their number.
    leaving : bool
        True if it only holds.
    """

    def __init__(self, sock: socket.socket, pid: int) -> None:
        sock.setblocking(False)
        self.sock, self.began = sock, time.monotonic()
        self.pidfd: int | None = None
        with contextlib.suppress(OSError):  # it is of another namespace, or gone
            self.pidfd = os.pidfd_open(pid)
        self.stream: HostStream | None = None
        self.pipeline: HostPipeline | None = None
        self.wanted = self.taken = self.out = self.anchor = 0
        self.start: dict[str, Any] = {}
        self.holds: dict[int, Parcel] = {}
        self.leaving = self.skips = self.told_end = self.welcomed = False
        self.queue: deque[Packet] = deque()

    def tell(self, *message: Any) -> None:
        """Send a message to this consumer alone."""
        self.send(Packet.of(message))

    def send(self, packet: Packet) -> None:
        """Send a packet, or queue it."""
        self.queue.append(packet)
        self.flush()

    def flush(self) -> None:
        """Send what is queued as far as the kernel takes it; a consumer that is gone is noticed elsewhere."""
        try:
            while self.queue:
                self.queue[0].send(self.sock)
                self.queue.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno not in _NO_ROOM:
                self.queue.clear()

    def took(self, number: int, freed: Iterable[int]) -> None:
        """Note that it has taken a parcel, and that it has no views of others any more."""
        self.out -= 1
        self.taken = max(self.taken, self.holds[number].first)
        for each in freed:
            del self.holds[each]

    def leave(self, held: Iterable[int]) -> None:
        """Send it nothing more; it still has views of some parcels."""
        self.leaving, self.pipeline = True, None
        self.queue.clear()
        for number in self.holds.keys() - set(held):  # what it has not read yet among them
            del self.holds[number]

    def close(self) -> None:
        """Close the connection and release its parcels."""
        self.sock.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
        self.holds.clear()
        self.queue.clear()
