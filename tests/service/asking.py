"""Questions of a consumer that asks for one element at a time, and takes a question back that was not answered."""

from __future__ import annotations

from tundish.loader.service.jobs.holding import Holding


def may_ask(holding: Holding) -> bool:
    """Return True if a consumer wants elements, and no request is without an answer."""
    return holding.wants and holding._asked == holding._received


def take_back(holding: Holding) -> None:
    """Take back the last request: it was answered that there is nothing yet."""
    holding._asked -= 1
    holding._sizes.pop()
