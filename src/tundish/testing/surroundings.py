"""The surroundings that a run must leave unchanged: this process, and its resources."""

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
    """The system's resources that this process holds.

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
        """Return the present resources."""
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
            store.release_quarantined()  # a killed process may be gone later than closing waits for it
            now = self.now()
            leaked = {kind: now[kind] - held for kind, held in self.held.items()}
            if not any(leaked.values()):
                return
            if time.monotonic() > deadline:
                counts = {kind: sorted(extra) for kind, extra in leaked.items() if extra}
                raise AssertionError(f"left over {within:g} s after closing: {counts}")
            time.sleep(0.01)


def _opened(beginnings: tuple[str, ...]) -> int:
    """Return the number of open files whose paths begin with one of these."""
    held = Path("/proc/self/fd")
    links = held.iterdir() if held.is_dir() else ()
    return sum(path.is_symlink() and str(path.readlink()).startswith(beginnings) for path in links)


def surroundings(dataset: Dataset) -> dict[str, Any]:
    """Return the surroundings of a run, which must not change."""
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
    """Set new global random states, so that resetting one to its old value is noticed."""
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
