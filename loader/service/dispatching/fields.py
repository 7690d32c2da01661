"""The fields of calls to a dispatcher, checked as they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Address
    from tundish.loader.service.dispatching.parking import Fields

_LONGEST_S = 30.0
"""The longest time for which a call is parked, whatever its caller asks for."""

_MOST = 1 << 48

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""The names of this machine for itself: a worker that listens at one is meant by each of them."""


def address_of(value: Any) -> Address:
    """Return an address that came in a call; raise `ValueError` if it is none."""
    host, port = value
    if not isinstance(host, str) or type(port) is not int or not 0 <= port < 1 << 16:
        raise ValueError(f"{value!r} is not an address")
    return host, port


def wait_of(request: Fields) -> float:
    """Return the seconds that a caller waits for news; raise `ValueError` if that is no time."""
    wait_s = request.get("wait_s", 0.0)
    if not isinstance(wait_s, int | float) or not 0 <= wait_s < float("inf"):
        raise ValueError(f"wait_s={wait_s!r}; it must be seconds, from 0 on")
    return min(wait_s, _LONGEST_S)


def count_of(request: Fields, name: str) -> int:
    """Return a number from 0 on that came in a call; raise `ValueError` if it is none."""
    count = request[name]
    if type(count) is not int or not 0 <= count < _MOST:
        raise ValueError(f"{name}={count!r}; it must be a whole number from 0 on")
    return count


def versions_of(request: Fields) -> tuple[str, ...]:
    """Return the versions that a caller told."""
    return tuple(map(str, request.get("versions", ())))


def is_member(address: Address, told: str, pattern: str) -> bool:
    """Return True if an agent is the one that an entry of ``worker_addresses`` names, by number or as it was told."""
    host, colon, port = pattern.rpartition(":")
    if not colon or pattern.endswith("]"):
        host, port = pattern, "%port%"
    hosts = {address[0], told.rpartition(":")[0].strip("[]")}
    if hosts & _LOOPBACK:
        hosts |= _LOOPBACK
    return host.strip("[]") in hosts and port in ("%port%", str(address[1]))
