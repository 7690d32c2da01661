"""The host process: one poll loop that runs a dataset's pipelines and hands their elements to consumers.

A consumer is one iterator in another process. Slots that it holds stay leased until it releases them, or until it is
gone: its socket is closed, or its process has ended while a child of that process still has the socket open.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import mmap
import os
import pickle
import secrets
import select
import signal
import socket
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.options import WithOptions, options_of
from tundish.loader.plan.options import Options
from tundish.loader.protocols.context import first_seed
from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.run.coordinating.store import shared_ring
from tundish.loader.run.parallelism import budget_of
from tundish.loader.run.starting.payload import unpack
from tundish.loader.run.starting.settings import Applied
from tundish.loader.run.starting.standin import adopt
from tundish.loader.service.connections.handshake import check_versions, versions
from tundish.loader.service.host.attached import Attached, HostStream
from tundish.loader.service.host.folder import HostFolder, check_peer
from tundish.loader.service.host.pipeline import HostPipeline
from tundish.loader.service.host.settings import HostSettings
from tundish.loader.service.host.wire import Packet, parse_told, receive_packet
from tundish.shm.budget import RANK_VARIABLES, local_ranks, parse_bytes

if TYPE_CHECKING:
    from tundish.loader.service.host.parcels import Parcel
    from tundish.shm.ring import Ring

_CREDIT = 2
"""Parcels that a consumer may be sent before it takes the first of them."""
_MOST_STRANGERS = 64
_HEARD_AT_ONCE = 64
_PROVEN_S = 30.0
_FIRST_S = 60.0
"""Seconds for which a process that was started waits for its first consumer."""
_LOOK_S = 0.002
_LOG_BYTES = 1 << 20
"""Bytes of what functions have printed, of which the newer half is kept when there are more."""


class HostServer:
    """The host process.

    Parameters
    ----------
    listener : socket
        Where consumers connect.
    settings : HostSettings
        The first consumer's.
    """

    def __init__(self, listener: socket.socket, settings: HostSettings) -> None:
        listener.setblocking(False)
        self._listener, self._settings = listener, settings
        self._consumers: list[Attached] = []
        self._streams: dict[str, HostStream] = {}
        self._numbers = itertools.count()
        self._idle_since = time.monotonic()
        self._had_one = False
        self._node: Any = None
        self._digest, self._description = "", -1
        self._seed: int | None = None
        self._settings = Applied()
        self._ring: Ring | None = None
        self._limit = self._budget = 0

    # -- the loop ------------------------------------------------------------------------------

    def serve(self) -> None:
        """Serve consumers until there has been none for `linger` seconds."""
        while True:
            worked = self._work()
            if os.fstat(2).st_size > _LOG_BYTES:
                _shorten_log()
            left = self._time_left()
            if left is not None and left <= 0 and self._ends():
                return
            self._wait(0.0 if worked else left)

    def _time_left(self) -> float | None:
        joined = any(each.stream is not None for each in self._consumers)
        if joined:
            strangers = [each for each in self._consumers if each.stream is None]
            return _PROVEN_S if strangers else None
        lingers = self._settings.linger
        if not self._had_one:
            lingers = max(lingers, _FIRST_S)
        return self._idle_since + lingers - time.monotonic()

    def _ends(self) -> bool:
        """Give up the name, unless a consumer has connected meanwhile; return True if the process may end."""
        with HostFolder.open() as folder, folder.locked(time.monotonic() + _FIRST_S):
            with contextlib.suppress(BlockingIOError):
                self._accept()
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
        for pipeline in self._pipelines():
            wakes = pipeline.iterator.wakes()
            if wakes is not None:
                poll.register(wakes, select.POLLIN)
                who[wakes] = pipeline
            elif self._demanded(pipeline) and not pipeline.ended:
                timeout_s = min(timeout_s or _LOOK_S, _LOOK_S)
        for fd, events in poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1e3):
            found = who[fd]
            if found is None:
                with contextlib.suppress(BlockingIOError):
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
        for each in list(self._consumers):
            if each.stream is None and now - each.began > _PROVEN_S:
                self._gone(each)

    def _pipelines(self) -> list[HostPipeline]:
        return [each for stream in self._streams.values() for each in stream.pipelines]

    # -- consumers come and go -----------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(
                    _LOOK_S
                )  # the connection stays in the queue, and the loop would spin on it
            return
        try:
            pid = check_peer(sock)
        except OSError:
            sock.close()
            return
        strangers = [each for each in self._consumers if each.stream is None]
        if len(strangers) >= _MOST_STRANGERS:
            self._gone(strangers[0])
        self._consumers.append(Attached(sock, pid))

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
            if consumer not in self._consumers:
                return

    def _told(self, consumer: Attached, message: dict[str, Any], fds: list[int]) -> None:
        do = message["do"]
        if do == "took":
            parcel = consumer.holds[int(message["parcel"])] if "parcel" in message else None
            if parcel is not None:
                consumer.out -= 1
                consumer.taken = max(consumer.taken, parcel.first)
            for number in message["free"]:
                del consumer.holds[int(number)]
        elif do == "state":
            number = int(message["number"])
            known = consumer.pipeline.position(number) if consumer.pipeline is not None else None
            consumer.tell("state", number, known)
        elif do == "leave":
            consumer.leaving, consumer.pipeline = True, None
            consumer.queue.clear()
            kept = set(message["holds"])
            for number in consumer.holds.keys() - kept:  # what it has not read yet among them
                del consumer.holds[number]
        elif do == "hello":
            self._hello(consumer, message)
        elif do == "dataset" and consumer.welcomed:
            self._dataset(consumer, message, fds)
        elif do == "join" and consumer.welcomed and self._node is not None:
            self._join(consumer, message["asked"])
        else:
            raise ValueError(f"a consumer sent {do!r}, which the host process does not know")

    def _hello(self, consumer: Attached, message: dict[str, Any]) -> None:
        try:
            check_versions(message, tuple(versions()), "the host process")
        except ValueError as error:
            consumer.tell("refused", str(error))
            return
        consumer.welcomed = True
        if self._node is None:
            consumer.tell("want")
        else:
            self._welcome(consumer)

    def _dataset(self, consumer: Attached, message: dict[str, Any], fds: list[int]) -> None:
        """Unpack the dataset that the first consumer sends."""
        if self._node is None:
            try:
                by_value = dict[str, dict[str, Any]]()
                settings, node = unpack(fds[0], namespaces=by_value)
                self._settings.take(settings, early=True)
                self._settings.take(settings, early=False)
                # This process has the consumer's environment, so all of the consumer's values are right here.
                with mmap.mmap(fds[2], 0, access=mmap.ACCESS_READ) as data:
                    entries, values = pickle.loads(data)
                adopt(entries, values, by_value)
                self._begin(node)
            except Exception as error:  # noqa: BLE001 - of anything that it unpickles
                told = "".join(traceback.format_exception(error))
                consumer.tell("refused", f"the host process cannot read the dataset:\n{told}")
                return
            self._digest, self._description = str(message["digest"]), os.dup(fds[1])
        self._welcome(consumer)

    def _begin(self, node: Any) -> None:
        options = options_of(node)
        budget = budget_of(options, tuned=False)
        ring = shared_ring()
        if ring is None:
            raise RuntimeError(
                "there is no shared memory for batches, as `tundish doctor` explains: iterate over the dataset itself"
            )
        self._ring = ring
        with contextlib.suppress(OSError):
            os.fchmod(ring.arena.fd, 0o400)  # nobody needs to open it again for writing
        asked = self._settings.window
        # The rest is for what consumers hold, and for the elements that are being made.
        self._budget = ring.arena.bounded(budget)
        self._limit = min(budget // 2, budget if asked is None else parse_bytes(asked))
        # All consumers share one order; each consumer's state is a position in it.
        ordered = Options()
        ordered.deterministic = True
        self._node = WithOptions(node, ordered)

    def _welcome(self, consumer: Attached) -> None:
        assert self._ring is not None
        arena = self._ring.arena
        reading = os.open(f"/proc/self/fd/{arena.fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            told = {
                "digest": self._digest,
                "stride": arena.stride,
                "slots": arena.slots,
                "pid": os.getpid(),
            }
            consumer.send(Packet.of(("welcome", told), (reading, self._description)))
        finally:
            os.close(reading)

    def _join(self, consumer: Attached, asked: dict[str, Any]) -> None:
        """Begin to send elements to a consumer from where it is."""
        start = {key: asked[key] for key in ("iteration", "seed", "graph_seed")}
        consumer.skips = asked["lag"] == "skip"
        consumer.start = {**start, "position": asked["position"]}
        consumer.anchor = int(asked["anchor"])
        number = int(asked["number"])
        if asked["stream"] is not None:
            if self._seed is None:  # the process before this one drew it
                self._seed = asked["seed"]
            stream = self._streams.get(asked["stream"])
            if stream is None:
                stream = self._streams[asked["stream"]] = HostStream(asked["stream"], start)
        elif asked["position"] is None:
            stream, number = self._fresh_stream(consumer, start), 0
        else:
            stream, number = self._stream_at(consumer.start)
            consumer.anchor = number
        consumer.start |= {"seed": stream.start["seed"]}
        consumer.stream, consumer.wanted, consumer.taken = stream, number, number
        self._had_one = True
        told = {"stream": stream.token, "number": number, "seed": stream.start["seed"]}
        consumer.tell("joined", told)

    def _fresh_stream(self, consumer: Attached, start: dict[str, Any]) -> HostStream:
        if start["seed"] is None:  # the first consumer's seed holds for all
            if self._seed is None:
                self._seed = consumer.start["seed"] = first_seed()
            start["seed"] = self._seed
        elif self._seed is None:
            self._seed = start["seed"]
        for stream in self._streams.values():
            if stream.fresh and stream.start == start:
                return stream
        return self._new_stream(start, fresh=True)

    def _stream_at(self, start: dict[str, Any]) -> tuple[HostStream, int]:
        """Return the stream that has a position, and the number of the next element there; a new stream if none has it."""
        position = start["position"]
        seeds = {key: start[key] for key in ("iteration", "seed", "graph_seed")}
        for stream in self._streams.values():
            number = stream.known.number(position) if stream.start == seeds else None
            if number is not None:
                return stream, number
        return self._new_stream(seeds), 0

    def _new_stream(self, start: dict[str, Any], *, fresh: bool = False) -> HostStream:
        stream = HostStream(secrets.token_hex(8), start, fresh=fresh)
        self._streams[stream.token] = stream
        return stream

    # -- work ----------------------------------------------------------------------------------

    def _work(self) -> bool:
        """Send computed parcels and compute missing ones; return True if something changed."""
        worked = False
        for consumer in self._consumers:
            if consumer.stream is not None and not consumer.leaving:
                self._assign(consumer, consumer.stream)
                worked |= self._supply(consumer)
        for stream in list(self._streams.values()):
            for pipeline in list(stream.pipelines):
                worked |= self._run(stream, pipeline)
            if not stream.pipelines and not any(each.stream is stream for each in self._consumers):
                del self._streams[stream.token]
        return worked

    def _assign(self, consumer: Attached, stream: HostStream) -> None:
        """Choose the pipeline for a consumer: of those that have or will have its next element, the one furthest on."""
        wanted, now = consumer.wanted, consumer.pipeline
        if now is not None and now.fault is not None and now.reaches(wanted):
            return  # it has what comes before its error, and then that
        able = [each for each in stream.pipelines if each.serves(wanted, consumer.anchor)]
        if able:
            best = max(able, key=lambda each: (each.produced > wanted, each.produced))
            if (
                consumer.pipeline is None
                or not consumer.pipeline.reaches(wanted)
                or best.produced > wanted
            ):
                consumer.pipeline = best
            return
        assert self._ring is not None
        try:
            made = HostPipeline(
                self._node,
                self._ring,
                consumer.start,
                number=consumer.anchor,
                known=stream.known,
                limit=self._limit,
                budget=self._budget,
                numbers=self._numbers,
            )
        except Exception as error:  # noqa: BLE001 - a file that is not there, a state that is none, ...
            self._stop(consumer, Packet.of(("fault", dumps_exception(error))))
            return
        stream.pipelines.append(made)
        consumer.pipeline = made

    def _stop(self, consumer: Attached, packet: Packet) -> None:
        """Send a consumer the reason why nothing more comes; it may join again at its position."""
        consumer.send(packet)
        consumer.leaving, consumer.pipeline = True, None

    def _supply(self, consumer: Attached) -> bool:
        """Send a consumer what its pipeline has for it."""
        worked, pipeline = False, consumer.pipeline
        while pipeline is not None and consumer.out < _CREDIT and not consumer.told_end:
            parcel = pipeline.at(consumer.wanted)
            if parcel is None:
                break
            self._give(consumer, parcel)
            worked = True
        if pipeline is None or not pipeline.ended or consumer.told_end:
            return worked
        if consumer.wanted == pipeline.produced and consumer.out < _CREDIT:
            consumer.told_end = worked = True
            consumer.tell("end", pipeline.produced, (pipeline.end(),))
        return worked

    def _give(self, consumer: Attached, parcel: Parcel) -> None:
        consumer.wanted = parcel.stop
        consumer.out += 1
        consumer.holds[parcel.number] = parcel
        # A consumer that keeps many batches has to copy the next ones, so that slots stay free for the others.
        kept = sum(each.nbytes for each in consumer.holds.values())
        if kept > self._limit // 2 and len(consumer.holds) > _CREDIT + 1:
            consumer.tell("copy", parcel.number)
        consumer.send(parcel.packet)

    def _demanded(self, pipeline: HostPipeline) -> bool:
        return any(
            each.pipeline is pipeline and each.out < _CREDIT and each.wanted >= pipeline.sendable
            for each in self._consumers
        )

    def _run(self, stream: HostStream, pipeline: HostPipeline) -> bool:
        """Compute a parcel if a consumer waits for one; close the pipeline when no consumer reads it."""
        readers = [each for each in self._consumers if each.pipeline is pipeline]
        if not readers:
            stream.pipelines.remove(pipeline)
            pipeline.close()
            return True
        self._drop(pipeline, readers)
        if pipeline.fault is not None:
            return self._fault(pipeline, readers)
        if (pipeline.ended and not pipeline.waits) or not self._demanded(pipeline):
            return False
        made = (pipeline.is_full or pipeline.waits) and self._make_room(pipeline, readers)
        if pipeline.is_full and not made:
            return False
        return pipeline.advance()

    def _drop(self, pipeline: HostPipeline, readers: list[Attached]) -> None:
        full = pipeline.is_full or pipeline.waits
        if pipeline.head and (full or self._settings.consumers == len(readers)):
            pipeline.head = False
        needed = pipeline.first if pipeline.head else min(each.wanted for each in readers)
        pipeline.drop(needed, min(each.taken for each in readers))

    def _make_room(self, pipeline: HostPipeline, readers: list[Attached]) -> bool:
        """Move the slowest consumers past the oldest parcel; return False if one of them may not skip."""
        last = [each for each in readers if each.wanted == min(one.wanted for one in readers)]
        if not all(each.skips for each in last):
            return False
        parcel = pipeline.at(last[0].wanted)
        if parcel is None:  # none of them is behind: others hold what they have had
            return False
        for each in last:
            told = ("skipped", each.wanted, parcel.stop)
            each.wanted = parcel.stop
            each.tell(*told)
        self._drop(pipeline, readers)
        return not pipeline.is_full

    def _fault(self, pipeline: HostPipeline, readers: list[Attached]) -> bool:
        """Send a pipeline's error to the readers that have come to it; they may join again at their positions."""
        assert pipeline.fault is not None
        there = [each for each in readers if each.wanted >= pipeline.sendable]
        if there:
            packet = Packet.of(("fault", dumps_exception(pipeline.fault)))
            for each in there:
                self._stop(each, packet)
        return bool(there)

    def close(self) -> None:
        """End all pipelines and connections."""
        for stream in self._streams.values():
            for pipeline in stream.pipelines:
                pipeline.close()
        for each in self._consumers:
            each.close()


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
