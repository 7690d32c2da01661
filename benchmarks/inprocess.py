"""The price of an operator for an element when there are no workers.

Each row is a pipeline with one operator more than another, both run in this process; the difference
is the operator. A function's own time is not the library's: the one that is mapped does nothing, and
calling it from a loop is taken off.
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

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 100_000
TARGET_US = 0.3

ROWS = np.zeros((COUNT, 16), np.float32)


def same(element: Any) -> Any:
    return element


def true(_: Any) -> bool:
    return True


def stream() -> Any:
    """Elements that have a place in a stream but no position: what comes after a filter."""
    return Dataset.range(COUNT).filter(true)


def numbers() -> Any:
    return Dataset.range(COUNT)


BASES: dict[str, Callable[[], Any]] = {"of a range": numbers, "of a stream": stream}
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "map": lambda ds: ds.map(same),
    "filter": lambda ds: ds.filter(true),
    "enumerate": lambda ds: ds.enumerate(),
    "take": lambda ds: ds.take(COUNT),
    "skip": lambda ds: ds.skip(1),
    "shard": lambda ds: ds.shard(1, 0),
    "repeat": lambda ds: ds.repeat(1),
    "concatenate": lambda ds: ds.concatenate(Dataset.range(0)),
    "shuffle(1000)": lambda ds: ds.shuffle(1000, seed=1),
    "prefetch": lambda ds: ds.prefetch(2),
    "batch(64)": lambda ds: ds.batch(64),
}
CALLS = {"map": same, "filter": true}


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("inprocess", f"In this process, {COUNT:,} elements", given, timed=False)
    rows = [["µs an element", *BASES]]
    found: dict[str, list[float]] = {}
    call = {name: cost_of_calls(function, given.rounds) for name, function in CALLS.items()}
    plain = [
        statistics.median(seconds(base()) for _ in range(given.rounds)) for base in BASES.values()
    ]
    rows.append(["(the elements themselves)", *(f"{cost / COUNT * 1e6:.3f}" for cost in plain)])
    for name, apply in OPERATORS.items():
        costs = []
        for base in BASES.values():
            differences = [
                seconds(apply(base())) - seconds(base()) - call.get(name, 0.0)
                for _ in range(given.rounds)
            ]
            costs.append(statistics.median(differences) / COUNT * 1e6)
        found[name] = costs
        rows.append([name, *(f"{cost:.3f}" for cost in costs)])
    report.table("operators", rows)
    mapped = found["map"] + found["filter"]
    report.claim(
        "µs an element and operator, the dearest", TARGET_US, max(map(max, found.values()))
    )
    report.claim("the same, map and filter", TARGET_US, max(mapped))
    median = statistics.median(cost for costs in found.values() for cost in costs)
    report.claim("the same, the median operator", TARGET_US, median)
    return report.finish()


def seconds(dataset: Any) -> float:
    """CPU seconds of a whole pass."""
    start = time.process_time()
    deque(dataset.iterator(workers=0), maxlen=0)
    return time.process_time() - start


def cost_of_calls(function: Callable[[Any], Any], rounds: int) -> float:
    """CPU seconds of so many calls."""
    took = []
    for _ in range(rounds):
        start = time.process_time()
        for element in range(COUNT):
            function(element)
        took.append(time.process_time() - start)
    return statistics.median(took)


if __name__ == "__main__":
    sys.exit(main())
