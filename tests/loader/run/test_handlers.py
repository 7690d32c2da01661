"""States that a signal's handler asks for, while `next` goes on."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tundish import Dataset

PLANS: dict[str, Callable[[], Dataset[Any]]] = {
    "batches": lambda: Dataset.range(600).map(slow).batch(7),
    "dropped": lambda: Dataset.range(900).filter(odd).map(slow).batch(5),
    "shuffled": lambda: Dataset.range(500).map(slow).shuffle(40, seed=1).batch(6),
    "inner": lambda: Dataset.range(60).flat_map(inner).map(slow).batch(8),
    "single": lambda: Dataset.range(400).map(slow),
    "several": lambda: Dataset.range(9000).batch(3).unbatch().map_batches(np.square, 3),
}


def slow(x: Any) -> Any:
    time.sleep(0.0002)
    return x


def odd(x: Any) -> bool:
    return bool(x % 2)


def inner(x: Any) -> Dataset[Any]:
    return Dataset.range(int(x), int(x) + 9)


@pytest.fixture
def handler() -> Iterator[Callable[[Any], None]]:
    """Sets a handler of SIGALRM for the test."""
    before = signal.getsignal(signal.SIGALRM)

    def use(function: Any) -> None:
        signal.signal(signal.SIGALRM, lambda *_: function())

    yield use
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("plan", PLANS)
def test_a_state_is_of_the_last_delivered_element(
    plan: str, workers: int, handler: Callable[[Any], None]
) -> None:
    assert threading.current_thread() is threading.main_thread()
    want = [np.asarray(each).tolist() for each in PLANS[plan]().iterator(workers=0)]
    draw = random.Random(plan)
    saved: list[tuple[int, Any]] = []
    got: list[Any] = []
    with PLANS[plan]().iterator(workers=workers) as it:

        def save() -> None:
            if len(saved) < 20:
                saved.append((len(got), it.state_dict()))
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0005, 0.006))

        handler(save)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        got.extend(np.asarray(element).tolist() for element in it)
    assert got == want
    assert len(saved) > 3
    for count, state in saved:
        with PLANS[plan]().iterator(workers=0) as again:
            again.load_state_dict(state)
            found = np.asarray(next(again, None)).tolist()
            # One element may be on its way from `next` to the list.
            assert found in [*want[count : count + 2], *([None] if count + 2 > len(want) else [])]


def test_the_length_counts_what_is_left_out(handler: Callable[[Any], None]) -> None:
    saved: list[Any] = []
    lengths: list[int] = []
    with PLANS["single"]().iterator(workers=0) as it:
        for _ in range(37):
            next(it)

        def ask() -> None:
            saved.append(it.state_dict())
            lengths.append(len(it))

        handler(ask)
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
        for _ in range(10):
            next(it)
    with PLANS["single"]().iterator(workers=0) as again:
        again.load_state_dict(saved[0])
        assert "remain" in repr(again)
        assert len(again) == lengths[0] == 400 - int(next(again))


def test_a_restored_iterator_is_asked_within_next_too(handler: Callable[[Any], None]) -> None:
    """A handler may ask an iterator that was restored from a handler's state, again and again."""
    want = [batch.tolist() for batch in PLANS["batches"]()]
    state: Any = None
    count = 0
    for _ in range(5):
        saved: list[Any] = []
        with PLANS["batches"]().iterator(workers=0) as it:
            if state is not None:
                it.load_state_dict(state)
            got = [next(it).tolist() for _ in range(4)]
            assert got == want[count : count + 4]
            handler(lambda it=it, saved=saved: saved.append(it.state_dict()))
            signal.setitimer(signal.ITIMER_REAL, 0.0008)
            assert next(it).tolist() == want[count + 4]
        (state,) = saved
        count += 4
