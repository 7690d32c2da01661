"""Inside a worker: what its process runs, and code that runs there, which starts no workers of its own."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator

WORKER = "tundish.loader.run.working.worker"
"""The module whose `main` is a worker of a pipeline. Code that starts workers names it without importing it."""

IN_WORKER = threading.local()
"""``IN_WORKER.yes`` is set in a thread that is a worker."""

_PROCESS = [False]
_FOR_ANOTHER = [False]


def be_worker() -> None:
    """Make this process a worker, all its threads included."""
    _PROCESS[0] = True


def in_worker() -> bool:
    """Return True if this thread computes for an iterator."""
    return getattr(IN_WORKER, "yes", False) or _PROCESS[0]


@contextlib.contextmanager
def importing_for_another() -> Generator[None]:
    """Say that this process imports the user's modules for another one: what they do at their top level, the other has done."""
    before, _FOR_ANOTHER[0] = _FOR_ANOTHER[0], True
    try:
        yield
    finally:
        _FOR_ANOTHER[0] = before


def is_for_another() -> bool:
    """Return True if the user's modules run here for another process: in a worker, or as they are imported."""
    return _FOR_ANOTHER[0] or in_worker()


def overruled() -> int | None:
    """Return the number of workers that overrides all requests; None if nothing does.

    0 inside a worker, else what ``TUNDISH_WORKERS`` says.

    Raises
    ------
    ValueError
        ``TUNDISH_WORKERS`` is no number.
    """
    if in_worker():
        return 0
    forced = os.environ.get("TUNDISH_WORKERS")
    if not forced:
        return None
    try:
        return max(0, int(forced))
    except ValueError:
        raise ValueError(f"TUNDISH_WORKERS is {forced!r}; it must be a number") from None
