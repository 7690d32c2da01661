"""The calls of a dispatcher as methods."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Self

from tundish.loader.service.connections.credentials import (
    Address,
    Credentials,
    parse_addresses,
    show_address,
)
from tundish.loader.service.connections.handshake import digest_of, versions
from tundish.loader.service.dispatching.places import NEWS_S, DispatcherPlaces, dispatcher_caller

_TIMEOUT_S = 30.0

Needs = tuple[int, bool, Sequence[str], Sequence[str]]
"""How many agents are needed, whether that is fixed or follows trainers; which have seats or jobs, and which are there."""


class DispatcherClient:
    """The calls of a dispatcher.

    Parameters
    ----------
    target : str
        Its target, as ``"tcp://host:port"``; ``"host:port"``, too. Several addresses, with commas between them, are tried
        in turn: the dispatcher is at one of them.
    credentials : Credentials, optional
        The token and certificates; by default this process's.
    timeout_s : float
        Seconds that a call may take, with all attempts to connect.

    Raises
    ------
    ValueError
        The target is not an address.
    """

    def __init__(
        self,
        target: str,
        credentials: Credentials | None = None,
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self.target = target
        self._addresses = parse_addresses(target)
        self.credentials = credentials if credentials is not None else Credentials.find()
        self._timeout_s = timeout_s
        self._caller = dispatcher_caller(self._addresses, self.credentials)

    def register(self, id_: str, payload: bytes, plan: Any = None) -> str:
        """Register a dataset; its payload is sent if the dispatcher does not know it.

        Parameters
        ----------
        id_ : str
            Its id: the fingerprint of its plan.
        payload : bytes
            The dataset as bytes.
        plan : JSON
            Its description, by which differences are told.

        Returns
        -------
        str
            The id.
        """
        fields = {"id": id_, "digest": digest_of(payload), "nbytes": len(payload), "plan": plan}
        answer, _ = self._call("register", **fields)
        if answer.get("want"):
            answer, _ = self._call("register", [payload], **fields)
        found: str = answer["id"]
        return found

    def dataset(self, id_: str) -> bytes:
        """Return the payload of a dataset.

        Raises
        ------
        FileNotFoundError
            It is not registered.
        """
        return bytes(self._call("dataset", id=id_)[1][0])

    def job(
        self,
        name: str,
        dataset: str,
        kind: str,
        parameters: Any = None,
        *,
        wait_s: float = 20.0,
        received: bool = False,
    ) -> Address:
        """Return the address of a job's server; it is started if there is none.

        A consumer whose job's server is gone asks again.

        Parameters
        ----------
        name : str
            The job's name.
        dataset : str
            The id of its dataset.
        kind : str
            The way in which it distributes elements.
        parameters : JSON
            The parameters of `kind`.
        wait_s : float
            Seconds to wait for a server.
        received : bool
            True if an element was received since the last call.

        Raises
        ------
        IncompatibleJobError
            A job of this name exists, and differs.
        FileNotFoundError
            The dataset is not registered.
        RuntimeError
            It could not be started, or its process ends again and again.
        TimeoutError
            No process serves it yet.
        """
        until = time.monotonic() + wait_s
        while True:
            left = max(0.0, until - time.monotonic())
            fields = {"name": name, "dataset": dataset, "kind": kind, "parameters": parameters}
            fields["versions"] = list(versions().values())
            answer, _ = self._call("job", wait_s=min(left, NEWS_S), received=received, **fields)
            received = False
            if answer["address"] is not None:
                host, port = answer["address"]
                return host, port
            if time.monotonic() >= until:
                raise TimeoutError(
                    f"job {name!r} is not served after {wait_s:g} s: the dispatcher at "
                    f"{show_address(self._caller.address)} has {len(self.agents())} workers"
                )

    def agents(self) -> list[Address]:
        """Return the addresses of the present agents, in the order of ``worker_addresses`` or of their names."""
        return [(host, port) for host, port in self._call("agents")[0]["agents"]]

    def scale(self, agents: int | None) -> None:
        """Set the number of agents that an engine is to keep; None: as many as trainers need."""
        self._call("scale", agents=agents)

    def needs(self, cores: int) -> Needs:
        """Return the number of needed agents, whether it is fixed, the agents with seats or jobs, and all agents."""
        fields, _ = self._call("needs", cores=cores)
        return fields["agents"], fields["fixed"], fields["busy"], fields["there"]

    def status(self) -> dict[str, Any]:
        """Return everything that the dispatcher knows, as JSON."""
        return self._call("status")[0]

    def places(self, wanted: int, *, near: bool = False) -> DispatcherPlaces:
        """Return the seats of this trainer; see `DispatcherPlaces`."""
        return DispatcherPlaces(self._addresses, self.credentials, wanted, near=near)

    def close(self) -> None:
        """End the connection. Safe to call twice."""
        self._caller.close()

    def _call(
        self, do: str, blobs: Sequence[bytes] = (), **fields: Any
    ) -> tuple[dict[str, Any], list[bytes]]:
        longer = float(fields.get("wait_s", 0.0))
        return self._caller.call(do, blobs, self._timeout_s + longer, **fields)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
