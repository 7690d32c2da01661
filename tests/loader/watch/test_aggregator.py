"""`StatsAggregator`: everything is added up, and nothing twice."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from dataclasses import replace

import pytest

from tundish import Dataset, Options, StatsAggregator, StatsOptions
from tundish.loader.run import engine
from tundish.loader.watch.adding import added, ended
from tundish.loader.watch.histogram import Durations, Histogram
from tundish.loader.watch.stats import NodeStats, SnapshotStats, StageStats, Stats, WorkerStats
from tundish.loader.watch.watch import aggregators_of, take_no_more, take_of_all
from tundish.testing.surroundings import Resources


def histogram(*seconds: float) -> Histogram:
    durations = Durations()
    durations.extend(seconds)
    return durations.frozen()


MAP = NodeStats("map#1", elements=8, dropped=2, time=histogram(0.5, 0.25), busy_s=4.0, calls=True)
STAGE = StageStats(
    "map#1", (MAP,), elements=8, dropped=2, errors=1, tasks=3, rows=11, busy_s=4.5, cpu_s=2.0,
    nbytes=640, time=histogram(1.5, 1.5, 1.5), in_flight=2, ready=1, window=4,
)  # fmt: skip
STATS = Stats(
    workers=2,
    elements=8,
    errors=1,
    restarts=1,
    tasks=3,
    copies=1,
    leased=2,
    used_bytes=100,
    budget_bytes=1000,
    nbytes=64,
    wall_s=4.0,
    waited_s=2.0,
    own_s=1.0,
    outside_s=1.0,
    waits=histogram(0.5, 1.5),
    cpu_s=1.5,
    cores=4,
    watched=True,
    skipped={"map#1": 2},
    snapshots=(SnapshotStats("p", "k", "r", "write", 5, 3),),
    stages=(STAGE,),
    pool=(WorkerStats(0, 71, 2, 6, 2.0, 1.0, 4.0), WorkerStats(1, 72, 1, 5, 2.5, 1.0, 4.0)),
    edges={"a": histogram(0.5)},
    counters={"n": 64},
)


def test_an_iterator_is_counted_as_it_last_told() -> None:
    aggregator = StatsAggregator()

    aggregator.take("1", Stats(elements=3, edges={"a": histogram(1.0)}))
    aggregator.take("1", Stats(elements=5, edges={"a": histogram(1.0, 2.0)}))
    aggregator.take("2", Stats(elements=1))

    summary = aggregator.summary()
    assert (summary.iterators, summary.open, summary.elements) == (2, 2, 6)
    assert summary.edges["a"].count == 2
    assert aggregator.get_summary() == summary


def test_what_is_closed_is_counted_once_and_keeps_its_sums() -> None:
    aggregator = StatsAggregator()
    for name in ("1", "2", "3"):
        aggregator.take(name, STATS)
        aggregator.done(name)
        aggregator.done(name)
        aggregator.take(name, replace(STATS, elements=1000))  # too late

    summary = aggregator.summary()

    assert (summary.iterators, summary.open) == (3, 0)
    assert summary.total == added([ended(STATS)] * 3)
    assert summary.total.elements == 24
    assert (summary.total.workers, summary.total.pool, summary.total.leased) == (0, (), 0)


def test_what_never_told_is_not_there() -> None:
    aggregator = StatsAggregator()
    aggregator.done("1")
    aggregator.take("1", Stats(elements=3))

    assert aggregator.summary().elements == 3


def test_sums_of_many_epochs_take_no_more_room() -> None:
    aggregator = StatsAggregator()
    for epoch in range(200):
        aggregator.take(str(epoch), STATS)
        aggregator.done(str(epoch))

    assert len(aggregator._past) == 1
    assert not aggregator._open
    assert aggregator.summary().elements == 1600


def test_prefixes_keep_datasets_apart() -> None:
    aggregator = StatsAggregator()
    aggregator.take("1", STATS, "train")
    aggregator.take("2", STATS, "train")
    aggregator.take("3", STATS, "eval", "eval_counts")
    aggregator.take("4", STATS)

    summary = aggregator.summary()

    assert {prefix: stats.elements for prefix, stats in summary.datasets.items()} == {
        "train": 16, "eval": 8, "": 8,
    }  # fmt: skip
    assert {tag: each.count for tag, each in summary.edges.items()} == {
        "train::a": 2, "eval::a": 1, "a": 1,
    }  # fmt: skip
    assert summary.counters == {"train::n": 128, "eval_counts::n": 64, "n": 64}
    assert summary.elements == summary.total.elements == 32
    assert summary.errors == 4


def test_counts_are_added_and_what_is_the_process_own_is_not() -> None:
    both = added([STATS, STATS])

    assert both == replace(
        STATS,
        workers=4,
        elements=16,
        errors=2,
        restarts=2,
        tasks=6,
        copies=2,
        nbytes=128,
        wall_s=8.0,
        waited_s=4.0,
        own_s=2.0,
        outside_s=2.0,
        waits=histogram(0.5, 1.5, 0.5, 1.5),
        cpu_s=3.0,
        skipped={},
        stages=both.stages,
        pool=both.pool,
        edges={"a": histogram(0.5, 0.5)},
        counters={"n": 128},
    )
    (stage,) = both.stages
    (node,) = stage.nodes
    assert (stage.elements, stage.dropped, stage.errors, stage.tasks, stage.rows) == (
        16,
        4,
        2,
        6,
        22,
    )
    assert (stage.busy_s, stage.cpu_s, stage.nbytes, stage.time.count) == (9.0, 4.0, 1280, 6)
    assert (stage.in_flight, stage.ready, stage.window) == (4, 2, 8)
    assert (node.elements, node.dropped, node.busy_s, node.time.count) == (16, 4, 8.0, 4)
    assert node.calls
    assert [(each.name, each.tasks, each.busy_s) for each in both.pool] == [
        (0, 4, 4.0),
        (1, 2, 5.0),
    ]
    assert added([]).elements == 0


def test_stages_of_other_operators_stay_apart() -> None:
    other = replace(STAGE, nodes=(replace(MAP, name="map#7"),))
    elsewhere = replace(STAGE, where="consumer")

    both = added([STATS, replace(STATS, stages=(other, elsewhere))])

    assert len(both.stages) == 3


def test_it_is_left_behind_by_pickle() -> None:
    aggregator = StatsAggregator()
    aggregator.take("1", STATS)

    for again in (pickle.loads(pickle.dumps(aggregator)), copy.deepcopy(aggregator)):
        assert again.summary().iterators == 0


def test_threads_may_tell_at_once() -> None:
    aggregator = StatsAggregator()

    def tell(thread: int) -> None:
        for epoch in range(50):
            name = f"{thread}-{epoch}"
            aggregator.take(name, Stats(elements=1), str(thread % 2))
            aggregator.take(name, Stats(elements=2), str(thread % 2))
            aggregator.summary()
            aggregator.done(name)

    threads = [threading.Thread(target=tell, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    summary = aggregator.summary()
    assert (summary.iterators, summary.open, summary.elements) == (200, 0, 400)
    assert {prefix: stats.elements for prefix, stats in summary.datasets.items()} == {
        "0": 200, "1": 200,
    }  # fmt: skip


TABLE = """\
2 iterators (1 open), 16 elements

train: 8 elements, 64 B, 1 error, 1 restart, 1 private copy, 4 s (50 % waiting, 25 % at work, 25 % outside)
stage, operator  made in  elements  left out  errors   busy    mean     p50     p99
stage map#1      3 tasks         8         2       1  4.5 s   1.5 s   1.5 s   1.5 s
  map#1                          8         2            4 s  375 ms  250 ms  469 ms

edge  elements    mean     p50     p99  longest
a            1  500 ms  500 ms  500 ms   500 ms

8 elements, 0 errors

counter   sum
train::n   64"""


def test_a_summary_is_a_table() -> None:
    aggregator = StatsAggregator()
    aggregator.take("1", STATS, "train")
    aggregator.take("2", Stats(elements=8))
    aggregator.done("2")

    shown = str(aggregator.summary())

    assert sorted(shown.split("\n")) == sorted(TABLE.split("\n"))


def test_statistics_of_an_iterator_are_the_same_table() -> None:
    lines = str(STATS).split("\n")

    assert lines[0] in TABLE
    assert set(lines[1:]) <= set(TABLE.split("\n"))


def test_an_empty_summary_is_a_line() -> None:
    assert str(StatsAggregator().summary()) == "0 iterators (0 open), 0 elements"
    assert repr(StatsAggregator()) == "<StatsAggregator of 0 iterators>"


# -- what iterators tell -------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_that_goes_on_in_another_engine_is_one(workers: int) -> None:
    aggregator = StatsAggregator()
    options = Options()
    options.stats.aggregator = aggregator
    ds = Dataset.range(9).map(abs).batch(2).with_options(options)
    with ds.iterator(workers=workers) as iterator:
        next(iterator)
        iterator._engine.begun = iterator._engine.given = False
        iterator._doubt = True  # as after an interrupt, and as AUTOTUNE does it
        next(iterator)
        iterator._engine.reporter.tell()
        told = aggregator.summary()
        rest = len(list(iterator))
    summary = aggregator.summary()

    assert (told.iterators, told.open, told.elements, rest) == (1, 1, 2, 3)
    assert (summary.iterators, summary.open, summary.elements) == (1, 0, 5)


@pytest.mark.parametrize("workers", [0, 2])
def test_iterators_tell_when_they_end_and_when_they_are_closed(workers: int) -> None:
    aggregator = StatsAggregator()
    options = Options(stats=StatsOptions(aggregator=aggregator, prefix="train"))
    ds = Dataset.range(12).map(abs).latency_stats("a").batch(3).bytes_produced_stats("n")
    ds = ds.with_options(options)

    for _ in range(2):
        with ds.iterator(workers=workers) as it:
            assert len(list(it)) == 4
    with ds.iterator(workers=0) as it:
        next(it)

    summary = aggregator.summary()
    assert (summary.iterators, summary.open, summary.elements) == (3, 0, 9)
    assert summary.edges["train::a"].count == 24 + 3
    assert summary.counters == {"train::n": 9 * 24}


def test_elements_that_were_made_at_once_and_not_asked_for_are_not_counted() -> None:
    """A range gives many at once."""
    aggregator = StatsAggregator()
    ds = Dataset.range(100).with_options(Options(stats=StatsOptions(aggregator=aggregator)))

    with iter(ds) as it:
        next(it)
        assert it.stats.elements == 1
        next(it)
    assert it.stats.elements == 2

    assert aggregator.summary().elements == 2


def test_one_that_goes_to_a_state_is_counted_for_both() -> None:
    aggregator = StatsAggregator()
    ds = Dataset.range(6).with_options(Options(stats=StatsOptions(aggregator=aggregator)))

    with iter(ds) as it:
        state = it.state_dict()
        next(it)
        next(it)
        it.load_state_dict(state)
        assert len(list(it)) == 6

    assert aggregator.summary().elements == 8


def test_old_spellings_set_it() -> None:
    from tundish import experimental

    aggregator = experimental.StatsAggregator()
    ds = Dataset.range(4).apply(experimental.latency_stats("a"))
    list(ds.apply(experimental.set_stats_aggregator(aggregator, "p", "c")))

    assert aggregator.get_summary().edges["p::a"].count == 4


def test_one_may_take_of_every_iterator() -> None:
    own, everything = StatsAggregator(), StatsAggregator()
    take_of_all(everything)
    try:
        list(Dataset.range(3))
        list(Dataset.range(4).with_options(Options(stats=StatsOptions(aggregator=own))))
        list(Dataset.range(5).with_options(Options(stats=StatsOptions(aggregator=everything))))
    finally:
        take_no_more(everything)
    list(Dataset.range(6))

    assert own.summary().elements == 4
    assert everything.summary().elements == 12
    assert aggregators_of(None) == ()


class Broken(StatsAggregator):
    """Somebody's own, with a mistake in it."""

    def take(self, *_: object) -> None:
        raise ValueError("no such table")


def watched_by(aggregator: StatsAggregator, workers: int) -> Dataset:
    options = Options(workers=workers)
    options.stats.aggregator = aggregator
    return Dataset.range(60).map(abs).with_options(options)


@pytest.mark.parametrize("workers", [0, 2])
def test_one_that_raises_is_told_no_more(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "EVERY_S", 0.0)
    dataset = watched_by(Broken(), workers)
    with pytest.warns(
        RuntimeWarning, match="a Broken gets no more reports .* ValueError: no such table"
    ) as told:
        assert list(dataset) == list(range(60))
    assert len(told) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_where_warnings_are_errors_nothing_is_lost(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "EVERY_S", 0.0)
    before = Resources()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("error")

        assert list(watched_by(Broken(), workers)) == list(range(60))

    assert ["a Broken gets no more reports" in str(each.message) for each in told] == [True]
    before.assert_back()


def test_it_may_be_asked_by_whoever_interrupts_it() -> None:
    """A signal's handler runs in the thread that is telling."""
    aggregator = StatsAggregator()
    with aggregator._lock:
        assert aggregator.summary().elements == 0
