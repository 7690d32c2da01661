"""A worker as the coordinator sees it, and the tasks it has been given."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.run.watching.queueing import Runner, queued_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.run.starting.launcher import Exit, WorkerProcess
    from tundish.loader.run.starting.payload import Met, Payload
    from tundish.loader.run.wire.messages import Done, Task
    from tundish.loader.watch.stats import WorkerStats
    from tundish.shm.channel import Channel
    from tundish.shm.layout import Layout
    from tundish.shm.memory import Arena

_KILLED_S = 0.1
_STARTING_S = 1.0
"""How much more a process counts as loaded until it is up: it gets tasks only where no other is free."""


@dataclass(frozen=True)
class Crew:
    """The description of a pool's workers: the same for all of them.

    Parameters
    ----------
    entry : str
        ``module:function`` that a process calls with its descriptors (channel, arena if there is
        one, payload) and its config.
    config : dict
        What `entry` is told, beside how to open its channel and arena, and its ``seat``.
    payload : Payload or None
        What all of them need, once.
    threads : int
        How many threads a library may use within one.
    preload : tuple of str
        Modules that are imported once for all of them.
    start : {"zygote", "spawn", "fork"}
        How they begin.
    objects : tuple or None
        What all of them need, where they are forked with it: in the place of a payload.
    met : tuple of functions and types
        Whose globals they follow.
    answer : callable or None
        Answers what a worker asks; returns the answer and what the user is to be warned of.
    thread : callable or None
        Workers are threads of this process, which run this with their channel and the arena.
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


@dataclass(eq=False)
class Job:
    """A task that was given out, until it is done.

    Parameters
    ----------
    task : Task
        Its record; slot sizes are put in when it is sent.
    tail : bytes
        Its items.
    block : object
        Whose rows it makes.
    deaths : int
        Workers that died on it, while it was of one element.
    cost : float
        About how long it takes, in seconds.
    prefer : object
        A worker that has an open stream for it.
    seat : int or None
        The seat of the only worker that may do it.
    is_order : bool
        Whether a writer does it.
    progress : int or None
        Which of its elements was begun last, where the worker was asked to say so.
    held : list of int
        Slots that its items were written to.
    roots : list of numpy.ndarray
        Memory that its items lie in: it may not be granted again before the worker has answered.
    """

    task: Task
    tail: bytes
    block: Any
    deaths: int = 0
    cost: float = 0.0
    prefer: Any = None
    seat: int | None = None
    is_order: bool = False
    progress: int | None = None
    held: list[Any] = field(default_factory=list)
    roots: list[Any] = field(default_factory=list)


class Owner(Protocol):
    """The user of a pool."""

    moved: bool
    """Whether an answer was what a wait without a timeout is for."""

    def done(self, job: Job, done: Done, layout: Layout | None, tail: memoryview) -> None:
        """Take note that a task was done."""

    def need(self, job: Job, nbytes: int, *, alone: bool) -> None:
        """Take note that a task needs a larger slot, or one to itself."""

    def hand_out(self, jobs: list[Job]) -> None:
        """Hand out tasks again that no worker was there for."""

    def lost(self, jobs: list[Job], begun: Job | None, how: Exit) -> None:
        """Take note that a worker died and left these jobs; it had begun one of them."""


class Peer:
    """A worker as the coordinator sees it.

    Its name is its own; its seat goes to whoever replaces it.

    Attributes
    ----------
    load : float
        Seconds of work that it has been given; more while it starts.
    leaving : bool
        Whether it is to go when it has done what it was given.
    writes : bool
        Whether it is a writer, which gets orders and nothing else.
    tasks, rows, busy_s, cpu_s, since
        What it has done, and since when, by ``perf_counter``.
    queued_s : float
        How long it had been without a core when it said that it is ready: a start, and no work.
    """

    __slots__ = (
        "busy_s",
        "channel",
        "cpu_s",
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
        "rows",
        "seat",
        "sentinel",
        "since",
        "tasks",
        "thread",
        "writes",
    )

    def __init__(self, name: int, channel: Channel, seat: int, *, writes: bool) -> None:
        self.name, self.channel, self.seat, self.writes = name, channel, seat, writes
        self.leaving = False
        self.load = _STARTING_S
        self.tasks = self.rows = 0
        self.busy_s = self.cpu_s = self.queued_s = 0.0
        self.since = time.perf_counter()
        self.process: WorkerProcess | None = None
        self.thread: threading.Thread | None = None
        self.jobs: deque[Job] = deque()
        self.known: set[int] = set()
        self.layouts: dict[int, Layout] = {}
        self.ready = False
        self.pid: int | None = None
        self.sentinel: int | None = None

    def measured(self) -> WorkerStats:
        """Return what the worker has done."""
        from tundish.loader.watch.stats import WorkerStats  # noqa: PLC0415 - if somebody asks

        alive_s = time.perf_counter() - self.since
        done = (self.tasks, self.rows, self.busy_s, self.cpu_s, alive_s)
        runner, pid = self.runner(), self.pid if self.thread is None else None
        return WorkerStats(self.name, pid, *done, self._queued(runner) if runner else 0.0)

    def up(self, pid: int) -> None:
        """Take note that the worker has said that it is ready, and in which process it is."""
        self.ready, self.pid = True, pid
        self.load = max(0.0, self.load - _STARTING_S)
        runner = self.runner()
        self.queued_s = queued_s(*runner) if runner else 0.0

    def _queued(self, runner: Runner) -> float:
        return max(0.0, queued_s(*runner) - self.queued_s)

    def runner(self) -> Runner | None:
        """Name the worker as the system knows it; None before it is up."""
        if self.thread is not None:
            native = self.thread.native_id
            return None if native is None else Runner(os.getpid(), native)
        return None if self.pid is None else Runner(self.pid)

    def is_gone(self, wait_s: float) -> bool:
        """Return True if it certainly writes no more; a killed process is waited for."""
        if self.thread is not None:
            self.thread.join(max(0.0, wait_s))
            return not self.thread.is_alive()
        assert self.process is not None
        if self.process.wait_exit(max(_KILLED_S, wait_s)) is None:
            return False
        self.process.release()
        return True
