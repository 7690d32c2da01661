"""latency_stats and bytes_produced_stats."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import tundish as td
from tundish import Dataset, Iterator, Options, StatsAggregator, StatsOptions
from tundish.loader.operators.measuring import (
    BytesProduced,
    Latency,
    with_all_edges,
    without_measuring,
)
from tundish.loader.plan.node import walk
from tundish.loader.protocols.operator import Operator
from tundish.loader.protocols.specs import static_spec
from tundish.loader.run.evaluating.ranges import range_of
from tundish.loader.watch.stats import Stats
from tundish.testing.compare import collect, difference
from tundish.testing.functions import Keep, Tag
from tundish.testing.registry import CASES, Case


def plan(dataset: Dataset) -> Operator:
    return dataset._node


def names(node: Operator) -> list[str]:
    return [each.label for each in walk(node)]


@pytest.mark.parametrize("method", ["latency_stats", "bytes_produced_stats"])
@pytest.mark.parametrize(
    ("tag", "error", "says"),
    [
        (None, TypeError, "tag must be a str, not NoneType"),
        (3, TypeError, r"tag must be a str, not int \(3\)"),
        ("", ValueError, "tag must not be empty"),
    ],
)
def test_a_tag_is_a_str(method: str, tag: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        getattr(Dataset.range(3), method)(tag)
    with pytest.raises(error, match=says):
        Dataset.range(3).apply(getattr(td.experimental, method)(tag))


def test_the_older_spelling_is_the_method() -> None:
    ds = Dataset.range(3).apply(td.experimental.latency_stats("a"))
    ds = ds.apply(td.experimental.bytes_produced_stats("b"))

    assert names(plan(ds)) == ["range", "latency_stats", "bytes_produced_stats"]
    assert [getattr(node, "tag", None) for node in walk(plan(ds))] == [None, "a", "b"]


def test_a_plan_tells_as_much_as_without() -> None:
    ds = (
        Dataset.range(10).latency_stats("a").batch(5, drop_remainder=True).bytes_produced_stats("b")
    )

    assert len(ds) == 2
    assert ds.element_spec == static_spec(plan(Dataset.range(10).batch(5, drop_remainder=True)))
    assert ds[1].tolist() == [5, 6, 7, 8, 9]
    assert plan(ds.unbatch()).cardinality == 10
    assert [int(x) for x in Dataset.range(6).latency_stats("a").shuffle(None, seed=1)] == [
        int(x) for x in Dataset.range(6).shuffle(None, seed=1)
    ]


def test_a_plan_is_cut_into_ranges_with_it() -> None:
    part = range_of(plan(Dataset.range(10).latency_stats("a").batch(1).unbatch()), 1, 2)

    assert [int(x) for x in Dataset._of(part)] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("name", "value", "error", "says"),
    [
        ("enabled", 1, TypeError, "enabled"),
        ("aggregator", "x", TypeError, "aggregator must be a td.StatsAggregator, not str"),
        ("prefix", 3, TypeError, "prefix must be a str, not int"),
        ("counter_prefix", b"x", TypeError, "counter_prefix must be a str, not bytes"),
        ("latency_all_edges", "yes", TypeError, "latency_all_edges"),
        ("trace", 7, TypeError, "trace must be a path, not int"),
        ("trace", "", ValueError, "trace must be the path of a file, not ''"),
    ],
)
def test_settings_are_checked(name: str, value: Any, error: type[Exception], says: str) -> None:
    options = StatsOptions()

    with pytest.raises(error, match=says):
        setattr(options, name, value)
    with pytest.raises(error, match=says):
        StatsOptions(**{name: value})
    assert options.given() == {}


def test_options_are_set_as_in_tf_data(tmp_path: Path) -> None:
    aggregator = StatsAggregator()
    options = td.Options()
    options.experimental_stats.aggregator = aggregator  # type: ignore[attr-defined]  # an old spelling
    options.stats.prefix = "train"
    options.stats.trace = tmp_path / "trace"  # type: ignore[assignment]  # any path will do

    ds = Dataset.range(3).with_options(options)

    assert ds.options().stats.aggregator is aggregator
    assert ds.options().stats.prefix == "train"
    assert ds.options().stats.trace == os.fspath(tmp_path / "trace")
    with pytest.raises(AttributeError, match="did you mean latency_all_edges"):
        options.stats.latency_all_edge = True


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_options_leave_what_an_aggregator_holds_behind(pickler: Any) -> None:
    aggregator = StatsAggregator()
    options = td.Options(stats=StatsOptions(aggregator=aggregator))
    list(Dataset.range(3).with_options(options))
    assert aggregator.summary().iterators == 1

    again = pickler.loads(pickler.dumps(options))

    assert again.stats.aggregator.summary().iterators == 0


def test_every_operator_gets_an_edge() -> None:
    other = Dataset.range(2).map(abs)
    ds = Dataset.range(5).map(abs).prefetch(1).latency_stats("own").concatenate(other).batch(2)

    edged = with_all_edges(plan(ds))

    assert names(edged) == [
        *("range", "latency_stats", "map", "latency_stats", "prefetch", "latency_stats"),
        *("range", "latency_stats", "map", "latency_stats"),
        *("concatenate", "latency_stats", "batch", "latency_stats"),
    ]
    assert [node.tag for node in walk(edged) if isinstance(node, Latency)].count("own") == 1
    bare = ["range", "map", "prefetch", "range", "map", "concatenate", "batch"]
    assert names(without_measuring(edged)) == bare


def test_a_plan_is_rebuilt_once() -> None:
    """Caches are kept by node: iterators of one plan share them."""
    ds = Dataset.range(5).map(abs).cache().latency_stats("a").take(3)

    assert with_all_edges(plan(ds)) is with_all_edges(plan(ds))
    assert without_measuring(plan(ds)) is without_measuring(plan(ds))


def test_nothing_is_rebuilt_where_nothing_measures() -> None:
    node = plan(Dataset.range(5).map(abs).batch(2))

    assert without_measuring(node) is node


def test_a_node_that_two_operators_share_stays_one() -> None:
    shared = Dataset.range(5).map(abs).bytes_produced_stats("a")
    node = plan(Dataset.zip(shared, shared.batch(1)))

    edged, bare = with_all_edges(node), without_measuring(node)

    assert names(edged).count("range") == names(edged).count("bytes_produced_stats") == 1
    assert names(bare) == ["range", "map", "batch", "zip"]
    assert not [each for each in walk(bare) if isinstance(each, BytesProduced)]


EDGES = Options(stats=StatsOptions(latency_all_edges=True))
WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])


def counts(stats: Stats) -> dict[str, int]:
    return {tag: histogram.count for tag, histogram in stats.edges.items()}


def run(ds: Dataset, workers: int, **more: Any) -> tuple[list[Any], Stats]:
    with ds.iterator(workers=workers, **more) as it:
        return list(it), it.stats


def even(x: int) -> bool:
    return x % 2 == 0


def inner(x: int) -> Dataset:
    return Dataset.range(int(x)).latency_stats("inner")


def fail_at_three(x: int) -> int:
    if x == 3:
        raise ValueError("three")
    return x


# -- every element once ----------------------------------------------------------------------------


@WORKERS
def test_each_element_that_passes_is_counted_once(workers: int) -> None:
    ds = (
        Dataset.range(50)
        .latency_stats("read")
        .map(Tag(1))
        .latency_stats("mapped")
        .filter(even)
        .latency_stats("even")
        .batch(4)
        .latency_stats("batches")
        .prefetch(2)
        .latency_stats("ahead")
        .unbatch()
        .latency_stats("rows")
    )

    elements, stats = run(ds, workers)

    rows = len(elements)
    batches = -(-rows // 4)
    assert counts(stats) == {
        "read": 50, "mapped": 50, "even": rows, "batches": batches, "ahead": batches, "rows": rows,
    }  # fmt: skip


@WORKERS
def test_batches_of_what_cannot_fail_are_counted(workers: int) -> None:
    """Such batches are made of positions, with their rows."""
    ds = Dataset.range(10).latency_stats("rows").shuffle(None, seed=1).batch(5)

    assert counts(run(ds.latency_stats("batches"), workers)[1]) == {"rows": 10, "batches": 2}


@WORKERS
def test_computed_elements_and_others_are_counted_alike(workers: int) -> None:
    """Some elements of one stream are computed upstream, and some where it ends."""
    part = Dataset.range(9).map(Tag(1)).latency_stats("part")
    ds = Dataset.range(20).filter(even).concatenate(part).latency_stats("all").enumerate()
    ds = ds.latency_stats("numbered").shuffle(5, seed=1).latency_stats("shuffled")

    elements, stats = run(ds, workers)

    assert len(elements) == 19
    assert counts(stats) == {"part": 9, "all": 19, "numbered": 19, "shuffled": 19}


@WORKERS
def test_inner_datasets_count_together(workers: int) -> None:
    ds = Dataset.range(6).flat_map(inner).latency_stats("outer")

    assert counts(run(ds, workers)[1]) == {"inner": 15, "outer": 15}
    assert counts(run(Dataset.range(6).interleave(inner, 3), workers)[1]) == {"inner": 15}


@WORKERS
def test_a_cache_is_filled_once(workers: int) -> None:
    ds = Dataset.range(7).map(Tag(1)).latency_stats("made").cache().latency_stats("kept").repeat(3)

    assert counts(run(ds, workers)[1]) == {"made": 7, "kept": 21}


@WORKERS
def test_what_failed_or_was_left_out_does_not_count(workers: int) -> None:
    ds = Dataset.range(6).map(fail_at_three, on_error="skip").latency_stats("skipped")
    assert counts(run(ds, workers)[1]) == {"skipped": 5}

    with (
        Dataset.range(6).map(fail_at_three).latency_stats("failed").iterator(workers=workers) as it
    ):
        found = collect(it, limit=20)
        assert len(found) == 6
        assert counts(it.stats) == {"failed": 5}


@WORKERS
def test_an_element_that_is_tried_again_counts_once(workers: int, tmp_path: Path) -> None:
    def once(x: int) -> int:
        try:
            (tmp_path / str(x)).touch(exist_ok=False)
        except FileExistsError:
            return x
        raise OSError("the first time")

    ds = Dataset.range(8).latency_stats("read").map(once, on_error="retry").latency_stats("mapped")

    assert counts(run(ds, workers)[1]) == {"read": 8, "mapped": 8}


def test_what_died_with_a_worker_counts_once(tmp_path: Path) -> None:
    def deadly(x: int) -> int:
        if x == 5 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    ds = Dataset.range(40).latency_stats("read").bytes_produced_stats("read").map(deadly).batch(4)

    elements, stats = run(ds.latency_stats("batches"), 2)

    assert len(elements) == 10
    assert stats.restarts == 1
    assert counts(stats) == {"read": 40, "batches": 10}
    assert stats.counters == {"read": 320}


def test_elements_of_different_layouts_are_made_again_and_count_once() -> None:
    def uneven(x: int) -> np.ndarray:
        return np.zeros(int(x) % 5)

    ds = Dataset.range(200).latency_stats("read").map(uneven).bytes_produced_stats("made")

    _, stats = run(ds, 2)

    assert counts(stats) == {"read": 200}
    assert stats.counters == {"made": 200 * 2 * 8}


# -- restored ---------------------------------------------------------------------------------------


def rest(it: Iterator, state: Any) -> Stats:
    it.load_state_dict(state)
    list(it)
    return it.stats


@pytest.mark.parametrize("at", [0, 1, 4, 9, 13])
def test_what_is_made_again_after_a_restore_does_not_count_again(at: int) -> None:
    ds = (
        Dataset.range(30)
        .map(Tag(1))
        .latency_stats("made")
        .filter(Keep(1))
        .latency_stats("kept")
        .shuffle(6, seed=1)
        .latency_stats("given")
    )
    whole = counts(run(ds, 0)[1])
    with ds.iterator(workers=0) as it:
        for _ in range(at):
            next(it)
        first, state = counts(it.stats), it.state_dict()

    with ds.iterator(workers=0) as it:
        second = counts(rest(it, state))

    both = {tag: first.get(tag, 0) + second.get(tag, 0) for tag in whole}
    assert both == whole


def evens(x: int) -> Dataset:
    return Dataset.range(2 * int(x)).filter(even).latency_stats("inner")


@pytest.mark.parametrize("function", [inner, evens])
def test_what_is_left_out_after_a_restore_does_not_count_again(function: Any) -> None:
    ds = Dataset.range(5).flat_map(function)
    with ds.iterator(workers=0) as it:
        for _ in range(8):
            next(it)
        state = it.state_dict()

    with ds.iterator(workers=0) as it:
        assert counts(rest(it, state)) == {"inner": 2}


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.name.split("-")[0] == "map"], ids=lambda c: c.name
)
def test_states_fit_with_it_and_without(case: Case) -> None:
    bare, edged = case.build(), case.build().latency_stats("a").with_options(EDGES)
    with bare.iterator(workers=0) as it:
        collect(it, limit=2)
        state = it.state_dict()
        expected = collect(it, limit=case.limit)
    with edged.iterator(workers=0) as it:
        collect(it, limit=2)
        theirs = it.state_dict()

    assert theirs["plan"] == state["plan"]
    assert theirs["position"] == state["position"]
    with edged.iterator(workers=0) as it:
        it.load_state_dict(state)
        assert difference(expected, collect(it, limit=case.limit), ("bare", "edged")) is None


def test_counts_of_skips_keep_their_names() -> None:
    bare = Dataset.range(6).map(fail_at_three, on_error="skip")
    edged = Dataset.range(6).latency_stats("a").prefetch(1).map(fail_at_three, on_error="skip")

    assert run(bare, 0)[1].skipped == run(edged, 0)[1].skipped == {"map#1": 1}


# -- how long, how large -----------------------------------------------------------------------------


@WORKERS
def test_measured_is_what_stands_below(workers: int) -> None:
    def slow(x: int) -> int:
        time.sleep(0.004)
        return x

    ds = Dataset.range(6).latency_stats("read").map(slow).latency_stats("mapped")
    ds = ds.filter(even).latency_stats("even").batch(2).latency_stats("batches")

    stats = run(ds, workers)[1]

    assert stats.edges["read"].least_s < 0.004
    assert stats.edges["mapped"].least_s >= 0.004
    assert stats.edges["even"].least_s >= 0.004
    assert stats.edges["even"].total_s >= stats.edges["even"].count * 0.004


def test_behind_what_holds_elements_it_is_the_wait() -> None:
    def slow(x: int) -> int:
        time.sleep(0.004)
        return x

    stats = run(Dataset.range(6).map(slow).batch(3).latency_stats("batches"), 0)[1]

    assert stats.edges["batches"].least_s >= 3 * 0.004


@WORKERS
def test_bytes_are_those_of_the_elements(workers: int) -> None:
    def element(x: int) -> dict[str, Any]:
        return {"a": np.zeros((int(x), 2), np.float32), "b": "é" * int(x), "c": (x, b"xyz")}

    ds = Dataset.range(5).map(element).bytes_produced_stats("made")
    ds = ds.padded_batch(2, padding_values=None).bytes_produced_stats("padded")

    stats = run(ds, workers)[1]

    assert stats.counters["made"] == sum(8 * x + 2 * x + 8 + 3 for x in range(5))
    # Filled up to the longest of each batch: 1, 3 and 4 rows.
    assert stats.counters["padded"] == 8 * (2 * 1 + 2 * 3 + 4) + 2 * 10 + 5 * (8 + 3)


# -- options -----------------------------------------------------------------------------------------


@WORKERS
def test_all_edges_are_named_after_operators(workers: int) -> None:
    ds = Dataset.range(12).map(Tag(1)).prefetch(1).filter(even).batch(3).with_options(EDGES)

    elements, stats = run(ds, workers)

    assert counts(stats) == {
        "record_latency_range#0": 12,
        "record_latency_map#1": 12,
        "record_latency_filter#2": sum(map(len, elements)),
        "record_latency_batch#3": len(elements),
    }
    assert {node.name for stage in stats.stages for node in stage.nodes} <= {
        "range#0", "map#1", "filter#2", "batch#3",
    }  # fmt: skip


def test_a_cache_is_shared_by_iterators_with_edges() -> None:
    calls: list[int] = []

    def noted(x: int) -> int:
        calls.append(int(x))
        return x

    ds = Dataset.range(4).map(noted).cache().batch(2).with_options(EDGES)

    assert [run(ds, 0)[0][0].tolist() for _ in range(3)] == [[0, 1]] * 3
    assert calls == [0, 1, 2, 3]


@WORKERS
def test_where_nothing_is_watched_nothing_is_measured(workers: int) -> None:
    off = Options(stats=StatsOptions(enabled=False))
    ds = Dataset.range(6).flat_map(inner).latency_stats("a").bytes_produced_stats("b")

    elements, stats = run(ds.with_options(off), workers)

    assert len(elements) == 15
    assert (stats.edges, stats.counters) == ({}, {})


def test_all_edges_change_no_element_of_any_operator() -> None:
    for case in CASES:
        name = case.name.split("-")[0]
        if case.name != name or not case.modelled:
            continue
        edged = case.build().with_options(EDGES)
        with edged.iterator(workers=0) as it:
            found = collect(it, limit=case.limit, exact=False)
        told = difference(case.expected(0), found, ("reference", "with edges"))
        assert told is None, f"{case.name}: {told}"
