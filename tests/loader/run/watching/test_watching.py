"""Measurements of an iterator by itself."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tundish import AUTOTUNE, Dataset, Options, StatsAggregator, StatsOptions, TextLineDataset
from tundish.loader.protocols import probes
from tundish.loader.run import engine
from tundish.loader.run.watching.viewing import view_of
from tundish.loader.watch.costs import costs_of
from tundish.loader.watch.stats import Stats
from tundish.testing.functions import Draw


def slow(x: Any) -> Any:
    """Take 2 ms of a core: how much is timed goes by that."""
    until = time.thread_time() + 0.002
    while time.thread_time() < until:
        pass
    return np.full(100, x)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_time_is_divided(workers: int) -> None:
    with Dataset.range(200).map(slow).batch(4).iterator(workers=workers) as iterator:
        for _ in iterator:
            time.sleep(0.002)
        stats = iterator.stats

    assert stats.watched
    assert stats.waited_s + stats.own_s + stats.outside_s == pytest.approx(stats.wall_s)
    assert stats.outside_s > 50 * 0.002
    if workers:
        assert min(stats.waited_s, stats.own_s) > 0.0
        assert stats.waits.total_s == pytest.approx(stats.waited_s)
    else:  # the rest of two samples, of which each has its error: it may be nothing, and never less
        assert stats.waited_s > stats.own_s >= 0.0


@pytest.mark.parametrize("workers", [0, 2])
def test_the_time_of_a_function_is_its_own(workers: int) -> None:
    def light(x: Any) -> Any:
        return x

    with Dataset.range(200).map(slow).map(light).batch(4).iterator(workers=workers) as iterator:
        for _ in iterator:
            pass
        stats = iterator.stats
    nodes = {node.name: node for stage in stats.stages for node in stage.nodes}

    assert nodes["map#1"].time.count > 50
    assert nodes["map#1"].time.mean_s >= 0.002
    assert nodes["map#2"].time.quantile_s(0.5) < 0.5 * nodes["map#1"].time.quantile_s(0.5)
    assert nodes["map#1"].busy_s >= 200 * 0.002
    assert nodes["map#1"].calls
    assert not nodes["range#0"].calls


def test_workers_are_measured() -> None:
    pids: set[int] = set()
    with Dataset.range(200).map(slow).batch(4).iterator(workers=2) as iterator:
        for _ in iterator:
            pids.update(iterator.worker_pids())
        stats = iterator.stats

    # They are gone when the end was delivered; what they did is with the stages.
    assert sum(stage.busy_s for stage in stats.stages) >= 200 * 0.002
    assert stats.tasks == sum(stage.tasks for stage in stats.stages)
    assert len(pids) == 2


def test_workers_that_are_there_are_told() -> None:
    with Dataset.range(10**6).map(slow).batch(4).iterator(workers=2) as iterator:
        for _ in range(10):
            next(iterator)
        pool = iterator.stats.pool

        assert {worker.pid for worker in pool} == set(iterator.worker_pids())
        assert sum(worker.tasks for worker in pool) > 0
        assert all(worker.busy_s <= worker.alive_s for worker in pool)


@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_are_those_of_the_elements(workers: int) -> None:
    with Dataset.range(120).map(slow).batch(4).iterator(workers=workers) as iterator:
        for _ in iterator:
            pass
        stats = iterator.stats

    assert stats.nbytes == 120 * 100 * 8


@pytest.mark.parametrize("workers", [0, 2])
def test_it_explains_itself(workers: int) -> None:
    with Dataset.range(10**6).map(slow).batch(4).iterator(workers=workers) as iterator:
        for _ in range(60):
            next(iterator)
        verdict = iterator.explain()

    assert "map#1" in str(verdict)
    assert verdict.svg().startswith("<svg")


@pytest.mark.parametrize("workers", [0, 2])
def test_slack_changes_no_element(workers: int) -> None:
    ds = Dataset.range(100).map(Draw(1), seed=1).batch(7)
    with ds.iterator(workers=0) as iterator:
        expected = [batch.tolist() for batch in iterator]
    with ds.with_options(Options(slack=True)).iterator(workers=workers) as iterator:
        found = [batch.tolist() for batch in iterator]

    assert found == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_statistics_go_on_after_an_interrupt(workers: int) -> None:
    """The engine is made anew; what was delivered stays counted."""
    with Dataset.range(100).map(Draw(1), seed=1).iterator(workers=workers) as iterator:
        for _ in range(10):
            next(iterator)
        iterator._doubt = True
        iterator._engine.begun = iterator._engine.given = False  # it fell between two calls
        for _ in iterator:
            pass

        assert iterator.stats.elements == 100


class Noted:
    """Says of an element that it is bad."""

    def __init__(self, bad: int) -> None:
        self._bad = bad

    def bound(self, context: object) -> Noted:
        return self

    def see(self, label: str, element: Any, origin: Any) -> None:
        if label == "map#1" and element == self._bad:
            raise ValueError(f"{label} gave {element} at {origin}")


@pytest.fixture
def noted() -> Any:
    probe = Noted(13)
    probes.activate(probe)
    yield
    probes.deactivate(probe)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("noted")
def test_what_a_probe_raises_is_the_elements_error(workers: int) -> None:
    found: list[Any] = []
    with Dataset.range(20).map(lambda x: x + 1).iterator(workers=workers) as iterator:
        while True:
            try:
                found.append(int(next(iterator)))
            except StopIteration:
                break
            except ValueError as error:
                found.append(str(error))

    assert found == [*range(1, 13), "map#1 gave 13 at (0, 12)", *range(14, 21)]


def test_an_aggregator_is_told_at_the_end() -> None:
    aggregator = StatsAggregator()
    options = Options()
    options.stats.aggregator = aggregator
    ds = Dataset.range(50).map(Draw(1), seed=1).with_options(options)
    for _ in range(2):
        list(ds)

    assert aggregator.summary().total.elements == 100


@pytest.mark.parametrize("workers", [0, 2])
def test_who_is_told_meanwhile_is_told_of_delivered_elements(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small batches leave the engine many at once: those that wait here have not been delivered."""
    monkeypatch.setattr(engine, "EVERY_S", 0.0)
    given = 0
    told: list[tuple[int, Stats]] = []

    class Told(StatsAggregator):
        def take(self, name: str, stats: Stats, prefix: str = "", counter_prefix: str = "") -> None:
            told.append((given, stats))

    options = Options(workers=workers, stats=StatsOptions(aggregator=Told()))
    ds = Dataset.range(4000).filter(lambda x: x % 2 == 0).batch(2).with_options(options)
    for _ in ds:
        given += 1
        if given % 100 == 0:
            time.sleep(0.005)

    assert len(told) > 3
    assert all(stats.elements - before <= 1 for before, stats in told)
    assert all(
        stats.nbytes in (0, 16 * stats.elements) for _, stats in told
    )  # none was weighed yet


def test_records_that_are_given_many_at_once_are_timed(tmp_path: Any) -> None:
    """The calls of ``next`` that come out of a list are the engine's one."""
    (tmp_path / "lines.txt").write_text("word\n" * 300_000)
    with TextLineDataset(str(tmp_path / "lines.txt")).iterator(workers=0) as iterator:
        next(iterator)
        engine: Any = iterator._engine
        engine._sampling._saved_s = 1.0  # as after a minute
        for _ in iterator:
            pass
        stats = iterator.stats
    (stage,) = stats.stages

    assert stage.elements == 300_000
    assert stage.nodes[-1].time.count > 1000
    assert 0 < stage.busy_s < stats.wall_s


@pytest.mark.parametrize("calls", [2, AUTOTUNE])
def test_off_only_a_tuner_has_clocks(calls: int) -> None:
    options = Options()
    options.stats.enabled = False
    ds = Dataset.range(40).map(slow, num_parallel_calls=calls).batch(4).with_options(options)
    with iter(ds) as iterator:
        for _ in iterator:
            pass
        stats = iterator.stats
    wanted = calls == AUTOTUNE

    assert stats.elements == 10
    assert (stats.own_s > 0) == wanted
    assert (stats.outside_s < stats.wall_s) == wanted
    assert (sum(stage.cpu_s for stage in stats.stages) > 0) == wanted


DEPENDENT: dict[str, Any] = {
    "pack": lambda ds: ds.pack(64).batch(8),
    "first fit": lambda ds: ds.pack(128, method="first_fit").batch(8),
    "filter": lambda ds: ds.filter(lambda x: x[0] % 3 > 0).batch(8),
    "padded": lambda ds: ds.padded_batch(8),
    "buckets": lambda ds: ds.bucket_by_sequence_length(len, [50, 150], [4, 4, 4]),
    "unbatch": lambda ds: ds.unbatch().batch(100),
    "groups": lambda ds: ds.group_by_window(lambda x: x[0] % 2, lambda _, g: g.batch(4), 4),
}
"""Operators after a map, whose stages name the map as well: its values decide what they make."""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", DEPENDENT)
def test_the_costly_function_is_named_whatever_follows(name: str, workers: int) -> None:
    dataset = DEPENDENT[name](Dataset.range(240).map(slow))
    with dataset.iterator(workers=workers) as iterator:
        for _ in iterator:
            pass
        stats, text = iterator.stats, str(iterator.explain())
        view = view_of(iterator._engine.context)
    costs = costs_of(stats, view)

    # About 0.85 to 0.98: a task on one row of 2 ms has up to 0.3 ms of its own. Crowded machines take more off.
    assert costs.nodes["map#1"] > 0.6 * costs.busy_s
    assert "map#1" in text, text
