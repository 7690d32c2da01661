"""Tasks of workers that fall silent: done by a second worker, the first answer counts, and the other goes nowhere."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import psutil
import pytest
from tests.service.computed import broad, slowly
from tests.service.fleets import Listed, Machine, machines, remotely
from tests.service.jobprocesses import Processes
from tests.service.test_seats import patience

from tundish import Dataset


@pytest.fixture(scope="module")
def fleet(program: Processes) -> Iterator[list[Machine]]:
    with machines(program, 2) as found:
        yield found


LATE = 4
"""Tasks that were done by a second worker, until which others are stopped."""


def stop(workers: list[psutil.Process], *, going: bool = False) -> None:
    for worker in workers:
        with contextlib.suppress(psutil.Error):
            worker.send_signal(signal.SIGCONT if going else signal.SIGSTOP)


def expected(count: int, rows: int) -> list[np.ndarray]:
    return [np.arange(at, at + rows, dtype=np.float32) for at in range(0, count, rows)]


def test_workers_that_fall_silent_hold_nobody_up(fleet: list[Machine]) -> None:
    places = Listed([machine.address for machine in fleet])
    ds = Dataset.range(800).map(slowly).batch(8)
    longest, got = 0.0, []
    with remotely(places), ds.iterator(workers=4) as iterator:
        got += [next(iterator)[:, 0, 0].copy() for _ in range(40)]
        assert iterator.stats.hedged <= 1 + iterator.stats.tasks // 20
        stopped = fleet[0].workers()
        assert len(stopped) == 2
        stop(stopped)
        try:
            while True:
                began = time.monotonic()
                try:
                    batch = next(iterator)
                except StopIteration:
                    break
                longest = max(longest, time.monotonic() - began)
                got.append(batch[:, 0, 0].copy())
        finally:
            stop(stopped, going=True)
        stats = iterator.stats
    assert all(map(np.array_equal, got, expected(800, 8)))
    assert len(got) == 100
    assert stats.hedged >= 1
    assert longest < 1.0 * patience()


@pytest.mark.parametrize("seed", range(1))
def test_late_answers_reach_nothing_that_was_delivered(fleet: list[Machine], seed: int) -> None:
    """Workers are stopped and go on at random, often in the middle of their rows; the consumer writes to its batches.

    It goes on until enough late answers have come to batches that it has.
    """
    rng = random.Random(seed)
    over = threading.Event()
    places = Listed([machine.address for machine in fleet])

    def havoc() -> None:
        while not over.wait(rng.uniform(0.05, 0.2)):
            workers = [worker for machine in fleet for worker in machine.workers()]
            chosen = rng.sample(workers, min(2, len(workers)))
            stop(chosen)
            over.wait(rng.uniform(0.3, 1.2))
            stop(chosen, going=True)

    troubles = threading.Thread(target=havoc)
    kept: list[Any] = []
    rest: Iterator[int] = iter(())
    ds = Dataset.range(800).map(broad).batch(8)
    with remotely(places), ds.iterator(workers=4) as iterator:
        first = next(iterator)
        troubles.start()
        try:
            for number, batch in enumerate(chain([first], iterator)):
                assert (batch == np.arange(8 * number, 8 * number + 8)[:, None, None]).all()
                np.add(batch, 1, out=batch)  # its own from now on
                kept.append((number, batch))
                if len(kept) > 12:
                    unharmed(*kept.pop(rng.randrange(12)))
                    if iterator.stats.hedged >= LATE and not over.is_set():
                        over.set()  # and on, while the last of them come
                        rest = iter(range(12))
                    if over.is_set() and next(rest, None) is None:
                        break
        finally:
            over.set()
            troubles.join()
        hedged = iterator.stats.hedged
    for number, batch in kept:
        unharmed(number, batch)
    assert hedged >= 1


def unharmed(number: int, batch: np.ndarray) -> None:
    assert (batch == np.arange(8 * number, 8 * number + 8)[:, None, None] + 1).all()
