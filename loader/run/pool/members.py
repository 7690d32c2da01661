"""The members of a pool: workers are started up to the wanted number, replaced, and released."""

from __future__ import annotations

import itertools
import time
from operator import attrgetter
from typing import TYPE_CHECKING

from tundish.loader.run.pool.local import LocalRecruiting
from tundish.loader.run.pool.recruiting import check_spare, descriptors_for
from tundish.loader.run.pool.replacing import LATER_S
from tundish.shm.liveness import Poller

if TYPE_CHECKING:
    from tundish.loader.run.pool.peers import Peer, WorkerSpec
    from tundish.loader.run.pool.recruiting import Recruiting
    from tundish.loader.run.watching.queueing import Runner
    from tundish.loader.watch.stats import WorkerStats
    from tundish.shm.memory import Arena

_SPARE = 4
"""Descriptors that a pool leaves to the consumer."""
LOAD = attrgetter("load")
"""Returns the work that a worker has, in seconds."""


class Members:
    """The workers of a pool, without their tasks.

    Parameters
    ----------
    size : int
        The number of workers.
    arena : Arena or None
        The shared memory.
    crew : WorkerSpec
        The specification of workers.
    writers : int
        The number of additional workers that only get orders.
    homes : int
        The number of additional workers of this machine that are started if there are none and a task needs one.
    """

    def __init__(
        self, size: int, arena: Arena | None, crew: WorkerSpec, *, writers: int, homes: int
    ) -> None:
        self.size, self._crew = size, crew
        self._writers, self._homes, self._names = writers, 0, 0
        self._most_homes = homes
        self._peers: list[Peer] = []
        self.starts: list[float] = []
        """When to start missing workers, by ``time.monotonic``."""
        self._closed = False
        try:
            self._poller = Poller()
            recruiting = crew.recruiting or LocalRecruiting
            self._recruiting: Recruiting = recruiting(crew, arena, self._poller)
        except BaseException:
            if crew.payload is not None:
                crew.payload.close()
            raise

    def _fill(self) -> None:
        """Start workers up to the wanted number."""
        for _ in range(self.size - self._here):
            self._start()
        for _ in range(self._writers - len(self.writing)):
            self._start(writes=True)
        for _ in range(self._homes - sum(peer.home for peer in self._peers)):
            self._start(home=True)

    def _check_spare(self) -> None:
        """Raise before descriptors run out: each new worker sends one more, and the consumer needs some."""
        if self._crew.thread is None:
            check_spare(_SPARE + sum(peer.sentinel is None for peer in self._peers))

    def _refill(self) -> None:
        """Start missing workers; if that fails, retry after a while."""
        try:
            with descriptors_for("a worker in the place of one that died"):
                self._fill()
        except OSError:
            self.starts.append(time.monotonic() + LATER_S)
            raise

    @property
    def _staying(self) -> list[Peer]:
        """The workers that compute and are to stay."""
        return [p for p in self._peers if not (p.writes or p.home or p.leaving)]

    def _part(self) -> None:
        """Release surplus workers, first those that are still on their way."""
        for seat in sorted(self._recruiting.sought)[: max(0, self._here - self.size)]:
            self._recruiting.withdraw(seat)
        for peer in sorted(self._staying, key=LOAD)[: max(0, self._here - self.size)]:
            peer.leaving = True
            if not peer.jobs:
                self._let_go(peer)

    @property
    def _here(self) -> int:
        return len(self._staying) + len(self._recruiting.sought)

    def _let_go(self, peer: Peer) -> None:
        """Release a worker without tasks: it exits when its channel is closed."""
        self._forget(peer)
        if peer.process is not None:
            peer.process.kill()
            peer.process.release()

    def _start(self, *, writes: bool = False, home: bool = False) -> None:
        taken = {peer.seat for peer in self._peers}.union(self._recruiting.sought)
        seat = next(seat for seat in itertools.count() if seat not in taken)
        peer = self._recruiting.start(seat, writes=writes, home=home)
        if peer is not None:
            self._welcome(peer)

    def _welcome(self, peer: Peer) -> None:
        """Add a worker that has been started."""
        self._names += 1
        peer.name = self._names
        self._watch_sentinel(peer)
        peer.channel.set_nonblocking()
        self._poller.register(peer.channel.fileno(), peer)
        self._peers.append(peer)

    def _watch_sentinel(self, peer: Peer) -> None:
        process = peer.process
        if process is not None and peer.sentinel is None and process.sentinel is not None:
            peer.sentinel = process.sentinel
            self._poller.register(process.sentinel, peer)

    def measured(self) -> tuple[WorkerStats, ...]:
        """Return the statistics of each worker that is alive."""
        return tuple(peer.measured() for peer in self._peers if not (peer.writes or peer.home))

    @property
    def elsewhere(self) -> int:
        """The number of workers on other machines."""
        return sum(peer.where is not None for peer in self._peers)

    def runners(self) -> list[Runner]:
        """Return the processes and threads of the workers that are up."""
        found = (peer.runner() for peer in self._peers if not (peer.writes or peer.home))
        return [each for each in found if each is not None]

    def pids(self) -> list[int]:
        """Return the ids of the processes that are known to run."""
        if not self._closed:
            self._recruiting.pump()
        return [p.process.pid for p in self._peers if p.process is not None and p.process.pid]

    @property
    def starting(self) -> int:
        """The number of workers that have not reported ready."""
        there = sum(not (peer.ready or peer.writes or peer.home) for peer in self._peers)
        return there + len(self._recruiting.sought)

    @property
    def is_fresh(self) -> bool:
        """True if a worker has not done a task yet: the first ones import modules."""
        return any(not (peer.tasks or peer.writes or peer.home) for peer in self._peers)

    @property
    def writing(self) -> list[Peer]:
        """Return the writers."""
        return [peer for peer in self._peers if peer.writes]

    def by_load(self) -> list[Peer]:
        """Return the workers, the least loaded first."""
        return sorted(self._peers, key=LOAD)

    def up_elsewhere(self) -> list[Peer]:
        """Return the workers on other machines that are up."""
        return [peer for peer in self._staying if peer.where is not None and peer.ready]

    def _at_home(self) -> list[Peer]:
        """Return the workers of this machine that only get tasks whose input lies in shared memory; start them if necessary."""
        self._homes = self._most_homes
        if not (any(peer.home for peer in self._peers) or self.starts):
            self._refill()
        return [peer for peer in self._peers if peer.home]

    def _forget(self, peer: Peer) -> None:
        self._peers.remove(peer)
        self._poller.unregister(peer.channel.fileno())
        if peer.sentinel is not None:
            self._poller.unregister(peer.sentinel)
        peer.channel.close()

    def close(self, wait_s: float = 0.25, *, linger: bool = False) -> list[Peer]:
        """End all workers at once; return those not known to be gone.

        Parameters
        ----------
        wait_s : float
            How long to wait for them.
        linger : bool
            True to let writers finish their orders; they exit afterwards.
        """
        if self._closed:
            return []
        self._closed = True
        peers, self._peers = self._peers, []
        for peer in peers:
            self._poller.unregister(peer.channel.fileno())
            if peer.process is not None and not (linger and peer.writes):
                peer.process.kill()
            peer.channel.close()  # what was sent is still received
        self._recruiting.close(linger=linger)
        deadline = time.monotonic() + wait_s
        there = [p for p in peers if not p.is_gone(0.0 if p.jobs else deadline - time.monotonic())]
        self._poller.close()
        if self._crew.payload is not None:
            self._crew.payload.close()
        return there
