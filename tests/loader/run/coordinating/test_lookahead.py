"""The distance that stages may be ahead, by the time that their tasks took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tundish import Dataset
from tundish.loader.plan.node import AUTOTUNE
from tundish.loader.run.coordinating.lookahead import LookAhead
from tundish.loader.watch.watch import StageMeter

WORKERS = 4
EVEN = 2 + 10  # two and a half tasks a worker


def stage() -> Any:
    """A stage whose blocks are one task each."""
    meter = StageMeter("map", (), "workers")
    return SimpleNamespace(meter=meter, group=1, window=0, ahead=0, least_window=0)


def work(stage: Any, *, slow: int = 0) -> None:
    """Do a thousand tasks of a millisecond, and some that take a second."""
    for seconds in [0.001] * 1000 + [1.0] * slow:
        stage.meter.did(1, seconds, seconds)


def test_what_is_done_before_all_workers_are_at_it_does_not_count() -> None:
    lookahead, some = LookAhead((), tuned=True), stage()
    work(some, slow=WORKERS)  # they import
    lookahead.measure([some], WORKERS, fresh=True)
    work(some, slow=WORKERS)
    lookahead.measure([some], WORKERS, fresh=False)
    work(some)
    lookahead.measure([some], WORKERS, fresh=False)

    assert some.ahead == EVEN


def test_nor_is_what_a_worker_does_first_that_comes_later() -> None:
    lookahead, some = LookAhead((), tuned=True), stage()
    lookahead.measure([some], WORKERS, fresh=False)
    work(some, slow=WORKERS)
    lookahead.measure([some], WORKERS, fresh=True)
    lookahead.measure([some], WORKERS, fresh=False)
    work(some)
    lookahead.measure([some], WORKERS, fresh=False)

    assert some.ahead == EVEN


def test_slow_tasks_of_workers_that_are_at_it_count() -> None:
    lookahead, some = LookAhead((), tuned=True), stage()
    lookahead.measure([some], WORKERS, fresh=False)
    work(some, slow=WORKERS)
    lookahead.measure([some], WORKERS, fresh=False)

    assert some.ahead > 10 * EVEN
    assert lookahead.window(some, WORKERS) == some.ahead


def test_what_was_learnt_with_fewer_workers_leaves_none_without_a_task() -> None:
    """Else some would never do one, so that nothing is learnt any more."""
    lookahead, some = LookAhead((), tuned=True), stage()
    lookahead.measure([some], 1, fresh=False)
    work(some)
    lookahead.measure([some], 1, fresh=False)
    lookahead.measure([some], WORKERS, fresh=True)

    assert 0 < some.ahead < EVEN
    assert lookahead.window(some, WORKERS) == EVEN


@pytest.mark.parametrize(
    ("buffer_size", "tuned", "due"),
    [(None, False, False), (2, False, False), (AUTOTUNE, False, True), (None, True, True)],
)
def test_it_is_measured_where_somebody_asks_for_it(
    buffer_size: int | None, tuned: bool, due: bool
) -> None:
    ds = Dataset.range(3)
    nodes = [] if buffer_size is None else [ds.prefetch(buffer_size)._node]
    lookahead = LookAhead(nodes, tuned=tuned)

    assert lookahead.is_due(1.0) is due
    assert not lookahead.is_due(1.05)
    assert lookahead.is_due(1.2) is due


def test_prefetch_is_no_less_than_it_says() -> None:
    ds = Dataset.range(3).prefetch(50)

    assert LookAhead([ds._node], tuned=False).window(stage(), WORKERS) == 50
    assert LookAhead((), tuned=False).window(stage(), WORKERS) == EVEN
    assert LookAhead((), tuned=False).window(stage(), 0) == 3
