"""The division of the consumer's time, with a clock on which a second passes whenever it is read."""

from __future__ import annotations

from itertools import count

import pytest

from tundish.loader.run.watching import ledger as ledgers
from tundish.loader.run.watching.ledger import Ledger


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    seconds = count(1)
    monkeypatch.setattr(ledgers, "perf_counter", lambda: float(next(seconds)))
    return Ledger()  # at 1


def test_parts_add_up_to_the_whole_at_any_moment(ledger: Ledger) -> None:
    """Though the process may be stopped between any two readings of the clock."""
    assert ledger.so_far() == (0, 0, 1, 1)  # at 2: it was not asked yet
    ledger.enter()  # at 3
    assert ledger.so_far() == (0, 1, 2, 3)  # at 4
    ledger.waits_since = 4.0
    assert ledger.so_far() == (1, 1, 2, 4)  # at 5: it waits
    ledger.waited(1.5)
    assert ledger.so_far() == (1.5, 1.5, 2, 5)  # at 6
    ledger.leave(7.0)
    assert (ledger.waited_s, ledger.own_s, ledger.waits.count) == (1.5, 2.5, 1)
    assert ledger.so_far() == (1.5, 2.5, 2, 6)  # at 7
    ledger.end()  # at 8
    for _ in range(2):
        assert ledger.so_far() == (1.5, 2.5, 3, 7)


def test_asked_again_within_a_call_nothing_happens(ledger: Ledger) -> None:
    """An engine is asked for several elements, has none to give at once, and is asked for one."""
    ledger.enter()  # at 2
    ledger.enter()
    assert ledger.leave(5.0) == 3
    assert (ledger.own_s, ledger.outside_s) == (3, 1)
