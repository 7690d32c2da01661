"""Surroundings that a run must leave as they were: this process, and what it holds of the machine."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from tundish.loader.run.coordinating import store

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from tundish.loader.dataset import Dataset

__all__ = ["Resources", "other_random_states", "surroundings"]


class Resources:
    """The resources of the system that this process holds.

    Parameters
    ----------
    folders : iterable of str
        Whose files do not count: those of a snapshot stay open as long as its dataset, and more of them each
        time that it is continued.
    """

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self._kept_open = ("/memfd:tundish-board", *folders)  # the board is the process's, for good
        gc.collect()
        self.held = self.now()

    def now(self) -> dict[str, set[Any]]:
        """Count it."""
        me = psutil.Process()
        shared = Path("/dev/shm")  # noqa: S108 - only looked at
        return {
            "processes": {child.pid for child in me.children(recursive=True)},
            "threads": {thread.name for thread in threading.enumerate()},
            "file descriptors": set(range(me.num_fds() - _opened(self._kept_open))),
            "names in /dev/shm": {path.name for path in shared.glob("*tundish*")},
        }

    def assert_back(self, within: float = 2.0) -> None:
        deadline = time.monotonic() + within
        while True:
            gc.collect()
            store.visit_graves()  # a killed process may be gone later than closing waits for it
            now = self.now()
            leaked = {kind: now[kind] - held for kind, held in self.held.items()}
            if not any(leaked.values()):
                return
            if time.monotonic() > deadline:
                counts = {kind: sorted(extra) for kind, extra in leaked.items() if extra}
                raise AssertionError(f"left over {within:g} s after closing: {counts}")
            time.sleep(0.01)


def _opened(beginnings: tuple[str, ...]) -> int:
    """The number of descriptors of files whose paths begin with one of these."""
    held = Path("/proc/self/fd")
    links = held.iterdir() if held.is_dir() else ()
    return sum(path.is_symlink() and str(path.readlink()).startswith(beginnings) for path in links)


def surroundings(dataset: Dataset) -> dict[str, Any]:
    """Return what stands around a run and must not move."""
    handlers = {s: signal.getsignal(s) for s in signal.valid_signals()}
    return {
        "random.getstate()": random.getstate(),
        "numpy.random.get_state()": repr(np.random.get_state()),  # noqa: NPY002 - what must not move
        "environment": dict(os.environ),
        "working directory": Path.cwd(),
        "signal handlers": handlers,
        "import path": list(sys.path),
        "umask": _umask(),
        "threads": threading.active_count(),
        "dataset": repr(dataset),
    }


@contextmanager
def other_random_states() -> Generator[None]:
    """New global random states, so that one that is set to what it was before is noticed."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - it is about these
    random.seed()
    np.random.seed()  # noqa: NPY002 - as above
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002 - as above


def _umask() -> int:
    mask = os.umask(0o77)
    os.umask(mask)
    return mask
