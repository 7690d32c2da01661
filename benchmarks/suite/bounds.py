"""Bounds: what the machine can do without any loader, measured in processes of their own in the same round."""

from __future__ import annotations

import mmap
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def calling(
    function: Callable[[Any], Any], count: int, *, shared: bool = False
) -> Callable[[int, float], float]:
    """Call a function of indices, and copy what it returns into memory that was written before."""

    def rate(index: int, seconds: float) -> float:
        first = np.asarray(function(0))
        shape = (64 if first.nbytes < 1 << 20 else 4, *first.shape)
        memory = mmap.mmap(-1, shape[0] * first.nbytes) if shared else None
        rows = np.ndarray(shape, first.dtype, memory)
        rows[:] = 0
        number, at, start = 0, (count // 2) * index, time.perf_counter()
        while (now := time.perf_counter()) - start < seconds:
            for _ in range(16 if first.nbytes < 1 << 16 else 1):
                rows[number % len(rows)] = function(at % count)
                number, at = number + 1, at + 1
        return number / (now - start)

    return rate


def repeating(work: Callable[[], int]) -> Callable[[int, float], float]:
    """Call a function that returns how many samples it made, until the time is over."""

    def rate(_: int, seconds: float) -> float:
        work()
        number, start = 0, time.perf_counter()
        while (now := time.perf_counter()) - start < seconds:
            number += work()
        return number / (now - start)

    return rate
