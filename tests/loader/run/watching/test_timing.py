"""The frequency of timing, by its cost."""

from __future__ import annotations

import pytest

from tundish.loader.run.watching.timing import SHARE, Price, Sampling, TimingSchedule
from tundish.loader.watch.watch import Watch


def test_a_price_is_what_it_was() -> None:
    """Rows take a second, and two where they are timed, which is thought to cost a third of that."""
    price = Price()
    price.plain(10, 10.0)
    paid = 0.0
    for _ in range(20):
        paid = price.timed(10, 20.0, 10 / 3)

    assert paid == pytest.approx(10.0, rel=0.02)


def test_a_price_that_drowns_in_what_is_timed_stays_what_it_is_thought_to_be() -> None:
    price = Price()
    price.plain(1, 1.0)
    for seconds in (9.0, 0.1, 30.0):
        assert price.timed(1, seconds, 0.01) == 0.01


def test_a_price_is_never_nothing() -> None:
    """Functions may be quicker than they were: timing goes on, and does not have all the time."""
    price = Price()
    price.plain(1, 1.0)
    paid = 0.0
    for _ in range(100):
        paid = price.timed(1, 0.5, 0.1)

    assert 0 < paid < 0.1


@pytest.mark.parametrize("dear", [1.0, 4.0])
def test_timing_takes_its_share_of_cheap_tasks(dear: float) -> None:
    """Tasks of 100 rows of 1 us; timing a row costs what is thought, or four times that."""
    row_s, all_s, timing_s = 1e-6, 0.0, 0.0
    turns = TimingSchedule(row_s)
    for _ in range(200_000):
        timed = turns.due()
        seconds = 100 * 1e-6 + timed * dear * 100 * row_s
        turns.did(100, seconds, timed=timed)
        all_s, timing_s = all_s + seconds, timing_s + timed * dear * 100 * row_s

    assert timing_s / all_s == pytest.approx(SHARE, rel=0.1)


def test_long_tasks_are_all_timed_but_the_first() -> None:
    turns = TimingSchedule(1e-6)
    found = []
    for _ in range(5):
        found.append(turns.due())
        turns.did(10, 0.02, timed=found[-1])

    assert found == [False, True, True, True, True]


def test_in_the_consumers_process_no_more_than_a_fifth_of_the_calls_passes_unlooked_at() -> None:
    """Calls of 1 us, so cheap that by the time alone it would be looked after every few thousand."""
    sampling = Sampling(Watch())
    now, calls = sampling._last, 0
    for _ in range(100):
        calls += sampling.every
        now += 1e-6 * sampling.every
        sampling.look(now, sampling.every)

        assert sampling.every <= max(1, calls // 4)
    assert sampling.every > 1000
