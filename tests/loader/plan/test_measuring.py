"""What is measured: arguments, options, and plans rebuilt with edges and without."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import tundish as td
from tundish import Dataset, StatsAggregator, StatsOptions
from tundish.loader.operators.measuring import (
    BytesProduced,
    Latency,
    with_all_edges,
    without_measuring,
)
from tundish.loader.plan.node import walk
from tundish.loader.protocols.operator import Operator
from tundish.loader.protocols.specs import static_spec
from tundish.loader.run.ranges import range_of


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
