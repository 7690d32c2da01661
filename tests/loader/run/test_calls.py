"""The number of Python functions that the consumer calls in one ``next``: a busy machine does not change it."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from tundish import Dataset, Options

ROW_S = 10e-6
WARM, COUNTED = 4, 9


def slow(index: int) -> int:
    until = time.perf_counter() + ROW_S
    while time.perf_counter() < until:
        pass
    return index * 2


def calls_of(iterator: Any, name: str | None) -> int:
    """Count the calls of one ``next``: of Python functions, or of a method of C's."""
    calls = 0

    def count(_: Any, event: str, called: Any) -> None:
        nonlocal calls
        calls += event == "call" if name is None else event == "c_call" and called.__name__ == name

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        next(iterator)
    finally:
        sys.setprofile(before)
    return calls


def counts(iterator: Any, name: str | None = None) -> list[int]:
    for _ in range(WARM):
        next(iterator)
    return [calls_of(iterator, name) for _ in range(COUNTED)]


def batches_of_eight_tasks() -> Any:
    options = Options()
    options.stats.enabled = False  # what is reported twice a second is no matter of a batch
    dataset = Dataset.range(1 << 40).map(slow).batch(4000).with_options(options)
    return dataset.iterator(workers=2)


def test_a_batch_of_eight_tasks() -> None:
    with batches_of_eight_tasks() as batches:
        assert statistics.median(counts(batches)) <= 210


def test_a_wait_reads_each_answer_once() -> None:
    """The channel is not asked after each answer whether there is another."""
    with batches_of_eight_tasks() as batches:
        assert statistics.median(counts(batches, "recv_into")) <= 10


def test_elements_that_no_machine_has_at_once() -> None:
    """The machine is not asked for each element whether it has several."""
    with Dataset.range(9 * COUNTED).cache().repeat().iterator(workers=0) as elements:
        for _ in range(9 * COUNTED):
            next(elements)

        assert statistics.median(counts(elements)) <= 14
