"""Workers as the coordinator sees them, and their tasks."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.run.starting.surroundings import Surroundings
from tundish.loader.run.starting.workerprocess import Exit
from tundish.loader.run.watching.queueing import Runner, queued_s
from tundish.loader.run.wire.messages import MessageKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.run.pool.recruiting import Recruiting
    from tundish.loader.run.starting.payload import Met, Payload
    from tundish.loader.run.wire.messages import Done, Task
    from tundish.loader.watch.stats import WorkerStats
    from tundish.shm.channel import Channel
    from tundish.shm.frames import Placing
    from tundish.shm.layout import Layout
    from tundish.shm.liveness import Poller
    from tundish.shm.memory import Arena

_ENDING_S = 0.1
_CONFIRM_S = 5.0
_KILLED_S = 0.1
_STARTING_S = 1.0
"""The additional load that a process counts as having until it is up, so that it gets tasks only if no other is free."""


@dataclass(frozen=True)
class WorkerSpec:
    """The specification of a pool's workers, the same for all of them.

    Parameters
    ----------
    entry : str
        ``module:function`` that a worker process calls with its descriptors (channel, arena if there is
        one, payload) and its config.
    config : dict
        The arguments of `entry`, in addition to how to open channel and arena, and ``seat``.
    payload : Payload or None
        The objects that all workers need.
    threads : int
        The number of threads that a library may use within a worker.
    preload : tuple of str
        Modules to import once for all workers.
    start : {"zygote", "spawn", "fork"}
        How workers start.
    objects : tuple or None
        The objects that all workers need, if they are forked with them and there is no payload.
    met : tuple of functions and types
        The functions and types whose globals they follow.
    answer : callable or None
        Answers workers' questions; returns the answer, and warnings for the user.
    thread : callable or None
        If workers are threads: their main function, called with channel and arena.
    recruiting : callable or None
        Makes the source of workers; None for workers of this machine.
    surroundings : Surroundings
        The environment, paths and arguments of workers of this machine.
    """

    entry: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    payload: Payload | None = None
    threads: int = 1
    preload: tuple[str, ...] = ()
    start: str = "zygote"
    objects: tuple[Any, ...] | None = None
    met: tuple[Met, ...] = ()
    answer: Callable[[bytes], tuple[bytes, list[str]]] | None = None
    thread: Callable[[Channel, Arena | None], None] | None = None
    recruiting: Callable[[WorkerSpec, Arena | None, Poller], Recruiting] | None = None
    surroundings: Surroundings = field(default_factory=Surroundings.here)


@dataclass(eq=False)
class Job:
    """A task that was handed out and is not done.

    Parameters
    ----------
    task : Task
        Its record; slot sizes are filled in when it is sent.
    tail : bytes
        Its encoded items.
    block : object
        The block whose rows it computes.
    deaths : int
        The number of workers that died on it, while it was a single element.
    cost : float
        Its approximate duration, in seconds.
    prefer : object
        A worker that has an open stream for it.
    seat : int or None
        The seat of the only worker that may do it; None for any.
    is_order : bool
        True if it is an order for a writer.
    home : bool
        True if only a worker of this machine may do it, since its input lies in shared memory.
    sent : float
        When it was sent to a worker on another machine, by ``perf_counter``.
    progress : int or None
        The element that was begun last, if the worker was asked to report it.
    held : list of int
        Slots that its items were written to.
    roots : list of numpy.ndarray
        Memory of its items, which may not be granted again before the worker has answered.
    twin : Job or None
        The same task at another worker, since one of them is overdue; the first answer counts.
    superseded : bool
        True if the twin has been answered.
    """

    task: Task
    tail: bytes
    block: Any
    deaths: int = 0
    cost: float = 0.0
    prefer: Any = None
    seat: int | None = None
    is_order: bool = False
    home: bool = False
    sent: float = 0.0
    progress: int | None = None
    held: list[Any] = field(default_factory=list)
    roots: list[Any] = field(default_factory=list)
    twin: Job | None = None
    superseded: bool = False

    def part(self) -> Job | None:
        """Return the task's twin, if it has one, and forget it: one of the two was answered, or cannot be done."""
        twin = self.twin
        if twin is not None:
            self.twin = twin.twin = None
        return twin


class Owner(Protocol):
    """The interface of a pool's owner, which receives answers."""

    moved: bool
    """True if an answer lets the owner continue, which ends a wait without a timeout."""

    def done(self, job: Job, done: Done, layout: Layout | None, tail: memoryview) -> None:
        """Process the answer to a task."""

    def place(self, job: Job, done: Done, layout: Layout | None) -> Placing | None:
        """Return where to receive the rows that follow an answer; None for memory of their own."""

    def need(self, job: Job, nbytes: int, *, alone: bool, after: int) -> None:
        """Handle a task that needs a larger slot, or one to itself; `after` is the offset after its only record."""

    def by_value(self, job: Job) -> bytes:
        """Return the tail of a task for a worker without the shared memory in which its input lies."""

    def look(self) -> None:
        """Give the overdue tasks of workers on other machines to others."""

    def hand_out(self, jobs: list[Job]) -> None:
        """Send the tasks for which there was no worker."""

    def lost(self, jobs: list[Job], begun: Job | None, how: Exit) -> None:
        """Handle the death of a worker that had these tasks; it had begun one of them."""


class WorkerHandle(Protocol):
    """The process of a worker, here or on another machine."""

    @property
    def pid(self) -> int | None:
        """Its id; None if it is not known, or of another machine."""
        ...

    @property
    def sentinel(self) -> int | None:
        """A descriptor that is readable when it has ended; None if there is none."""
        ...

    def kill(self) -> None:
        """End it."""
        ...

    def wait_exit(self, timeout_s: float | None = None) -> Exit | None:
        """Return how it ended; None if it has not."""
        ...

    def release(self) -> None:
        """Release what is held of it."""
        ...


class Peer:
    """A worker as the coordinator sees it.

    The pool gives it a unique name; its seat passes to its replacement.

    Parameters
    ----------
    channel : Channel
        The coordinator's end.
    seat : int
        Its number among the workers that are there.
    writes : bool
        True if it is a writer, which only gets orders.
    home : bool
        True if it only gets tasks that need shared memory.
    where : str or None
        The machine that it is on, if that is another one, without this one's shared memory.

    Attributes
    ----------
    load : float
        Seconds of work that it has; more while it starts.
    leaving : bool
        True if it exits when its tasks are done.
    tasks, rows, busy_s, cpu_s, since : int or float
        What it has done, and since when, by ``perf_counter``.
    queued_s : float
        How long it had waited for a core when it reported ready, while starting.
    received, away_s, answered : int or float
        For a worker on another machine: the bytes received from it; the seconds for which a task or its rows were on
        the way; and when its last answer came, by ``perf_counter``.
    """

    __slots__ = (
        "answered",
        "away_s",
        "busy_s",
        "channel",
        "cpu_s",
        "home",
        "jobs",
        "known",
        "layouts",
        "leaving",
        "load",
        "name",
        "pid",
        "process",
        "queued_s",
        "ready",
        "received",
        "rows",
        "seat",
        "sentinel",
        "since",
        "tasks",
        "thread",
        "told",
        "where",
        "writes",
    )

    def __init__(
        self,
        channel: Channel,
        seat: int,
        *,
        writes: bool = False,
        home: bool = False,
        where: str | None = None,
    ) -> None:
        self.name, self.channel, self.seat = 0, channel, seat
        self.writes, self.home, self.where = writes, home, where
        self.leaving = False
        self.load = _STARTING_S
        self.tasks = self.rows = self.received = 0
        self.busy_s = self.cpu_s = self.queued_s = self.away_s = self.answered = 0.0
        self.since = time.perf_counter()
        self.process: WorkerHandle | None = None
        self.thread: threading.Thread | None = None
        self.jobs: deque[Job] = deque()
        self.known: set[int] = set()
        self.layouts: dict[int, Layout] = {}
        self.ready = False
        self.told = b""  # of what comes in several records
        self.pid: int | None = None
        self.sentinel: int | None = None

    @property
    def busy_since(self) -> float:
        """When it began what it is doing, by ``perf_counter``; for a worker elsewhere that has tasks."""
        return max(self.answered, self.jobs[0].sent)

    def measured(self) -> WorkerStats:
        """Return the worker's statistics."""
        from tundish.loader.watch.stats import WorkerStats  # noqa: PLC0415 - if somebody asks

        alive_s = time.perf_counter() - self.since
        done = (self.tasks, self.rows, self.busy_s, self.cpu_s, alive_s)
        runner, pid = self.runner(), self.pid if self.thread is None else None
        queued = self._queued(runner) if runner else 0.0
        where = (self.where or "", self.received, self.away_s)
        return WorkerStats(self.name, pid, *done, queued, *where)

    def came_back(self, job: Job, done: Done) -> None:
        """Note an answer from another machine; the time that was not work on a task that is done was spent on the way."""
        now = time.perf_counter()
        if done.kind == MessageKind.DONE:
            since = max(job.sent, self.answered)
            self.away_s += max(0.0, now - since - done.micros * 1e-6)
        self.answered = now

    def up(self, pid: int) -> None:
        """Note that the worker has reported ready, and its process id."""
        self.ready, self.pid = True, pid
        self.load = max(0.0, self.load - _STARTING_S)
        runner = self.runner()
        self.queued_s = queued_s(*runner) if runner else 0.0

    def _queued(self, runner: Runner) -> float:
        return max(0.0, queued_s(*runner) - self.queued_s)

    def runner(self) -> Runner | None:
        """Return the worker's process and thread; None before it is up, and on another machine."""
        if self.where is not None:
            return None
        if self.thread is not None:
            native = self.thread.native_id
            return None if native is None else Runner(os.getpid(), native)
        return None if self.pid is None else Runner(self.pid)

    def end(self) -> Exit:
        """Make sure that the worker writes no more; return how it ended."""
        process = self.process
        if process is None:
            return Exit(0, "its thread ended", "")
        # A worker that closed its channel is about to exit: wait, to learn how.
        how = process.wait_exit(_ENDING_S)
        if how is None:
            process.kill()
            how = process.wait_exit(_CONFIRM_S)
        process.release()
        return how or Exit(-9, "not confirmed", "")

    def is_gone(self, wait_s: float) -> bool:
        """Return True if it certainly writes no more; waits for a killed process."""
        if self.thread is not None:
            self.thread.join(max(0.0, wait_s))
            return not self.thread.is_alive()
        assert self.process is not None
        if self.process.wait_exit(max(_KILLED_S, wait_s)) is None:
            return False
        self.process.release()
        return True
