"""The arguments of `host`, as consumers and the host process have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostSettings:
    """The arguments of `host`, by their names."""

    name: str
    lag: str = "wait"
    window: int | str | None = None
    consumers: int | None = None
    linger: float = 3.0
