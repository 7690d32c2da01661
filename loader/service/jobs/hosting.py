"""Hosting of jobs: an agent, or the dispatcher's own process, starts their servers as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Address


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


class HostedJob(Protocol):
    """A job's server."""

    @property
    def address(self) -> Address:
        """The address that consumers dial."""

    def consumers(self) -> int:
        """Return how many consumers are there, or -1 when the server has ended."""

    def close(self) -> None:
        """End it."""


HostJob = Callable[[JobOrder, bytes], HostedJob]
"""Starts a job's server, given the payload of its dataset."""


class JobHost:
    """The jobs that one process serves.

    Parameters
    ----------
    start : callable
        Starts a job's server.
    fetch : callable
        Returns the payload of a dataset, by its id.
    reached : str
        The host by which consumers reach this process.
    """

    def __init__(self, start: HostJob, fetch: Callable[[str], bytes], reached: str) -> None:
        self._start, self._fetch, self._reached = start, fetch, reached
        self._jobs: dict[str, tuple[JobOrder, HostedJob]] = {}
        self._failed: dict[str, str] = {}

    def do(self, orders: Iterable[JobOrder], stop: Iterable[str]) -> None:
        """Start and stop jobs; one that cannot be started is told by `failures`."""
        for name in stop:
            self._stop(name)
        for order in orders:
            if order.name in self._jobs:
                continue
            try:
                job = self._start(order, self._fetch(order.dataset))
                self._jobs[order.name] = order, job
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the consumer's to hear
                self._failed[order.name] = f"{type(error).__name__}: {error}"

    def _stop(self, name: str) -> None:
        if name in self._jobs:
            self._jobs.pop(name)[1].close()

    def serves(self) -> dict[str, tuple[Address, int, dict[str, Any]]]:
        """Return where each job is served, to how many consumers, and of what order; those whose server has ended are left out."""
        found = {}
        for name, (order, job) in list(self._jobs.items()):
            count = job.consumers()
            if count < 0:
                self._stop(name)
            else:
                told = {key: getattr(order, key) for key in ("dataset", "kind", "parameters")}
                found[name] = ((self._reached, job.address[1]), count, told)
        return found

    def failures(self) -> dict[str, str]:
        """Return why jobs could not be started, each once."""
        failed, self._failed = self._failed, {}
        return failed

    def close(self) -> None:
        """End all jobs."""
        while self._jobs:
            self._jobs.popitem()[1][1].close()
