"""Ray, imported when it is asked for; and the cluster that this process joins, or starts on this machine alone.

Only scripts that start or stop something come here. A process that Ray has joined is ended by Ray a minute after the
cluster's head has died, so no trainer should be one.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

NAMESPACE = "tundish"
"""Of named actors: those of all scripts and users of a cluster find each other."""


_OWN: list[int] = []
"""This process, if it has started a cluster of this machine alone."""


def leave() -> None:
    """Leave a cluster that continues without this process; stay in one that ends with it."""
    if os.getpid() not in _OWN:
        import_ray().shutdown()


def import_ray() -> Any:
    """Import Ray.

    Raises
    ------
    ImportError
        It is not installed; the message says how it is.
    """
    try:
        return import_module("ray")
    except ModuleNotFoundError as missing:
        if missing.name != "ray":
            raise
        raise ImportError(
            "this needs Ray, which is not installed: pip install ray", name="ray"
        ) from missing


def join(address: str | None = "auto") -> Any:
    """Join a cluster, if this process is in none; return the module ``ray``.

    Parameters
    ----------
    address : str, optional
        ``"auto"``: the cluster that ``RAY_ADDRESS`` names, or that this machine is a node of, or else one of this machine
        alone, which is started and ends with this process. ``"local"``: always such a one. Else the address of a
        cluster's head.

    Raises
    ------
    ImportError
        Ray is not installed.
    ConnectionError
        There is no cluster at `address`.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ray
    known: dict[str, Any] = {
        "namespace": NAMESPACE,
        "log_to_driver": False,
        "logging_level": "WARNING",
    }
    if address == "auto" and not os.environ.get("RAY_ADDRESS"):
        with suppress(ConnectionError):
            ray.init(address="auto", **known)
            return ray
        address = "local"
    if address == "local":
        ray.init(address="local", include_dashboard=False, **known)
        _OWN.append(os.getpid())
        return ray
    try:
        ray.init(address=None if address == "auto" else address, **known)
    except ConnectionError as error:
        named = os.environ.get("RAY_ADDRESS") if address == "auto" else address
        raise ConnectionError(
            f"there is no Ray cluster at {named}: start one (ray start --head), or give address='local' ({error})"
        ) from error
    return ray


@contextmanager
def joined(address: str | None = "auto") -> Generator[Any]:
    """Join a cluster, and leave it at the end if this process was in none before."""
    before = import_ray().is_initialized()
    ray = join(address)
    try:
        yield ray
    finally:
        if not before:
            ray.shutdown()
