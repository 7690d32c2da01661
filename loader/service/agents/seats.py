"""The seats of an agent: each is the connection of a trainer that became the channel of a worker.

A worker serves the trainer over the same socket that the trainer opened: the launcher passes the descriptor on, so no
byte of a batch goes through the agent. The agent also keeps the connection open, to notice when the trainer is gone. It
then kills the worker if that does not end by itself.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tundish.forked import not_inherited
from tundish.loader.run.starting.launcher import launcher, start_method
from tundish.loader.service.agents.payloads import IncomingBlob, Payloads
from tundish.loader.service.agents.seatworker import SeatOrder, main
from tundish.loader.service.connections.handshake import is_silent
from tundish.loader.service.connections.loop import LEFT, READ, Complaints, DueCall, Loop
from tundish.loader.service.connections.roles import Accepted, Role

if TYPE_CHECKING:
    from tundish.loader.run.starting.launcher import Launcher
    from tundish.loader.run.starting.workerprocess import WorkerProcess
    from tundish.loader.service.connections.credentials import TlsFiles

_LEAVING_S = 0.3
_CLOSING_S = 0.2  # for the workers that were killed to be gone
_LOOK_S = 1.0
_SHOWN = 5  # missing paths
_MOST_THREADS = 1024


@dataclass(eq=False)
class SeatTaken:
    """A seat that a trainer has.

    Attributes
    ----------
    number : int
        Its number, unique at this agent.
    """

    number: int
    sock: socket.socket
    process: WorkerProcess
    due: DueCall | None = None
    watched: int | None = None


class Seats(Role):
    """The role "seat": a connection becomes the channel of a worker that is started for it.

    Parameters
    ----------
    most_bytes : int
        The number of bytes of payloads to keep.
    most_workers : int
        The number of workers that it runs at once.
    tls : TlsFiles or None
        The certificates of workers.

    Attributes
    ----------
    name : str
        The agent's name, for answers and errors.
    """

    hands_over = True
    name = ""

    def __init__(
        self,
        most_bytes: int,
        most_workers: int,
        tls: TlsFiles | None,
    ) -> None:
        self._most_workers = most_workers
        self.payloads = Payloads(most_bytes)
        self.taken: dict[int, SeatTaken] = {}
        self.started = 0
        self._tls = tls
        self._coming: dict[str, IncomingBlob | None] = {}
        self._launchers: dict[int, Launcher] = {}
        self._watched: dict[int, int] = {}  # descriptors of launchers
        self._failures: dict[int, str] = {}  # of launchers, for the next request
        self._complaints = Complaints()
        self._looking: DueCall | None = None

    def attach(self, loop: Loop) -> None:
        self._loop = loop

    # -- a request -----------------------------------------------------------------------------

    def check(self, hello: Mapping[str, Any]) -> None:
        """Raise if a request is none, or names files that are not here."""
        ask = hello["ask"]
        entry, threads = ask.get("entry"), ask.get("threads", 1)
        if not isinstance(entry, str) or ":" not in entry:
            raise ValueError(f"entry is {entry!r}; it must be 'module:function'")
        if type(threads) is not int or not 1 <= threads <= _MOST_THREADS:
            raise ValueError(f"threads is {threads!r}; it must be 1 to {_MOST_THREADS}")
        for key in ("preload", "paths", "path"):
            if not all(isinstance(each, str) for each in _listed(ask, key)):
                raise ValueError(f"{key} is {ask[key]!r}; it must be a list of texts")
        digest = ask.get("digest")
        blobs = hello["blobs"]
        if digest is not None and digest not in blobs:
            raise ValueError(f"digest is {digest!r}, which is not among the blobs")
        if len(blobs) != (1 if digest is None else 2):
            raise ValueError(
                f"{len(blobs)} blobs; a worker needs its config, and the payload if it has one"
            )
        if len(self.taken) >= self._most_workers:
            raise ValueError(
                f"{self.name} runs {len(self.taken)} worker processes, and cannot run more: start more agents, "
                "or this one "
                "with more cores"
            )
        missing = [path for path in _listed(ask, "paths") if not os.path.exists(path)]  # noqa: PTH110
        if missing:
            shown = ", ".join(map(repr, missing[:_SHOWN]))
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise ValueError(
                f"{shown}{more}: not on {self.name}, and the pipeline maps or opens them there. Workers on other "
                "machines need files at the same paths: put them on storage that all machines mount, or "
                "give URLs that fsspec opens; or keep workers local (target_workers='LOCAL')"
            )

    def lacks(self, blobs: Mapping[str, int]) -> list[str] | None:
        """Return the blobs that are not here; None while one of them is on its way from another trainer's connection."""
        for digest, nbytes in blobs.items():
            if nbytes > self.payloads.most_bytes:
                raise ValueError(
                    f"{self.name} keeps at most {self.payloads.most_bytes:,} bytes of data that functions and sources of "
                    f"pipelines refer to, and blob {digest} alone has {nbytes:,}: use np.memmap or files for large "
                    "arrays; the limit is a quarter of the agent's memory"
                )
        if any(digest in self._coming for digest in blobs):
            return None
        wanted = [digest for digest in blobs if digest not in self.payloads]
        self._coming |= dict.fromkeys(wanted)
        return wanted

    def place(self, digest: str, nbytes: int) -> Any:
        blob = IncomingBlob.of_size(nbytes)
        self._coming[digest] = blob
        return blob.data

    def spoilt(self, digest: str) -> None:
        blob = self._coming.pop(digest, None)
        if blob is not None:
            blob.close()

    def welcome(self, accepted: Accepted) -> dict[str, Any]:
        ask = accepted.ask
        payload = ask.get("digest")
        blobs = {digest: self._coming.pop(digest) for digest in accepted.blobs}
        try:
            for digest, blob in blobs.items():
                assert blob is not None
                if digest == payload:
                    self.payloads.keep(digest, blob.file(), len(blob.data))
                else:
                    accepted.blobs[digest] = blob.bytes()
            if payload is not None and payload not in self.payloads:
                raise ConnectionAbortedError("the payload has just gone; it is to be sent again")
            threads = ask.get("threads", 1)
            if reason := self._failures.pop(threads, ""):
                raise ValueError(f"{self.name} cannot start workers: {reason}")
            self._launcher(threads).preload(_listed(ask, "preload"))
        except RuntimeError as error:  # the zygote does not start
            raise ValueError(f"{self.name} cannot start workers: {error}") from error
        finally:
            accepted.blobs = {
                digest: accepted.blobs[digest] for digest in blobs if digest != payload
            }
            for blob in blobs.values():
                if blob is not None:
                    blob.close()
        self.started += 1
        accepted.hello["seat"] = self.started
        return {"agent": self.name, "worker": self.started}

    def begin(self, accepted: Accepted) -> None:
        ask, sock = accepted.ask, accepted.socket
        (config,) = accepted.blobs.values()
        order = SeatOrder(
            entry=ask["entry"],
            config=config,
            cwd=ask.get("cwd"),
            path=tuple(_listed(ask, "path")),
            tls=self._tls if accepted.secret else None,
            secret=accepted.secret,
        )
        try:
            digest = ask.get("digest")
            payload = None if digest is None else self.payloads.use(digest)
            fds = [sock.fileno(), *([] if payload is None else [payload])]
            number = accepted.hello["seat"]
            process = self._launcher(ask.get("threads", 1)).start(
                f"{main.__module__}:main",
                fds,
                pickle.dumps(order),
                # Another part of this process may be the one that reads the report.
                changed=lambda: self._loop.soon(partial(self._heard, number)),
            )
        except BaseException:
            sock.close()
            raise
        not_inherited(sock, socket.socket.close)
        seat = self.taken[number] = SeatTaken(number, sock, process)
        self._loop.watch(sock.fileno(), LEFT, partial(self._trainer_left, seat))
        self._watch(seat)
        if self._looking is None:
            self._looking = self._loop.later(_LOOK_S, self._look)

    def _launcher(self, threads: int) -> Launcher:
        """Return this process's launcher, whose reports this agent reads from now on, as others do."""
        if threads in self._watched:
            self._pump(threads)
        kind = start_method()
        current = launcher(threads, "spawn" if kind == "fork" else kind)
        if current is not self._launchers.get(threads):
            self._unwatch_launcher(threads)
            self._launchers[threads] = current
            fd = current.fileno()
            if fd is not None:
                self._watched[threads] = fd
                self._loop.watch(fd, READ, lambda _: self._pump(threads))
        return current

    # -- workers that run ----------------------------------------------------------------------

    def _pump(self, threads: int) -> None:
        """Process the reports of a launcher."""
        current = self._launchers[threads]
        try:
            current.pump()
        except RuntimeError as error:
            self._failures[threads] = str(error)
            self._complaints.say("launcher", f"{self.name} cannot start workers: {error}")
        if not current.alive:
            self._unwatch_launcher(threads)

    def _unwatch_launcher(self, threads: int) -> None:
        fd = self._watched.pop(threads, None)
        if fd is not None:
            self._loop.unwatch(fd)

    def _heard(self, number: int) -> None:
        """Process a report about a worker, whoever has read it."""
        if (seat := self.taken.get(number)) is not None:
            self._watch(seat)

    def _watch(self, seat: SeatTaken) -> None:
        """Watch a worker that has begun; let go of one that has ended."""
        if seat.process.exit is not None:
            self._gone(seat)
        elif seat.watched is None and seat.process.sentinel is not None:
            seat.watched = seat.process.sentinel
            self._loop.watch(seat.watched, READ, partial(self._worker_left, seat))

    def _worker_left(self, seat: SeatTaken, _: int) -> None:
        """End the connection of a worker that has ended: this process has it open, too. The reason comes later."""
        self._unwatch(seat)
        self._hang_up(seat)

    def _trainer_left(self, seat: SeatTaken, _: int) -> None:
        """Kill a worker whose trainer is gone, unless it ends by itself."""
        self._loop.unwatch(seat.sock.fileno())
        if seat.due is None:
            seat.due = self._loop.later(_LEAVING_S, seat.process.kill)

    def _look(self) -> None:
        """Look for trainers whose machines have fallen silent."""
        self._looking = None
        for seat in self.taken.values():
            if seat.due is None and seat.sock.fileno() >= 0 and is_silent(seat.sock):
                self._trainer_left(seat, 0)
        if self.taken:
            self._looking = self._loop.later(_LOOK_S, self._look)

    def _unwatch(self, seat: SeatTaken) -> None:
        if seat.watched is not None:
            self._loop.unwatch(seat.watched)
            seat.watched = -1

    def _hang_up(self, seat: SeatTaken) -> None:
        if seat.sock.fileno() >= 0:
            self._loop.unwatch(seat.sock.fileno())
            with contextlib.suppress(OSError):  # a process that the worker has forked may hold it
                seat.sock.shutdown(socket.SHUT_RDWR)
            seat.sock.close()

    def _gone(self, seat: SeatTaken) -> None:
        del self.taken[seat.number]
        self._unwatch(seat)
        self._hang_up(seat)
        if seat.due is not None:
            seat.due.cancel()
        seat.process.release()

    def close(self) -> None:
        for seat in self.taken.values():
            seat.process.kill()
        until = time.monotonic() + _CLOSING_S
        for seat in list(self.taken.values()):
            with contextlib.suppress(RuntimeError):  # its launcher could not start
                seat.process.wait_exit(max(0.0, until - time.monotonic()))
            self._gone(seat)
        for threads in list(self._launchers):
            self._unwatch_launcher(threads)
        self._launchers.clear()
        for digest in list(self._coming):
            self.spoilt(digest)
        self.payloads.close()


def _listed(ask: Mapping[str, Any], key: str) -> list[str]:
    value = ask.get(key, [])
    return value if isinstance(value, list) else [value]
