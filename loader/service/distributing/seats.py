"""Seats on other machines: workers of the trainer's own pool that are reached over TCP.

The trainer asks an agent for a seat. The agent starts a worker process and passes the trainer's connection on to it.
From then on the worker belongs to the trainer's pool. Connecting never blocks: while a seat is being sought, the pool
waits for its descriptor as for all others, and gives it no tasks. If the attempt fails, it is repeated later or with
another agent.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pickle
import socket
import time
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tundish.loader.run.pool.local import LocalRecruiting
from tundish.loader.run.pool.peers import Peer, WorkerSpec
from tundish.loader.run.starting.kinship import Parent
from tundish.loader.run.starting.surroundings import import_path, working_directory
from tundish.loader.run.starting.workerprocess import Exit
from tundish.loader.service.connections.credentials import Address, Credentials, show_address
from tundish.loader.service.connections.dialing import Dial, Refused
from tundish.loader.service.connections.handshake import digest_of, is_silent
from tundish.loader.service.distributing.standing import AgentStanding
from tundish.shm.channel import Channel
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.shm.liveness import Poller
    from tundish.shm.memory import Arena

_PATHS_NBYTES = 24 << 10
ALONE_S = 30.0
"""Seconds without a worker after which an iterator warns with the reasons of failed connections."""

_NOBODY_S = 0.02
"""Seconds between checks of the places while no agent can be dialled; a check advances the places' own connection."""
_LOOK_S = 0.25
"""Seconds between checks of workers on other machines that have tasks."""


class Places(Protocol):
    """The agents that may have seats."""

    credentials: Credentials

    def addresses(self) -> Sequence[Address]:
        """Return the addresses of the agents now, without waiting."""
        ...

    def failed(self, address: Address, error: OSError) -> None:
        """Note that an agent could not be reached."""
        ...


class RemoteWorker:
    """The process of a worker on another machine, which is ended by ending its connection.

    It does not write to memory of this process, so nobody has to wait for its end. Its agent kills it if it does not
    end by itself.
    """

    pid = sentinel = None

    def __init__(self, sock: socket.socket, where: str) -> None:
        self.socket, self._where = sock, where

    def kill(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def wait_exit(self, timeout_s: float | None = None) -> Exit:
        """Return how it ended, as far as that is known here."""
        return Exit(-9, f"the connection to a worker of {self._where} ended", "")

    def release(self) -> None:
        """Do nothing: the channel's descriptor is the only one."""


class Seeking:
    """A seat whose worker is on its way.

    Attributes
    ----------
    dial : Dial or None
        The connection that is being made; None between two attempts.
    until : float
        When to continue without news, by ``time.monotonic``.
    """

    def __init__(self, seat: int) -> None:
        self.seat = seat
        self.dial: Dial | None = None
        self.address: Address = ("", 0)
        self.until = 0.0


class SeatRecruiting:
    """Recruits workers, first on this machine and then on others.

    Parameters
    ----------
    crew : WorkerSpec
        The specification of workers.
    arena : Arena or None
        The shared memory; only workers of this machine get it.
    poller : Poller
        Reports, with a `Seeking` as its source, that a connection can proceed.
    places : Places
        The agents of other machines.
    local : int
        The number of workers of this machine.
    """

    def __init__(
        self,
        crew: WorkerSpec,
        arena: Arena | None,
        poller: Poller,
        *,
        places: Places,
        local: int = 0,
    ) -> None:
        self._crew, self._arena, self._poller = crew, arena, poller
        self._places, self._local = places, local
        self._here: LocalRecruiting | None = None
        self._ours: list[Peer] = []  # workers of this machine that compute
        self._theirs: list[tuple[Address, Peer]] = []
        self._seeking: dict[int, Seeking] = {}
        self._standing = AgentStanding()
        self._warned = self._warned_alone = False
        self._alone_since = time.monotonic()
        self._looked = 0.0
        assert crew.payload is not None
        self._payload = mmap.mmap(crew.payload.fd, crew.payload.nbytes, prot=mmap.PROT_READ)
        # A path that is not here either is an element's error.
        self._paths = _within([path for path in crew.payload.paths if Path(path).exists()])
        self._digest = digest_of(memoryview(self._payload))

    # -- the pool's questions ------------------------------------------------------------------

    @property
    def sought(self) -> Collection[int]:
        """The seats whose workers are on their way."""
        return self._seeking.keys()

    @property
    def due(self) -> float | None:
        """When to call `look`."""
        times = [each.until for each in self._seeking.values()]
        if any(peer.jobs for _, peer in self._theirs):
            times.append(self._looked + _LOOK_S)
        return min(times, default=None)

    def start(self, seat: int, *, writes: bool, home: bool) -> Peer | None:
        """Start a worker on this machine, or seek one elsewhere."""
        self._ours = [peer for peer in self._ours if peer.channel.fileno() >= 0]
        if writes or home or len(self._ours) < self._local:
            peer = self._at_home().start(seat, writes=writes, home=home)
            if not (writes or home):
                self._ours.append(peer)
            return peer
        self._seeking[seat] = seeking = Seeking(seat)
        self._dial(seeking)
        return None

    def withdraw(self, seat: int) -> None:
        """Seek no worker for a seat any more."""
        self._hang_up(self._seeking.pop(seat))

    def pump(self) -> None:
        """Process what the launcher of this machine's workers has reported."""
        if self._here is not None:
            self._here.pump()

    def hear(self, source: object) -> list[Peer]:
        """Go on with a connection, or process the launcher's reports; return the worker that has come."""
        if not isinstance(source, Seeking):
            return [] if self._here is None else self._here.hear(source)
        if source.dial is None or self._seeking.get(source.seat) is not source:
            return []
        return self._advance(source)

    def look(self) -> None:
        """Give up connections that take too long, begin others, and end those to machines that fell silent."""
        now = time.monotonic()
        for seeking in list(self._seeking.values()):
            if seeking.until > now:
                continue
            if seeking.dial is None:
                self._dial(seeking)
            else:
                self._advance(seeking)
        if now - self._looked >= _LOOK_S:
            self._looked = now
            for _, peer in self._connected():
                worker = peer.process
                if peer.jobs and isinstance(worker, RemoteWorker) and is_silent(worker.socket):
                    worker.kill()

    def unfit(self, peer: Peer, error: BaseException) -> None:
        """Leave the agent of a worker that could not start alone; raise if no agent has workers that can."""
        for address, each in self._theirs:
            if each is peer:
                self._theirs.remove((address, each))
                self._refused(address, error)
                what = f"{type(error).__name__}: {error}"
                self._warn(
                    f"a worker of {peer.where} could not start, so this iterator uses other agents: {what}"
                )
                return
        raise error

    def close(self, *, linger: bool) -> None:
        """Give up what is sought, and end what starts workers here."""
        for seeking in self._seeking.values():
            self._hang_up(seeking)
        self._seeking.clear()
        if self._here is not None:
            self._here.close(linger=linger)
        with contextlib.suppress(BufferError):  # a dial that has been given up may still have it
            self._payload.close()

    # -- dialling ------------------------------------------------------------------------------

    def _at_home(self) -> LocalRecruiting:
        if self._here is None:
            self._here = LocalRecruiting(self._crew, self._arena, self._poller)
        return self._here

    def _connected(self) -> list[tuple[Address, Peer]]:
        """Return the workers elsewhere; leave the agents alone for a while whose workers have ended before they were ready."""
        for address, peer in self._theirs:
            if peer.channel.fileno() < 0 and peer.ready:
                self._standing.worked(address)
            elif peer.channel.fileno() < 0:
                self._standing.leave_alone(address)
        self._theirs = [each for each in self._theirs if each[1].channel.fileno() >= 0]
        return self._theirs

    def _dial(self, seeking: Seeking) -> None:
        """Begin a connection to the agent that has the fewest of this pool's workers; or try again later."""
        there = Counter(address for address, _ in self._connected())
        there.update(each.address for each in self._seeking.values() if each.dial is not None)
        now = time.monotonic()
        addresses = self._places.addresses()
        rested = [each for each in addresses if self._standing.due(each) <= now]
        if not rested:
            seeking.until = min([*map(self._standing.due, addresses), now + _NOBODY_S])
            return
        seeking.address = min(rested, key=there.__getitem__)
        try:
            dial = self._dialled(seeking)
            dial.advance()  # there is nothing to wait for before
        except OSError as error:
            self._failed(seeking, error)
            return
        self._watch(seeking, dial)

    def _watch(self, seeking: Seeking, dial: Dial) -> None:
        """Wait for a connection to go on."""
        seeking.dial, seeking.until = dial, dial.deadline
        self._poller.register(dial.fileno(), seeking, write=dial.wants_write)

    def _dialled(self, seeking: Seeking) -> Dial:
        crew = self._crew
        config = pickle.dumps(
            {
                **crew.config,
                "channel": "stream",
                "stride": 0,
                "slots": 0,
                "verified": 0,
                "seat": seeking.seat,
                "writes": False,
                "parent": Parent(os.getpid(), "MainProcess", b""),
                "inherits": False,
            }
        )
        ask = {
            "entry": crew.entry,
            "preload": [crew.entry.partition(":")[0], *crew.preload],
            "threads": crew.threads,
            "paths": self._paths,
            "path": import_path(),
            "cwd": working_directory(),
            "digest": self._digest,
        }
        blobs = {self._digest: self._payload, digest_of(config): config}
        return Dial(seeking.address, self._places.credentials, "seat", ask, blobs)

    def _advance(self, seeking: Seeking) -> list[Peer]:
        """Go on with a connection; return its worker when it is made."""
        dial = seeking.dial
        assert dial is not None
        self._poller.unregister(dial.fileno())  # one that fails closes its descriptor
        try:
            made = dial.advance()
        except OSError as error:  # a refusal is one, too
            seeking.dial = None
            self._failed(seeking, error)
            return []
        if made is None:
            self._watch(seeking, dial)
            return []
        del self._seeking[seeking.seat]
        self._standing.gave(seeking.address)
        where = show_address(seeking.address)
        peer = Peer(Channel(made.socket, "stream"), seeking.seat, where=where)
        peer.process = RemoteWorker(made.socket, where)
        self._theirs.append((seeking.address, peer))
        return [peer]

    def _failed(self, seeking: Seeking, error: OSError) -> None:
        """Leave an agent alone for a while; raise if all agents have refused and there is no worker."""
        seeking.until = time.monotonic()
        if isinstance(error, Refused):
            self._refused(seeking.address, error)
        else:
            self._standing.failed(seeking.address, error)
            self._places.failed(seeking.address, error)
        self._warn_alone(seeking.until)

    def _warn_alone(self, now: float) -> None:
        """Warn once if for long no worker could be had, with what each agent said."""
        if self._ours or self._connected():
            self._alone_since = now
        elif now - self._alone_since > ALONE_S and not self._warned_alone:
            self._warned_alone = True
            reasons = self._standing.reasons(self._places.addresses())
            warnings.warn(
                f"no agent has given this iterator a worker for {ALONE_S:g} s, and it tries again: {reasons}",
                stacklevel=callers_level(),
            )

    def _refused(self, address: Address, error: BaseException) -> None:
        """Leave an agent alone that has no worker for this pool; raise if all are so and no worker is there, warn if some are here."""
        self._standing.refused(address, error)
        if self._connected() or not self._standing.all_refuse(self._places.addresses()):
            return
        if not self._ours:
            raise error
        self._warn(f"no agent gives this iterator a worker, so it uses only this machine: {error}")

    def _warn(self, text: str) -> None:
        """Warn once."""
        if not self._warned:
            self._warned = True
            warnings.warn(text, stacklevel=callers_level())

    def _hang_up(self, seeking: Seeking) -> None:
        dial, seeking.dial = seeking.dial, None
        if dial is not None:
            self._poller.unregister(dial.fileno())
            dial.close()


def _within(paths: Sequence[str]) -> list[str]:
    """Return the first paths, as many as fit well into a frame: they are but an early check."""
    sizes = accumulate(len(json.dumps(path)) + 1 for path in paths)
    return [path for path, size in zip(paths, sizes, strict=True) if size <= _PATHS_NBYTES]
