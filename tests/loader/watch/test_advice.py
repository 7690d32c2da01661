"""Predictions of changes, on made-up measurements: which are offered, and their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.loader.watch.situations import (
    BATCH,
    LOAD,
    LOADING,
    RANGE,
    node,
    stage,
    stats,
    times,
    view,
)

from tundish.loader.watch.advice import may_be_kept
from tundish.loader.watch.prediction import Prediction
from tundish.loader.watch.stats import StageStats, Stats
from tundish.loader.watch.verdict import explain
from tundish.loader.watch.view import PlanNode, PlanView
from tundish.testing.advising import check_text

SHUFFLE = PlanNode("shuffle#1", "shuffle", shuffles=True, count=100_000)
KEEP = PlanNode("filter#2", "filter", function="keep", each=True, drops=True)
AUGMENT = PlanNode("map#2", "map", function="augment", each=True, draws=True)


def found(measured: Stats, plan: PlanView, begins: str) -> Prediction | None:
    """The prediction that begins so."""
    each = [one for one in explain(measured, plan).predictions if one.what.startswith(begins)]
    return each[0] if each else None


def busy(*stages: StageStats, elements: int = 1000, **settings: Any) -> Stats:
    """Two workers without a pause, and a consumer that only waits."""
    seconds = sum(each.busy_s for each in stages) / 2
    given: dict[str, Any] = {"workers": 2, "waited_s": seconds, "own_s": 0.05, **settings}
    return stats(*stages, elements=elements, **given)


def test_a_filter_goes_before_what_it_spares() -> None:
    ds = view(RANGE, LOAD, KEEP, replace(BATCH, name="batch#3"))
    computed = stage(node("map#1", 0.002, 40_000), node("filter#2", 1e-5, 10_000, dropped=30_000))
    each = found(busy(computed), ds, "filter#2 (keep) before map#1 (load)")

    assert each is not None
    assert each.gain == pytest.approx(0.08040 / 0.0204, rel=0.05), "3 of 4 are not loaded"
    assert "if filter#2 (keep) needs nothing that map#1 (load) makes: it drops 75 %" in each.basis


def test_a_filter_that_spares_little_stays() -> None:
    ds = view(RANGE, LOAD, KEEP, replace(BATCH, name="batch#3"))
    computed = stage(node("map#1", 0.002, 10_000), node("filter#2", 1e-5, 9_800, dropped=200))

    assert found(busy(computed), ds, "filter#2") is None


def test_a_filter_behind_another_filter_moves_no_further() -> None:
    second = replace(KEEP, name="filter#3", function="second")
    ds = view(RANGE, LOAD, KEEP, second, replace(BATCH, name="batch#4"))
    computed = stage(
        node("map#1", 0.002, 20_000),
        node("filter#2", 1e-5, 20_000, dropped=20_000),
        node("filter#3", 1e-5, 10_000, dropped=10_000),
    )

    assert found(busy(computed), ds, "filter#3") is None


def test_a_snapshot_after_the_last_that_draws_nothing() -> None:
    ds = view(RANGE, LOAD, AUGMENT, replace(BATCH, name="batch#3"))
    computed = stage(node("map#1", 0.0018, 10_000), node("map#2", 0.0002, 10_000))
    each = found(busy(computed, nbytes=1000 * 60_000), ds, "a snapshot after map#1")

    assert each is not None
    assert each.gain == pytest.approx(10.0, rel=0.1), "a tenth is left"
    assert "if load gives the same in each epoch: later epochs read 600 MB" in each.basis
    assert "600 MB" in each.basis


def test_a_shuffle_goes_after_a_snapshot() -> None:
    ds = view(RANGE, SHUFFLE, replace(LOAD, name="map#2"), replace(BATCH, name="batch#3"))
    computed = stage(node("shuffle#1"), node("map#2", 0.002, 10_000))
    each = found(busy(computed, nbytes=1000), ds, "a cache or snapshot after map#2, then shuffle#1")

    assert each is not None
    assert each.gain > 10


@pytest.mark.parametrize(
    ("nodes", "name"),
    [
        ((RANGE, AUGMENT, BATCH), "map#2"),  # other numbers in each epoch
        ((RANGE, SHUFFLE, replace(BATCH, name="batch#2"), LOAD), "batch#2"),  # other batches
        ((RANGE, PlanNode("repeat#1", "repeat"), replace(LOAD, name="map#2")), "map#2"),
    ],
)
def test_what_differs_by_epoch_is_not_kept(nodes: tuple[PlanNode, ...], name: str) -> None:
    plan = view(*nodes)

    assert not may_be_kept(plan, plan[name])


def test_what_is_kept_already_gets_no_second_snapshot() -> None:
    kept = PlanNode("cache#2", "cache", keeps=True)
    ds = view(RANGE, LOAD, kept, replace(BATCH, name="batch#3"))
    computed = stage(node("map#1", 0.002, 10_000))

    assert found(busy(computed), ds, "a ") is None


def test_a_snapshot_is_read_no_faster_than_memory() -> None:
    computed = stage(node("map#1", 0.002, 10_000))
    nbytes = 400_000_000  # a batch: a tenth of a second at 4 GB/s
    slow = found(busy(computed, nbytes=1000 * nbytes), LOADING, "a snapshot")

    assert slow is None
    nbytes = 32_000_000  # 8 ms: 125 a second, where 100 are computed
    some = found(busy(computed, nbytes=1000 * nbytes), LOADING, "a snapshot")
    assert some is not None
    assert some.gain == pytest.approx(1.25, rel=0.03), (
        "by the consumer: more workers read no faster"
    )


def test_what_workers_cost_the_consumer_goes_with_them() -> None:
    computed = stage(node("map#1", 0.002, 10_000))
    measured = busy(computed, waited_s=7.0, own_s=1.0, outside_s=2.0, nbytes=1000)
    each = found(measured, LOADING, "a cache or snapshot")

    assert each is not None
    assert each.gain == pytest.approx(5.0, rel=0.03), "nothing but what it does in between is left"


def test_nothing_is_kept_where_that_spares_nothing() -> None:
    ds = view(RANGE, SHUFFLE, replace(BATCH, name="batch#2"))
    idle = stats(
        stage(node("range#0"), node("shuffle#1")),
        workers=2,
        elements=1000,
        waited_s=9.0,
        own_s=1.0,
        nbytes=1000,
    )

    assert found(idle, ds, "a ") is None
    check_text(explain(idle, ds))


def test_a_row_of_a_snapshot_has_a_price() -> None:
    ds = view(RANGE, SHUFFLE, replace(LOAD, name="map#2"), replace(BATCH, rows=1000))
    computed = stage(node("shuffle#1"), node("map#2", 10e-6, 10**6))
    each = found(busy(computed, own_s=0.0, nbytes=1000), ds, "a cache or snapshot after map#2")

    assert each is not None
    assert each.gain == pytest.approx(2.0, rel=0.05), "5 ms by two workers, 2.5 ms to read"


def most_of_workers(computed: StageStats, plan: PlanView) -> float:
    """The most that workers would give a pipeline that has none."""
    computed = replace(computed, where="consumer")
    measured = stats(computed, workers=0, elements=1000, waited_s=computed.busy_s)
    told = explain(measured, plan).predictions
    return max((each.gain for each in told if "worker" in each.what), default=1.0)


def test_rows_of_files_are_handed_over_one_by_one() -> None:
    lines = PlanNode("TextLineDataset#0", "TextLineDataset", rows=0, reads="stream")
    ds = view(lines, LOAD, replace(BATCH, rows=100))

    def lines_of(each_s: float) -> StageStats:
        return stage(node("TextLineDataset#0", 1e-6, 100_000), node("map#1", each_s, 100_000))

    assert most_of_workers(lines_of(2e-6), ds) == 1.0, "that takes longer than the work"
    assert most_of_workers(lines_of(1e-3), ds) > 7, "of 8 cores"


def test_a_generator_stays_where_it_is() -> None:
    made = PlanNode(
        "from_generator#0", "from_generator", function="gen", reads="generator", stays=True
    )
    ds = view(made, LOAD, BATCH)
    computed = stage(node("from_generator#0", 0.001, 10_000), node("map#1", 0.005, 10_000))

    assert most_of_workers(computed, ds) == pytest.approx(6, rel=0.05), "a sixth is left to it"


def test_a_cheap_function_of_many_elements_at_once() -> None:
    ds = view(RANGE, replace(LOAD, function="scale"), replace(BATCH, rows=1000))
    computed = stage(node("map#1", 5e-6, 10**6))
    each = found(busy(computed), ds, "map_batches(scale, 1000) instead of map#1")

    assert each is not None
    assert each.spread >= 0.3, "it is a guess"
    assert "if scale takes arrays of 1000 rows in a tenth of the time" in each.basis
    assert found(busy(stage(node("map#1", 0.002, 10_000))), LOADING, "map_batches") is None


def test_a_window_of_what_is_dear_is_restored_slowly() -> None:
    window = PlanNode("shuffle#3", "shuffle", shuffles=True, window=5000)
    ds = view(RANGE, LOAD, KEEP, window, replace(BATCH, name="batch#4"))
    computed = stage(node("map#1", 0.002, 10_000), node("filter#2", 1e-6, 10_000))
    each = found(busy(computed), ds, "shuffle#3 before map#1 (load)")

    assert each is not None
    assert each.unit == "s to restore"
    assert each.now == pytest.approx(5.0, rel=0.05), "5,000 times 2 ms by 2 workers"


def test_the_consumer_bounds_what_a_change_gives() -> None:
    """A batch takes 20 ms of two workers, and the consumer 8 ms of its own time."""
    measured = busy(stage(node("map#1", 0.002, 10_000)), waited_s=2.0, outside_s=8.0)
    verdict = explain(measured, LOADING)

    assert max(each.then for each in verdict.predictions) <= 1 / 0.008
    assert any("the consumer is the limit" in each.basis for each in verdict.predictions)


def test_a_caller_that_computes_takes_cores() -> None:
    computed = stage(node("map#1", 0.002, 10_000))
    busy_caller = busy(computed, waited_s=5.0, outside_s=5.0, outside_cpu=1.0, cores=2)
    idle_caller = busy(computed, waited_s=5.0, outside_s=5.0, outside_cpu=0.01, cores=3)

    assert explain(busy_caller, LOADING).limit == "cores"
    more = found(idle_caller, LOADING, "one more worker")
    assert more is not None
    assert more.gain == pytest.approx(1.5, rel=0.03), "the third core is free"


def test_no_workers_where_they_cost_more_than_they_do() -> None:
    ds = view(RANGE, replace(LOAD, function="light"))
    measured = stats(
        stage(node("map#1", 0.0003, 10_000)), workers=1, elements=10_000, waited_s=2.0, own_s=2.5
    )
    each = found(measured, ds, "no workers")

    assert each is not None
    assert each.gain == pytest.approx(0.45 / 0.303, rel=0.05)


def test_the_best_comes_first_and_four_are_enough() -> None:
    ds = view(RANGE, LOAD, KEEP, replace(BATCH, name="batch#3"))
    computed = stage(node("map#1", 0.002, 40_000), node("filter#2", 1e-5, 10_000, dropped=30_000))
    each = explain(busy(computed), ds).predictions
    gains = [one.gain for one in each]

    assert len(each) <= 4
    assert gains == sorted(gains, reverse=True)
    assert all(gain > 1.05 for gain in gains)
    assert all(one.unit == "batches/s" for one in each)


def test_few_and_scattered_tasks_widen_the_prediction() -> None:
    many = busy(stage(node("map#1", 0.002, 10_000)))
    scattered = times((0.001, 20), (0.02, 5))
    few = stats(
        stage(node("map#1", 0.002, 100), tasks=scattered, busy_s=0.2),
        workers=2,
        elements=10,
        waited_s=0.1,
        own_s=0.01,
    )
    sure, unsure = (found(each, LOADING, "one more worker") for each in (many, few))

    assert sure is not None
    assert unsure is not None
    assert unsure.spread > 3 * sure.spread


def test_a_prediction_in_words() -> None:
    each = Prediction("one more worker", 100.0, 150.0, "why", 0.05, "batches/s")

    assert str(each) == "one more worker: 100 -> 150 batches/s (±5 %)\n    why"
    assert each.gain == pytest.approx(1.5)
