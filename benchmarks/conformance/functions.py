"""The functions that every loader calls.

An element is a row of integers: its index, the process that computed it, and the index again in
the rest, so that a row that was overwritten shows.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np

WIDTH = 16
BAD = 7
"""The index at which a function misbehaves."""
REUSED = np.zeros(WIDTH, np.int64)


def row(index: Any) -> Any:
    made = np.full(WIDTH, int(index), np.int64)
    made[1] = os.getpid()
    return made


def slow_row(index: Any) -> Any:
    time.sleep(0.02)
    return row(index)


def megabyte(index: Any) -> Any:
    return np.full(131_072, int(index), np.int64)


def reused(index: Any) -> Any:
    """The same array each time, as a decoder with a buffer of its own returns it."""
    REUSED[:] = int(index)
    return REUSED


def fail_at_bad(index: Any) -> Any:
    if int(index) == BAD:
        raise ValueError(f"no picture in file {int(index)}")
    return row(index)


def hang_at_bad(index: Any) -> Any:
    if int(index) == BAD:
        time.sleep(100_000)
    return row(index)


def exit_at_bad(index: Any) -> Any:
    if int(index) == BAD:
        os._exit(0)
    return row(index)


def lock_at_bad(index: Any) -> Any:
    return threading.Lock() if int(index) == BAD else row(index)


def with_lock() -> Any:
    """A function that holds what cannot be pickled."""
    lock = threading.Lock()

    def locked(index: Any) -> Any:
        with lock:
            return row(index)

    return locked
