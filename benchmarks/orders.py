"""The price of an order: what a shuffle costs an index, before anything is read.

336,776 indices in this process, no functions and no batches. The bound is numpy's permutation of as many, taken 1,024 at a time.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Report, arguments

from tundish import Dataset
from tundish.loader.protocols.permuting import permute

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT, WINDOW, AT_ONCE = 336_776, 10_000, 1_024


def bound() -> None:
    order = np.random.default_rng(1).permutation(COUNT)
    for first in range(0, COUNT, AT_ONCE):
        order[first : first + AT_ONCE].copy()


def elements(dataset: Any) -> Callable[[], Any]:
    """A whole pass, one by one."""
    return lambda: deque(dataset.iterator(workers=0), maxlen=0)


def batches(dataset: Any) -> Callable[[], Any]:
    return elements(dataset.batch(AT_ONCE))


NUMBERS = Dataset.range(COUNT)
ORDERS: dict[str, tuple[Callable[[], Any], float]] = {
    "numpy": (bound, 1.0),
    "permute, all positions": (lambda: permute(np.arange(COUNT), COUNT, 1, 0), 0.04),
    "range.shuffle(None).batch": (batches(NUMBERS.shuffle(None, seed=1)), 0.15),
    "range.shuffle(None), one by one": (elements(NUMBERS.shuffle(None, seed=1)), 0.3),
    "range.shuffle(10,000).batch": (batches(NUMBERS.shuffle(WINDOW, seed=1)), 0.15),
    "range.shuffle(10,000), one by one": (elements(NUMBERS.shuffle(WINDOW, seed=1)), 0.3),
}


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("orders", f"The order of {COUNT:,} indices", given, timed=False)
    took: dict[str, list[float]] = {name: [] for name in ORDERS}
    for _ in range(given.rounds):  # in turn
        for name, (run, _) in ORDERS.items():
            began = time.process_time()
            run()
            took[name].append(time.process_time() - began)
    cost = {name: statistics.median(times) / COUNT * 1e6 for name, times in took.items()}
    report.table(
        "orders", [["order", "µs an index"], *([name, f"{cost[name]:.3f}"] for name in ORDERS)]
    )
    for name, (_, target) in list(ORDERS.items())[1:]:
        report.claim(f"µs an index, {name}", target, cost[name])
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
