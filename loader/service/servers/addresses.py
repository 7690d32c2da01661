"""The addresses of the service's servers: the interfaces where they listen, and how other processes reach these."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import socket

from tundish.loader.service.connections.credentials import Address, parse_address
from tundish.loader.service.connections.dialing import resolve

_log = logging.getLogger("tundish.service")

OUTSIDE = ("192.0.2.1", 9)
"""An address of no machine, which stands for all others; nothing is sent to it."""

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - of those that listen everywhere
_PORT = "%port%"


def interface(host: str) -> str:
    """Return the number of an interface of this machine; IPv4 if it has both.

    Raises
    ------
    OSError
        No such interface.
    """
    if host in ("", "localhost"):
        return "127.0.0.1"
    try:
        number = str(resolve((host, 0))[1][0])
    except OSError as error:
        text = f"there is no interface to listen on: {error.strerror}"
        raise OSError(errno.EADDRNOTAVAIL, text) from error
    if number != host and "localhost" not in host and is_loopback((number, 0)):
        _log.warning(
            "%r is %s on this machine (/etc/hosts), so only this machine's processes can connect: to admit others, give "
            "the number of an interface, or 0.0.0.0",
            host,
            number,
        )
    return number


def reached_at(worker_address: str, port: int) -> Address:
    """Return the address that a worker reports, when it listens on a port."""
    return parse_address(worker_address.replace(_PORT, str(port)), default_port=port)


def reached_here(address: Address) -> Address:
    """Return the address by which this machine's processes reach what listens at one."""
    return _LOOPBACK.get(address[0], address[0]), address[1]


def reached_there(host: str, towards: Address | None = None) -> str:
    """Return the host by which other machines reach what listens at one.

    Of what listens everywhere it is this machine's name. Many an ``/etc/hosts`` makes that name a loopback address: then
    it is the number of the interface on the way to `towards`, unless that is on this machine, too.
    """
    if host not in _LOOPBACK:
        return host
    name = socket.gethostname()
    if towards is None or not is_loopback(numbered((name, 0))) or is_loopback(numbered(towards)):
        return name
    with contextlib.suppress(OSError):  # there is no way
        family, place = resolve(towards)
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect(place)  # sends nothing
            return str(way.getsockname()[0])
    return name


def is_loopback(address: Address) -> bool:
    """Return True if only processes of this machine reach an address, whose host is a number."""
    try:
        return ipaddress.ip_address(address[0]).is_loopback
    except ValueError:  # a name that cannot be resolved
        return False


def numbered(address: Address) -> Address:
    """Return an address with its host as a number, which needs no look-up; unchanged if this machine cannot resolve it."""
    try:
        place = resolve(address)[1]
    except OSError:
        return address
    return str(place[0]), address[1]
