"""Statistics count the elements that there are, whoever computes them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.laws.sampling import some, used_by

from tundish import Dataset, Options, set_seed
from tundish.testing import collect
from tundish.testing.functions import Draw, Fail, Keep
from tundish.testing.registry import FIRST, OTHERS, Case

if TYPE_CHECKING:
    from tundish.loader.watch.stats import Stats

Counts = dict[str, tuple[int, int, int]]


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Seeds that nobody gave are the same in each run."""
    set_seed(7)
    yield
    set_seed(None)


def counted(dataset: Dataset, workers: int) -> tuple[int, Stats]:
    """Take everything; how much there was, and what was counted."""
    with dataset.iterator(workers=workers) as iterator:
        return len(collect(iterator)), iterator.stats


def by_stage(stats: Stats) -> Counts:
    return {stage.name: (stage.elements, stage.dropped, stage.errors) for stage in stats.stages}


def is_read_to_the_end(case: Case) -> bool:
    """Return True if no operator stops while more could be taken: then workers are ahead of it.

    Nor may two readers share one snapshot that is being written: which of them computes is a matter
    of who is ahead.
    """
    if case.name.startswith("snapshot-zip"):
        return False
    return case.limit == Case.limit and not {"take", "take_while"} & used_by(case).keys()


@pytest.mark.parametrize(
    "case",
    [*filter(is_read_to_the_end, FIRST), *some(16, filter(is_read_to_the_end, OTHERS))],
    ids=lambda case: case.name,
)
def test_counts_are_those_of_the_elements(case: Case) -> None:
    got, alone = counted(case.build(), 0)
    also, others = counted(case.build(), 2)
    expected, found = by_stage(alone), by_stage(others)
    common = expected.keys() & found.keys()

    assert (alone.elements + alone.errors, others.elements + others.errors) == (got, also)
    assert {name: found[name] for name in common} == {name: expected[name] for name in common}


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_each_operator_of_a_stage_is_counted(workers: int) -> None:
    """10 of 100 elements fail in the first map, a third of the rest is kept, twice."""
    kept = [x for x in range(100) if x % 10 != 3]
    first = [x for x in kept if x % 3 == 0]
    second = [x for x in first if x % 2 == 0]
    ds = (
        Dataset.range(100)
        .map(lambda x: 1 // 0 if x % 10 == 3 else x)
        .filter(lambda x: x % 3 == 0)
        .map(lambda x: x)
        .filter(lambda x: x % 2 == 0)
    )
    _, stats = counted(ds, workers)
    nodes = {n.name: (n.elements, n.dropped, n.errors) for s in stats.stages for n in s.nodes}

    assert nodes == {
        "range#0": (100, 0, 0),
        "map#1": (90, 0, 10),
        "filter#2": (len(first), 90 - len(first), 0),
        "map#3": (len(first), 0, 0),
        "filter#4": (len(second), len(first) - len(second), 0),
    }


def test_a_worker_that_dies_counts_nothing_twice() -> None:
    ds = Dataset.range(300).map(Draw(1), seed=1).filter(Keep(1)).map(Fail(1, 10))
    _, expected = counted(ds, 0)
    with ds.iterator(workers=2) as iterator:
        outcomes = collect(iterator, limit=40)
        for pid in iterator.worker_pids():
            os.kill(pid, signal.SIGKILL)
        outcomes += collect(iterator)
        stats = iterator.stats

    assert stats.restarts
    assert len(outcomes) == stats.elements + stats.errors
    assert by_stage(stats) == by_stage(expected)
    assert [n.elements for s in stats.stages for n in s.nodes] == [
        n.elements for s in expected.stages for n in s.nodes
    ]


def test_nothing_is_timed_when_it_is_off() -> None:
    options = Options()
    options.stats.enabled = False
    _, stats = counted(Dataset.range(100).map(Draw(1), seed=1).with_options(options), 2)

    assert not stats.watched
    assert stats.stages[0].elements == 100
    assert [node.time.count for stage in stats.stages for node in stage.nodes] == [0, 0]
