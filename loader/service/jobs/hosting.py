"""Hosting of jobs: an agent, or the dispatcher's own process, starts their servers as it is told.

Consumers connect to the listener that the process has for its other roles, so a job needs no port of its own. Each job has a process
of its own (`jobprocess`), which takes the connections over.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.service.connections.roles import Accepted, Role

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import TlsFiles
    from tundish.loader.service.connections.loop import Loop


@dataclass(frozen=True)
class JobOrder:
    """A job that is to be served.

    Attributes
    ----------
    name : str
        Its name, by which consumers ask for it.
    dataset : str
        The id of its dataset.
    kind : str
        The way in which it distributes elements.
    parameters : JSON
        The parameters of `kind`.
    again : bool
        True if another may have served it before: consumers may be about to come back.
    """

    name: str
    dataset: str
    kind: str
    parameters: Any = None
    again: bool = False

    @property
    def wanted(self) -> dict[str, Any]:
        """The request of consumers of this job; those of another job with its name have another one."""
        return job_wanted(self.name, self.dataset, self.kind, self.parameters)


def job_wanted(name: str, dataset: str, kind: str, parameters: Any) -> dict[str, Any]:
    """Return what a consumer asks for as it connects, as JSON."""
    return {"name": name, "dataset": dataset, "kind": kind, "parameters": parameters}


@dataclass(frozen=True)
class LostJob:
    """A job that could not be started, or whose process has ended by itself.

    Attributes
    ----------
    order : JobOrder
        The job.
    why : str
        The reason.
    failed : bool
        True if it could not be started.
    gave : bool
        True if a consumer may have received an element.
    life : str
        A name of this loss.
    """

    order: JobOrder
    why: str
    failed: bool = False
    gave: bool = False
    life: str = field(default_factory=lambda: secrets.token_hex(8))


class HostedJob(Protocol):
    """A job's server.

    Attributes
    ----------
    failed : str or None
        The error that has prevented its start.
    ended : str or None
        How its process has ended by itself.
    gave : bool
        True if a consumer may have received an element.
    """

    failed: str | None
    ended: str | None
    gave: bool

    def ready(self, timeout_s: float) -> bool:
        """Wait until consumers may come, or it has failed; return False if that takes longer."""

    def consumers(self) -> int:
        """Return how many consumers are there, or may come back."""

    def begin(self, accepted: Accepted) -> None:
        """Take over the connection of a consumer, on the listener's thread."""

    def hang_up(self) -> None:
        """End all connections, on the listener's thread."""

    def close(self) -> None:
        """End it."""


StartJob = Callable[[JobOrder, bytes, "Loop"], HostedJob]
"""Starts a job's server, given the registration of its dataset and the loop of its consumers' listener."""

_LOADING_S = 0.25
"""The time that an agent waits for a job to start before it sends another heartbeat."""
_STARTING_S = 240.0
"""The time that a job may take to start: consumers wait a minute longer, and are told why it has not."""


class Jobs(Role):
    """The jobs that one process serves: the role of connections of their consumers, who ask for one in their HELLO.

    Errors and elements are pickled, so both ends are of one version. What is not a method of `Role` belongs to one thread,
    which need not be the listener's.

    Parameters
    ----------
    tls : TlsFiles, optional
        The certificates for sessions with consumers.
    start : callable, optional
        Starts a job's server. Default: in a process of its own.

    Attributes
    ----------
    changed : callable
        Called when a job has ended by itself, from the listener's thread.
    """

    hands_over = True

    def __init__(self, tls: TlsFiles | None = None, start: StartJob | None = None) -> None:
        self._tls = tls
        self._start = start or self._start_apart
        self.changed: Callable[[], object] = lambda: None
        self._jobs: dict[str, tuple[JobOrder, HostedJob]] = {}
        self._starting: dict[str, float] = {}  # those of them that are not ready, since when
        self._closing: list[threading.Thread] = []
        self._lost: dict[str, LostJob] = {}  # and not told yet

    def _start_apart(self, order: JobOrder, payload: bytes, loop: Loop) -> HostedJob:
        from tundish.loader.service.jobs.jobprocess import JobProcess  # noqa: PLC0415 - most serve no job

        return JobProcess(order, payload, loop, self._tls, self._tell)

    def _tell(self) -> None:
        self.changed()

    def attach(self, loop: Loop) -> None:
        self._loop = loop

    def welcome(self, accepted: Accepted) -> dict[str, Any]:
        if self._asked(accepted) is None:
            raise ConnectionRefusedError("this job is not served here: not yet, or no longer")
        return {}

    def begin(self, accepted: Accepted) -> None:
        job = self._asked(accepted)
        if job is None:  # it has ended since
            accepted.socket.close()
        else:
            job.begin(accepted)

    def _asked(self, accepted: Accepted) -> HostedJob | None:
        """Return the very job that a consumer asks for; None if it is not here."""
        for name, (order, job) in list(self._jobs.items()):
            if order.wanted == accepted.ask and name not in self._starting:
                return job
        return None

    def close(self) -> None:
        for _, job in list(self._jobs.values()):
            job.hang_up()

    def do(
        self, orders: Iterable[JobOrder], stop: Iterable[str], fetch: Callable[[str], bytes]
    ) -> None:
        """Start and stop jobs; one that is not wanted any more before it is ready is stopped, too.

        One that cannot be started is told by `lost`. `fetch` returns a registration by the dataset's id.
        """
        wanted = {order.name: order for order in orders}
        for name in {*stop, *(self._starting.keys() - wanted.keys())}:
            self._stop(name)
        for name, order in wanted.items():
            if name in self._jobs:
                if self._jobs[name][0].wanted == order.wanted:
                    continue
                self._stop(name)  # another job has its name
            try:
                job = self._start(order, fetch(order.dataset), self._loop)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the consumer's to hear
                self._lost[name] = LostJob(order, f"{type(error).__name__}: {error}", failed=True)
            else:
                self._starting[name] = time.monotonic()
                self._jobs[name] = order, job
        self._settle(_LOADING_S)

    def _settle(self, timeout_s: float) -> None:
        """Let consumers come to jobs that have started; wait for the others, but not long: the dispatcher wants to hear of the agent."""
        until = time.monotonic() + timeout_s
        for name, since in list(self._starting.items()):
            order, job = self._jobs[name]
            failed = None
            if job.ready(max(0.0, until - time.monotonic())):
                del self._starting[name]
                failed = job.failed
            elif time.monotonic() - since > _STARTING_S:
                failed = f"it was not ready after {_STARTING_S:g} s: does a module that it imports wait for something?"
            if failed is not None:
                self._lost[name] = LostJob(order, failed, failed=True)
                self._stop(name)

    def _stop(self, name: str) -> None:
        """End a job, without waiting for that: it may take seconds, and heartbeats go on."""
        self._starting.pop(name, None)
        if name in self._jobs:
            thread = threading.Thread(target=self._jobs.pop(name)[1].close, daemon=True)
            self._closing = [each for each in self._closing if each.is_alive()] + [thread]
            thread.start()

    def serves(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """Return to how many consumers each job is served, and of what order; those whose server has ended are left out."""
        self._settle(0.0)
        found = {}
        for name, (order, job) in list(self._jobs.items()):
            if job.ended is not None:
                self._lost[name] = LostJob(order, job.ended, gave=job.gave)
                self._stop(name)
            elif name not in self._starting:
                found[name] = (job.consumers(), order.wanted)
        return found

    def gave(self) -> list[str]:
        """Return the names of the jobs of which a consumer may have received an element."""
        return [name for name, (_, job) in list(self._jobs.items()) if job.gave]

    def lost(self) -> dict[str, LostJob]:
        """Return the jobs that could not be started or have ended by themselves, until `told`."""
        return dict(self._lost)

    def told(self, lost: Mapping[str, LostJob]) -> None:
        """Forget lost jobs, as the dispatcher has heard of them."""
        for name, each in lost.items():
            if self._lost.get(name) is each:
                del self._lost[name]

    def end(self) -> None:
        """End all jobs."""
        for name in list(self._jobs):
            self._stop(name)
        for each in self._closing:
            each.join()
