"""An iterator that never waits for workers: elements, positions and what it says of waits are those of any other."""

from __future__ import annotations

import json
import select
import time
from typing import Any

import pytest

import tundish as td
from tundish.loader.run.polled import NotReady, PolledIterator


def slow(x: Any) -> Any:
    """Take a while."""
    time.sleep(0.005)
    return x * 2


def polled(ds: td.Dataset) -> PolledIterator:
    """Return a dataset's iterator, from the start."""
    return PolledIterator(ds._node, iteration=0, seed=0, graph_seed=None, position=None)


def waited_for(it: PolledIterator) -> Any:
    """Return the next element, waiting for what it names."""
    while True:
        try:
            return it.next()
        except NotReady:
            wakes = it.wakes()
            assert wakes is not None
            assert select.select([wakes], [], [], 60.0)[0]
            it.pump()


@pytest.mark.parametrize("workers", [0, 2])
def test_elements_and_positions_are_those_of_the_iterator(workers: int) -> None:
    ds = (
        td.Dataset.range(40)
        .shuffle(7, seed=1)
        .map(slow, num_parallel_calls=workers or None)
        .batch(3)
    )
    it, later = polled(ds), []
    with ds.iterator(iteration=0, workers=0) as plain:
        for element in plain:
            assert waited_for(it).tolist() == element.tolist()
            later.append((it.marked(), plain.state_dict()["position"]))
        with pytest.raises(StopIteration):
            waited_for(it)
        later.append((it.marked(), plain.state_dict()["position"]))
    it.close()
    for mark, position in later:  # whatever has been computed meanwhile
        assert json.dumps(mark()) == json.dumps(position)


def test_time_until_something_is_ready_is_a_wait_for_workers() -> None:
    it = polled(td.Dataset.range(1000).map(slow, num_parallel_calls=1).batch(4))
    for _ in range(20):
        waited_for(it)
    stats = it.stats
    it.close()
    assert stats.waited_s > 0.5 * stats.wall_s
