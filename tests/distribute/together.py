"""Several input pipelines at once, in this process: what each of them got."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tundish as td
from tundish.distribute import DistributedDataset, DistributedIterator, local_results

DEADLINE_S = 20.0


def plain(value: Any) -> Any:
    """An element as lists, for comparing."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def steps(iterator: DistributedIterator, most: int | None = None) -> list[list[Any]]:
    """Return what each step gave to each replica, as lists."""
    found: list[list[Any]] = []
    while most is None or len(found) < most:
        try:
            value = next(iterator)
        except StopIteration:
            break
        found.append([plain(part) for part in local_results(value)])
    return found


def contexts(count: int, replicas: int = 1) -> list[td.InputContext]:
    """Return the contexts of so many processes with so many replicas each."""
    return [td.InputContext(count, index, count * replicas) for index in range(count)]


def each(
    dataset: td.Dataset, count: int, replicas: int = 1, **arguments: Any
) -> list[DistributedDataset]:
    """A dataset, as each of so many processes divides it."""
    distribute = td.distribute.distribute_dataset
    return [distribute(dataset, context=one, **arguments) for one in contexts(count, replicas)]


def run(dataset: td.Dataset, count: int, replicas: int = 1, **arguments: Any) -> list[Any]:
    """Return what each process got, step by step, replica by replica."""
    found = []
    for one in each(dataset, count, replicas, **arguments):
        with one.iterator(workers=0) as iterator:
            found.append(steps(iterator))
    return found


def globally(found: list[Any]) -> list[list[Any]]:
    """The rows of all processes side by side, of each step."""
    assert len({len(process) for process in found}) == 1, "not the same number of steps"
    return [
        [row for process in found for part in process[at] for row in part]
        for at in range(len(found[0]))
    ]


class Meeting:
    """An all-reduce among threads: `all_min` of each process."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=DEADLINE_S)
        self._said = [0] * count
        self.calls = 0

    def of(self, index: int) -> Callable[[int], int]:
        def all_min(number: int) -> int:
            self._said[index] = number
            self._barrier.wait()
            least = min(self._said)
            self.calls += not index
            self._barrier.wait()
            return least

        return all_min


def meeting(
    make: Callable[[int, Callable[[int], int]], DistributedDataset], count: int
) -> list[Any]:
    """Run so many processes, as threads that agree on their end."""
    all_min = Meeting(count)

    def one(index: int) -> list[Any]:
        with make(index, all_min.of(index)).iterator(workers=0) as iterator:
            return steps(iterator)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def with_policy(dataset: td.Dataset, policy: str) -> td.Dataset:
    options = td.Options()
    options.distribute.auto_shard_policy = policy  # type: ignore[assignment]  # words are taken too
    return dataset.with_options(options)
