"""Guard against a slower tundish: a few ratios of CPU time with bounds, in less than a minute.

    python benchmarks/guard.py            # fails when a ratio is over its bound

Each ratio is of CPU seconds, not of wall time, between two pieces of work that take turns in one process, and the
smallest of seven rounds is kept for both: a busy machine disturbs neither much. Bounds are about twice what was measured, so what
the guard finds is a step that began to cost double, not a few percent; `against.py` measures those.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

import tundish as td

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUNDS = 7
COUNT = 20_000
TABLE = np.zeros((100_000, 16), np.float32)
LARGE = np.ones((64, 3, 224, 224), np.float32)
LARGE_COUNT = 12


def plus(number: Any) -> Any:
    """A function that costs next to nothing."""
    return number + 1


def row(index: Any) -> np.ndarray:
    """A small array made for each element."""
    return np.full(16, index, np.float32)


def large(_: Any) -> np.ndarray:
    """An array of 38.5 MB that exists already."""
    return LARGE


def through(dataset: Any) -> Callable[[], None]:
    """Iterate in this process."""
    return lambda: deque(dataset.iterator(workers=0), maxlen=0).clear()


def called() -> None:
    for index in range(COUNT):
        plus(index)


def stacked() -> None:
    for start in range(0, COUNT, 64):
        np.stack([row(index) for index in range(start, min(start + 64, COUNT))])


def gathered() -> None:
    order = np.random.default_rng(1).permutation(len(TABLE))
    for start in range(0, len(order), 1024):
        TABLE[order[start : start + 1024]]


def copied() -> None:
    target = np.empty_like(LARGE)
    for _ in range(LARGE_COUNT):
        np.copyto(target, LARGE)


def received() -> None:
    """Receive large arrays from a worker; only the CPU of this process counts."""
    with td.Dataset.range(LARGE_COUNT).map(large).iterator(workers=1) as batches:
        deque(batches, maxlen=0)


RATIOS: dict[str, tuple[Callable[[], None], Callable[[], None], float]] = {
    "map, against calling the function": (through(td.Dataset.range(COUNT).map(plus)), called, 70.0),
    "map and batch of arrays, against np.stack": (
        through(td.Dataset.range(COUNT).map(row).batch(64)),
        stacked,
        5.0,
    ),
    "shuffled batches of a table, against numpy's gather": (
        through(td.Dataset.from_tensor_slices(TABLE).shuffle(None, seed=1).batch(1024)),
        gathered,
        6.0,
    ),
    "receiving 38.5 MB, against copying it": (received, copied, 1.0),
}


def smallest(work: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    """The fewest CPU seconds of each, by turns."""
    found = [float("inf")] * len(work)
    for each in work:
        each()  # what is made once is not measured
    for _ in range(rounds):
        for place, each in enumerate(work):
            start = time.process_time()
            each()
            found[place] = min(found[place], time.process_time() - start)
    return found


def main() -> int:
    missed = 0
    for name, (ours, plain, bound) in RATIOS.items():
        one, other = smallest([ours, plain], ROUNDS)
        ratio = one / other
        missed += ratio > bound
        print(f"{'holds ' if ratio <= bound else 'MISSED'}  {name}: {ratio:.2f}, at most {bound:g}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
