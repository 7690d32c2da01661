"""The dispatcher as seen by a trainer: its calls as methods, and the seats that it deals, without ever waiting for them."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any, Self

from tundish.loader.service.connections.calling import Caller, Outstanding
from tundish.loader.service.connections.credentials import (
    Address,
    Credentials,
    parse_addresses,
    show_address,
)
from tundish.loader.service.connections.dialing import resolve
from tundish.loader.service.connections.handshake import digest_of, versions

REDIAL_S = 0.25
"""The longest time between attempts to dial a dispatcher that is gone: it is most likely being started again."""

_TIMEOUT_S = 30.0
_NEWS_S = 30.0
"""The time after which the dispatcher answers although nothing has changed."""
_LOOK_S = 0.01
"""Between looks for news, which cost a system call."""
_AGAIN_S = 1.0
"""After a call for seats that failed."""


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
            answer, _ = self._call("job", wait_s=min(left, _NEWS_S), received=received, **fields)
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


class DispatcherPlaces:
    """The seats that a dispatcher deals to this trainer; nothing here waits, except `wait`.

    One call is always under way, which the dispatcher answers when it deals other seats; `addresses` looks whether it has.
    While the dispatcher is gone, the seats stay what they were.

    Parameters
    ----------
    addresses : sequence of (str, int)
        The addresses of which the dispatcher has one.
    credentials : Credentials
        The token and certificates.
    wanted : int
        The number of seats that are wanted.
    near : bool
        Take seats of this host alone.

    Attributes
    ----------
    error : Exception or None
        Why the last call failed.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        credentials: Credentials,
        wanted: int,
        *,
        near: bool = False,
    ) -> None:
        self.credentials = credentials
        self.error: Exception | None = None
        self._caller = dispatcher_caller(_numbers(addresses), credentials)
        self._trainer = {
            "name": f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
            "host": socket.gethostname(),
            "versions": list(versions().values()),
            "near": near,
        }
        self._wanted = wanted
        self._seats: tuple[Address, ...] = ()
        self._unreached: set[Address] = set()  # seats that could not be had since they were dealt
        self._told = False
        self._look_at = self._ask_at = 0.0
        self._request: Outstanding | None = None

    def addresses(self) -> Sequence[Address]:
        """Return the seats as they are now: the addresses of agents, one a seat."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look(now)
        return self._seats

    def want(self, count: int) -> None:
        """Change the number of seats that are wanted."""
        if count == self._wanted:
            return
        self._wanted = count
        self._ask_anew()

    def wait(self, timeout_s: float) -> None:
        """Wait for the dispatcher's first answer; it is made where waiting does no harm.

        Raises
        ------
        TimeoutError
            It did not come in time.
        Exception
            The dispatcher's error.
        """
        until = time.monotonic() + timeout_s
        self._look(time.monotonic())
        while not self._told:
            if self.error is not None:
                raise self.error
            now = time.monotonic()
            if now >= until:
                where = show_address(self._caller.address)
                reason = f" ({self._caller.error})" if self._caller.error is not None else ""
                raise TimeoutError(
                    f"the dispatcher at {where} did not answer within {timeout_s:g} s{reason}"
                )
            self._caller.wait(until)
            self._look(time.monotonic())

    def failed(self, address: Address, error: BaseException) -> None:
        """Tell of a seat that could not be had: a dispatcher that has just begun takes what trainers hold to be there."""
        if address in self._seats and address not in self._unreached:
            self._unreached.add(address)
            self._ask_anew()

    def close(self) -> None:
        """Give the seats back. Safe to call twice."""
        self._caller.close()

    def _ask_anew(self) -> None:
        if self._request is not None:
            self._caller.cancel(self._request)
            self._request = None
        self._look(time.monotonic())

    def _look(self, now: float) -> None:
        self._look_at = now + _LOOK_S
        if self._request is None and now >= self._ask_at:
            self._ask()
        self._caller.advance()
        if self._request is None or not self._request.done:
            return
        request, self._request = self._request, None
        try:
            fields, _ = request.result()
        except Exception as error:  # noqa: BLE001 - it is kept in `error`, and the call is repeated
            self.error, self._ask_at = error, now + _AGAIN_S
            return
        self.error, self._told = None, True
        self._seats = tuple((host, port) for host, port in fields["seats"])
        self._unreached.intersection_update(self._seats)
        self._ask()
        self._caller.advance()

    def _ask(self) -> None:
        seats = [list(seat) for seat in self._seats]
        fields: dict[str, Any] = {"wanted": self._wanted, "held": seats, **self._trainer}
        if self._unreached:
            fields["lost"] = [list(seat) for seat in sorted(self._unreached)]
        if self._told:
            fields.update(known=seats, wait_s=_NEWS_S)
        self._request = self._caller.begin("seats", **fields)


def dispatcher_caller(addresses: Sequence[Address], credentials: Credentials) -> Caller:
    """Return what calls the dispatcher that is at one of these addresses."""
    first, *others = addresses
    return Caller(first, credentials, "dispatcher", others=others, rest_s=REDIAL_S)


def _numbers(addresses: Sequence[Address]) -> list[Address]:
    """Return addresses with their hosts as numbers; looked up once, since that may take a while.

    Raises
    ------
    OSError
        No host of them is known.
    """
    found: list[Address] = []
    unknown: OSError | None = None
    for address in addresses:
        try:
            place = resolve(address)[1]
        except OSError as error:
            unknown = error
        else:
            found.append((str(place[0]), int(place[1])))
    if unknown is not None and not found:
        raise unknown
    return found
