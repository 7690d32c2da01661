"""The seats of one iterator: some of this machine's, the others as the dispatcher deals them."""

from __future__ import annotations

import math
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.node import AUTOTUNE
from tundish.loader.service.connections.handshake import versions
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.distributing.seats import SeatRecruiting
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.run.pool.peers import WorkerSpec
    from tundish.loader.service.connections.credentials import Address
    from tundish.loader.service.dispatching.places import DispatcherPlaces
    from tundish.loader.service.distributing.distribute import Terms

ANSWER_S = 15.0
"""Seconds for which an iterator waits for the dispatcher's first answer."""

NOBODY_S = 60.0
"""Seconds for which it waits for the first worker to join."""

_LOOK_S = 0.02
_PER_CORE = 4
_SHOWN = 3


class ServiceStaff:
    """The seats of one iterator.

    Parameters
    ----------
    places : DispatcherPlaces
        The seats that the dispatcher deals.
    local : int
        The number of seats on this machine.
    most : int
        The largest number of seats that a tuner may want.

    Attributes
    ----------
    local, most : int
        As given.
    """

    def __init__(self, places: DispatcherPlaces, local: int, most: int) -> None:
        self._places, self.local, self.most = places, local, most
        self.credentials = places.credentials
        self._nobody_since: float | None = None

    def seats(self) -> int:
        """Return the number of seats there are now."""
        return self.local + len(self._places.addresses())

    def want(self, seats: int) -> None:
        """Ask for as many seats, those of this machine included."""
        self._places.want(max(0, seats - self.local))

    def hired(self, spec: WorkerSpec) -> WorkerSpec:
        """Return the specification of workers who take the seats."""
        return replace(spec, recruiting=partial(SeatRecruiting, places=self, local=self.local))

    def addresses(self) -> Sequence[Address]:
        """Return the seats elsewhere, as the addresses of agents; warn if for long there have been none, and none here."""
        found = self._places.addresses()
        if found or self.local:
            self._nobody_since = None
        else:
            self._wait_for_somebody()
        return found

    def _wait_for_somebody(self) -> None:
        now = time.monotonic()
        if self._nobody_since is None:
            self._nobody_since = now
        elif now - self._nobody_since > NOBODY_S:
            self._nobody_since = math.inf
            warnings.warn(
                f"all workers of the service have been gone for {NOBODY_S:g} s, and this iterator waits for "
                "one to join; its state is unchanged, and another iterator can continue from it without the service",
                stacklevel=callers_level(),
            )

    def failed(self, address: Address, error: OSError) -> None:
        """Note that an agent could not be reached."""
        self._places.failed(address, error)

    def close(self) -> None:
        """Give the seats back."""
        self._places.close()


def hire(terms: Terms, asked: int | None, cores: int) -> ServiceStaff:
    """Ask a dispatcher for seats, and wait until there is one.

    Parameters
    ----------
    terms : Terms
        The service, and how it is used.
    asked : int or None
        The number of workers asked for, AUTOTUNE included; None: as many as this machine has cores.
    cores : int
        Cores of this machine that AUTOTUNE may use.

    Raises
    ------
    TimeoutError
        The dispatcher does not answer, or no worker has joined it.
    OSError
        The dispatcher refuses this process.
    """
    local = cores if asked == AUTOTUNE and terms.target_workers == "AUTO" else 0
    wanted = cores if asked is None or asked == AUTOTUNE else asked
    with DispatcherClient(terms.target, timeout_s=ANSWER_S) as client:
        places = client.places(wanted, near=terms.target_workers == "LOCAL")
        try:
            places.wait(ANSWER_S)
            if not local:
                _wait_for_one(places, terms, client)
            there = sum(agent["cores"] for agent in client.status()["agents"])
        except BaseException:
            places.close()
            raise
    return ServiceStaff(places, local, local + max(there, _PER_CORE * cores))


def _wait_for_one(places: DispatcherPlaces, terms: Terms, client: DispatcherClient) -> None:
    until = time.monotonic() + NOBODY_S
    while not places.addresses():
        if places.error is not None:
            raise places.error
        if time.monotonic() > until:
            raise nobody(terms, client.status()["agents"])
        time.sleep(_LOOK_S)


def nobody(terms: Terms, others: Sequence[Mapping[str, Any]]) -> TimeoutError:
    """Return the error of a service without workers for this process; `others` have joined, as the dispatcher's status tells."""
    near = " of this machine" if terms.target_workers == "LOCAL" else ""
    reasons = [reason for each in others if (reason := _unfit(each, near=bool(near)))]
    if reasons:
        more = f", and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        return TimeoutError(
            f"no worker{near} that could compute this pipeline has joined the dispatcher at {terms.target} within "
            f"{NOBODY_S:g} s. Those that have joined: {'; '.join(reasons[:_SHOWN])}{more}"
        )
    return TimeoutError(
        f"no worker{near} has joined the dispatcher at {terms.target} within {NOBODY_S:g} s, so nothing "
        "computes this pipeline: start some (tundish service worker --dispatcher HOST:PORT, or td.service.WorkerServer), and check with tundish service status; workers must have this version of Python and of tundish"
    )


def _unfit(agent: Mapping[str, Any], *, near: bool) -> str:
    """Return why a worker gets no tasks of this process; empty if it could."""
    ours, theirs = versions(), dict(zip(versions(), agent["versions"], strict=False))
    differ = [name for name in ours if theirs.get(name) != ours[name]]
    if differ:
        there, here = (
            ", ".join(f"{name} {found.get(name)}" for name in differ) for found in (theirs, ours)
        )
        return f"{agent['name']} at {agent['address']} has {there}, and this process {here}"
    if near and agent["host"] != socket.gethostname():
        return f"{agent['name']} at {agent['address']} is on {agent['host'] or 'another machine'}"
    return ""


def count_agents(terms: Terms) -> int:
    """Return the number of agents that have joined, and wait for the first.

    Raises
    ------
    TimeoutError
        None has.
    """
    until = time.monotonic() + NOBODY_S
    with DispatcherClient(terms.target, timeout_s=ANSWER_S) as client:
        while not (count := len(client.agents())):
            if time.monotonic() > until:
                raise nobody(terms, [])
            time.sleep(_LOOK_S)
    return count
