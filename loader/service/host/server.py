"""The host process: one poll loop for its consumers and for the workers of its pipelines.

A consumer is one iterator in another process. Slots that it holds stay leased until it releases them, or until it is
gone: its socket is closed, or its process has ended while a child of that process still has the socket open.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import time
import traceback
from pathlib import Path
from typing import Any

from tundish.loader.service.connections.handshake import check_versions, versions
from tundish.loader.service.host.attached import Attached
from tundish.loader.service.host.folder import HostFolder, check_peer
from tundish.loader.service.host.pipeline import HostPipeline
from tundish.loader.service.host.plan import unpacked
from tundish.loader.service.host.settings import HostSettings
from tundish.loader.service.host.streams import Streams
from tundish.loader.service.host.wire import Packet, parse_told, receive_packet
from tundish.shm.budget import RANK_VARIABLES, local_ranks

_MOST_STRANGERS = 64
_HEARD_AT_ONCE = 64
_PROVEN_S = 30.0
_FIRST_S = 60.0
"""Seconds for which a process that was started waits for its first consumer."""
_LOOK_S = 0.002
_LOG_BYTES = 1 << 20
"""Bytes of what functions have printed, of which the newer half is kept when there are more."""


class HostServer:
    """The host process, with the settings of its first consumer."""

    def __init__(self, listener: socket.socket, settings: HostSettings) -> None:
        listener.setblocking(False)
        self._listener, self._settings = listener, settings
        self._consumers: list[Attached] = []
        self._streams: Streams | None = None  # until the first consumer has sent the dataset
        self._welcome: Packet
        self._lingers = max(settings.linger, _FIRST_S)
        self._idle_since = time.monotonic()

    # -- the loop ------------------------------------------------------------------------------

    def serve(self) -> None:
        """Serve consumers until there has been none for `linger` seconds."""
        while True:
            worked = self._streams is not None and self._streams.work()
            if os.fstat(2).st_size > _LOG_BYTES:
                _shorten_log()
            left = self._time_left()
            if left is not None and left <= 0 and self._ends():
                return
            self._wait(0.0 if worked else left)

    def _strangers(self) -> list[Attached]:
        return [each for each in self._consumers if each.stream is None]

    def _time_left(self) -> float | None:
        strangers = self._strangers()
        if len(strangers) < len(self._consumers):
            return _PROVEN_S if strangers else None
        return self._idle_since + self._lingers - time.monotonic()

    def _ends(self) -> bool:
        """Give up the name, unless a consumer has connected meanwhile; return True if the process may end."""
        with HostFolder.open() as folder, folder.locked(time.monotonic() + _FIRST_S):
            if self._accept():
                self._idle_since = time.monotonic()
                return False
            folder.remove(self._settings.name)
            self._listener.close()
        return True

    def _wait(self, timeout_s: float | None) -> None:
        poll = select.poll()
        who: dict[int, Any] = {self._listener.fileno(): None}
        poll.register(self._listener, select.POLLIN)
        for each in self._consumers:
            poll.register(each.sock, select.POLLIN | (select.POLLOUT if each.queue else 0))
            who[each.sock.fileno()] = each
            if each.pidfd is not None:
                poll.register(each.pidfd, select.POLLIN)
                who[each.pidfd] = each
        if self._streams is not None:
            for pipeline in self._streams.pipelines():
                wakes = pipeline.iterator.wakes()
                if wakes is not None:
                    poll.register(wakes, select.POLLIN)
                    who[wakes] = pipeline
                elif self._streams.demands(pipeline) and not pipeline.ended:
                    timeout_s = min(timeout_s or _LOOK_S, _LOOK_S)
        for fd, events in poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1e3):
            found = who[fd]
            if found is None:
                self._accept()
            elif isinstance(found, HostPipeline):
                found.pump()
            elif found in self._consumers:
                if events & select.POLLOUT:
                    found.flush()
                if fd == found.pidfd:
                    self._gone(found)
                elif events & ~select.POLLOUT:
                    self._hear(found)
        now = time.monotonic()
        for each in self._strangers():
            if now - each.began > _PROVEN_S:
                self._gone(each)

    # -- consumers come and go -----------------------------------------------------------------

    def _accept(self) -> bool:
        """Accept a connection; return False if there is none."""
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # The connection stays in the queue, and the loop would spin on it.
                time.sleep(_LOOK_S)
            return True
        try:
            pid = check_peer(sock)
        except OSError:
            sock.close()
            return True
        strangers = self._strangers()
        if len(strangers) >= _MOST_STRANGERS:
            self._gone(strangers[0])
        self._consumers.append(Attached(sock, pid))
        return True

    def _gone(self, consumer: Attached) -> None:
        self._consumers.remove(consumer)
        consumer.close()
        self._idle_since = time.monotonic()

    def _hear(self, consumer: Attached) -> None:
        """Process a consumer's messages; a consumer that sends an invalid one is disconnected."""
        for _ in range(_HEARD_AT_ONCE):
            try:
                data, fds = receive_packet(consumer.sock)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            try:
                if not data:
                    self._gone(consumer)
                    return
                self._told(consumer, parse_told(data, fds), fds)
            except Exception as error:  # noqa: BLE001 - what a consumer of ours never sends may do anything
                consumer.tell("refused", f"the message was not understood: {error!r:.200}")
                self._gone(consumer)
                return
            finally:
                for fd in fds:
                    os.close(fd)

    def _told(self, consumer: Attached, message: dict[str, Any], fds: list[int]) -> None:
        do = message["do"]
        if do == "took":
            consumer.took(int(message["parcel"]), map(int, message["free"]))
        elif do == "state":
            number = int(message["number"])
            known = consumer.pipeline.position(number) if consumer.pipeline is not None else None
            consumer.tell("state", number, known)
        elif do == "leave":
            consumer.leave(message["holds"])
        elif do == "hello":
            self._hello(consumer, message)
        elif do == "dataset" and consumer.welcomed:
            self._dataset(consumer, str(message["digest"]), fds)
        elif do == "join" and consumer.welcomed and self._streams is not None:
            self._streams.join(consumer, message["asked"])
            self._lingers = self._settings.linger
        else:
            raise ValueError(f"a consumer sent {do!r}, which the host process does not know")

    def _hello(self, consumer: Attached, message: dict[str, Any]) -> None:
        try:
            check_versions(message, tuple(versions()), "the host process")
        except ValueError as error:
            consumer.tell("refused", str(error))
            return
        consumer.welcomed = True
        if self._streams is None:
            consumer.tell("want")
        else:
            consumer.send(self._welcome)

    def _dataset(self, consumer: Attached, digest: str, fds: list[int]) -> None:
        """Begin with the dataset that the first consumer sends; others may have been asked for it, too."""
        if self._streams is None:
            payload, description, globals_ = fds
            try:
                streams = Streams(unpacked(payload, globals_), self._settings, self._consumers)
                self._welcome = _welcome(digest, description, streams)
            except Exception as error:  # noqa: BLE001 - of anything that it unpickles
                told = "".join(traceback.format_exception(error))
                consumer.tell("refused", f"the host process cannot read the dataset:\n{told}")
                return
            self._streams = streams
        consumer.send(self._welcome)

    def close(self) -> None:
        """End all pipelines and connections."""
        if self._streams is not None:
            self._streams.close()
        for each in self._consumers:
            each.close()


def _welcome(digest: str, description: int, streams: Streams) -> Packet:
    """Return the packet that tells a consumer what the host process computes, and where its memory is."""
    arena = streams.arena
    reading = os.open(f"/proc/self/fd/{arena.fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        told = {
            "digest": digest,
            "stride": arena.stride,
            "slots": arena.slots,
            "pid": os.getpid(),
        }
        return Packet.of(("welcome", told), (reading, description))
    finally:
        os.close(reading)


def main(fd: int, log: int, settings: str) -> None:
    """Run a host process; called in an interpreter of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the consumers' affair
    fcntl.fcntl(log, fcntl.F_SETFL, os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    _be_one_for_all()
    server = HostServer(socket.socket(fileno=fd), HostSettings(**json.loads(settings)))
    try:
        server.serve()
    finally:
        server.close()


def _shorten_log() -> None:
    """Keep the newer half of the log, from a line on."""
    kept = os.pread(2, _LOG_BYTES // 2, os.fstat(2).st_size - _LOG_BYTES // 2)
    os.ftruncate(2, 0)
    os.write(2, kept.partition(b"\n")[2])


def _be_one_for_all() -> None:
    """Use the cores and memory of all ranks of this machine, which a launcher has divided among them."""
    if local_ranks() > 1:
        with contextlib.suppress(AttributeError, OSError):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
    for name in RANK_VARIABLES:
        os.environ.pop(name, None)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("tundish-host")
