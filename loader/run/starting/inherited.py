"""What multiprocessing shares between processes, sent to workers that are no children of ours.

Its Value, Array, Event, Semaphore, Queue and Pipe only travel while it starts a process. Those of a
``spawn`` or ``forkserver`` context do so by the name of a semaphore or the number of a descriptor;
a worker opens the descriptor through ``/proc``. Those of a ``fork`` context can only be inherited.
"""

from __future__ import annotations

import contextlib
import multiprocessing.context
import os
import sys
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

__all__ = ["Descriptor", "reduce_shared", "starting"]

_HOMES = {
    "multiprocessing.heap",
    "multiprocessing.sharedctypes",
    "multiprocessing.connection",
}


class Descriptor:
    """An open file of another process.

    Parameters
    ----------
    fd : int
        Its number here.
    """

    def __init__(self, fd: int) -> None:
        self._path = f"/proc/{os.getpid()}/fd/{fd}"

    def detach(self) -> int:
        """Open it in this process."""
        return os.open(self._path, os.O_RDWR)


class _Starting:
    """What multiprocessing asks for descriptors while it believes that it starts a process."""

    DupFd = Descriptor

    def duplicate_for_child(self, fd: int) -> int:
        return fd


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Let multiprocessing's objects be pickled."""
    before = multiprocessing.context.get_spawning_popen()
    multiprocessing.context.set_spawning_popen(_Starting())  # type: ignore[arg-type]  # all it asks
    try:
        yield
    finally:
        multiprocessing.context.set_spawning_popen(before)


def reduce_shared(value: Any) -> Any:
    """As ``__reduce__``, for memory and pipes of multiprocessing; else `NotImplemented`."""
    if not sys.platform.startswith("linux"):
        return NotImplemented
    reduce = getattr(ForkingPickler, "_extra_reducers", {}).get(type(value))
    if reduce is None or reduce.__module__ not in _HOMES:
        return NotImplemented
    return reduce(value)
