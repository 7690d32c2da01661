"""Starting of workers on this machine: processes started by the launcher, or threads."""

from __future__ import annotations

import importlib
import pickle
import threading
from typing import TYPE_CHECKING, Any

from tundish.loader.run.pool.peers import Peer, WorkerSpec
from tundish.loader.run.starting.kinship import this_as_parent
from tundish.loader.run.starting.launcher import Launcher, launcher
from tundish.loader.run.starting.templatelauncher import Template
from tundish.loader.run.wire.marks import shared_marks
from tundish.shm.channel import Channel, default_kind

if TYPE_CHECKING:
    from tundish.shm.liveness import Poller
    from tundish.shm.memory import Arena

LAUNCHER = object()
"""The poller's token for news from the launcher."""


class LocalRecruiting:
    """Starts the workers of a pool on this machine: processes, or threads.

    Parameters
    ----------
    crew : WorkerSpec
        The specification of workers.
    arena : Arena or None
        The shared memory.
    poller : Poller
        Reports under the token `LAUNCHER` that the launcher has messages.
    """

    sought: tuple[int, ...] = ()
    due: float | None = None

    def __init__(self, crew: WorkerSpec, arena: Arena | None, poller: Poller) -> None:
        self._crew, self._arena, self._poller = crew, arena, poller
        self._kind = default_kind() if arena is not None else "stream"
        self._launcher: Any = None
        self._launcher_fd: int | None = None
        if crew.thread is None:
            self._launcher = self._found()
            self._watch()

    def _found(self) -> Launcher:
        """Return the process's launcher; or one of this pool's own, which forks this process as it is now."""
        crew = self._crew
        if crew.objects is None:
            return launcher(crew.threads, crew.start)
        importlib.import_module(crew.entry.partition(":")[0])  # once, and not in each worker
        return Template(crew.threads, crew.objects)

    def close(self, *, linger: bool) -> None:
        """End the pool's own launcher with all its workers; with `linger`, when the last of those has ended."""
        if isinstance(self._launcher, Template):
            if linger:
                self._launcher.leave()
            else:
                self._launcher.close()

    def _watch(self) -> None:
        fd = self._launcher.fileno()
        if fd != self._launcher_fd:
            if self._launcher_fd is not None:
                self._poller.unregister(self._launcher_fd)
            if fd is not None:
                self._poller.register(fd, LAUNCHER)
            self._launcher_fd = fd

    def pump(self) -> None:
        """Process the launcher's reports: pids, sentinels and exits."""
        if self._launcher is not None:
            self._launcher.pump()

    def hear(self, source: object) -> list[Peer]:
        """Process reports that the poller has announced; the launcher may have ended."""
        self._launcher.pump()
        self._watch()
        return []

    def look(self) -> None:
        """Do nothing: no worker is on its way."""

    def withdraw(self, seat: int) -> None:
        """Do nothing: no worker is on its way."""

    def unfit(self, peer: Peer, error: BaseException) -> None:
        """Raise the error: another worker of this machine would have it, too."""
        raise error

    def start(self, seat: int, *, writes: bool, home: bool) -> Peer:
        """Start a worker, without waiting."""
        ours, theirs = Channel.pair(self._kind)
        try:
            return self._started(ours, theirs, seat, writes=writes, home=home)
        except BaseException:
            ours.close()
            theirs.close()
            raise

    def _started(
        self, ours: Channel, theirs: Channel, seat: int, *, writes: bool, home: bool
    ) -> Peer:
        peer = Peer(ours, seat, writes=writes, home=home)
        if self._crew.thread is not None:
            peer.thread = threading.Thread(
                target=self._crew.thread,
                args=(theirs, self._arena),
                name=f"tundish-worker-{seat}",
                daemon=True,
            )
            peer.thread.start()
        else:
            self._launch(peer, theirs)
        return peer

    def _launch(self, peer: Peer, theirs: Channel) -> None:
        crew, arena = self._crew, self._arena
        if not self._launcher.alive:
            if self._launcher_fd is not None:  # before the old one may be collected
                self._poller.unregister(self._launcher_fd)
                self._launcher_fd = None
            self._launcher = self._found()
            self._watch()
        verified = shared_marks()
        config = pickle.dumps(
            {
                **crew.config,
                "channel": self._kind,
                "stride": arena.stride if arena else 0,
                "slots": arena.slots if arena else 0,
                "verified": verified.stride if verified else 0,
                "seat": peer.seat,
                "writes": peer.writes,
                "parent": this_as_parent(),
                "inherits": crew.objects is not None,
            }
        )
        files = [each for each in (arena, verified, crew.payload) if each is not None]
        fds = [theirs.fileno(), *(each.fd for each in files)]
        self._launcher.preload(crew.preload)
        peer.process = self._launcher.start(crew.entry, fds, config, surroundings=crew.surroundings)
        theirs.close()
