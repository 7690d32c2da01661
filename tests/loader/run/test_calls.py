"""The number of Python functions that the consumer calls for a batch: a busy machine does not change it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from statistics import median
from typing import Any

from tundish import Dataset, Options
from tundish.loader.run.coordinating.coordinator import Coordinator

ROW_S = 10e-6
WARM, COUNTED, MANY = 4, 9, 32
TASKS, CALLS_OF_AN_ANSWER = 8, 7


def slow(index: int) -> int:
    until = time.perf_counter() + ROW_S
    while time.perf_counter() < until:
        pass
    return index * 2


def counts_of(iterator: Any) -> Counter[str]:
    """Count the calls of one ``next``: all of Python functions, some of them by name, and those of C's methods."""
    found: Counter[str] = Counter()

    def count(frame: Any, event: str, called: Any) -> None:
        if event == "call":
            found["calls"] += 1
            found["answers"] += frame.f_code is Coordinator.done.__code__
        elif event == "c_call":
            found[called.__name__] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        next(iterator)
    finally:
        sys.setprofile(before)
    return found


def counts(iterator: Any, number: int) -> list[Counter[str]]:
    for _ in range(WARM):
        next(iterator)
    return [counts_of(iterator) for _ in range(number)]


def batches_of_eight_tasks() -> Any:
    options = Options()
    options.stats.enabled = False  # what is reported twice a second is no matter of a batch
    dataset = Dataset.range(1 << 40).map(slow).batch(4000).with_options(options)
    return dataset.iterator(workers=2)


def test_a_batch_of_eight_tasks() -> None:
    """Load moves answers and tasks from one ``next`` to another, so many are summed up.

    The answers of batches that come later are left out: those of eight tasks a batch are counted.
    """
    with batches_of_eight_tasks() as batches:
        found = sum(counts(batches, MANY), Counter[str]())
    others = found["answers"] - TASKS * MANY
    # 204 to 209, by how the answers fall; one more call for each task is 8 more.
    assert (found["calls"] - CALLS_OF_AN_ANSWER * others) / MANY <= 212


def test_a_wait_reads_each_answer_once() -> None:
    """The channel is not asked after each answer whether there is another."""
    with batches_of_eight_tasks() as batches:
        found = sum(counts(batches, MANY), Counter[str]())
    assert found["recv_into"] <= 1.4 * found["answers"]


def test_elements_that_no_machine_has_at_once() -> None:
    """The machine is not asked for each element whether it has several."""
    options = Options()
    options.stats.enabled = False  # how many calls are timed depends on the machine's load
    dataset = Dataset.range(9 * COUNTED).cache().repeat().with_options(options)
    with dataset.iterator(workers=0) as elements:
        for _ in range(9 * COUNTED):
            next(elements)

        # Now and then an element keeps a mark, too: how often depends on the machine's speed.
        assert median(each["calls"] for each in counts(elements, COUNTED)) <= 14
