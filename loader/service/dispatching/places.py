"""The seats that a dispatcher deals to a trainer, as they are now; looking never waits for the dispatcher."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any

from tundish.loader.service.connections.calling import Caller, Outstanding
from tundish.loader.service.connections.credentials import Address, Credentials, show_address
from tundish.loader.service.connections.dialing import resolve
from tundish.loader.service.connections.handshake import versions

REDIAL_S = 0.25
"""The longest time between attempts to dial a dispatcher that is gone: it is most likely being started again."""
NEWS_S = 30.0
"""The time after which the dispatcher answers although nothing has changed."""

_LOOK_S = 0.01
"""Between looks for news, which cost a system call."""
_AGAIN_S = 1.0
"""After a call for seats that failed."""


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
            fields.update(known=seats, wait_s=NEWS_S)
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
