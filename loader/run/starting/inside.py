"""Inside a worker: what its process runs, and code that runs there, which starts no workers of its own."""

from __future__ import annotations

import os
import threading

WORKER = "tundish.loader.run.working.worker"
"""The module whose `main` is a worker of a pipeline: it is named, and not imported, by who starts workers."""

IN_WORKER = threading.local()
"""``IN_WORKER.yes`` is set in a thread that is a worker."""

_PROCESS = [False]


def be_worker() -> None:
    """Make this process a worker, all its threads included."""
    _PROCESS[0] = True


def in_worker() -> bool:
    """Return True if this thread computes for an iterator."""
    return getattr(IN_WORKER, "yes", False) or _PROCESS[0]


def overruled() -> int | None:
    """Return the number of workers that overrides all requests; None if nothing does.

    0 inside a worker, else what ``TUNDISH_WORKERS`` says.
    """
    if in_worker():
        return 0
    forced = os.environ.get("TUNDISH_WORKERS")
    return max(0, int(forced)) if forced else None
