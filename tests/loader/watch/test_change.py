"""The difference of two looks at one iterator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.loader.watch.situations import node, stage, stats, times

from tundish.loader.watch.adding import between
from tundish.loader.watch.stats import Stats


def test_counts_and_seconds_are_differences_and_states_are_the_later_ones() -> None:
    early = stats(stage(node("map#1", 0.5, 10)), workers=2, elements=10, waited_s=4.0, own_s=1.0)
    late = stats(stage(node("map#1", 0.5, 40)), workers=3, elements=40, waited_s=7.0, own_s=2.0)
    both = between(early, replace(late, used_bytes=77))

    assert (both.elements, both.workers, both.used_bytes) == (30, 3, 77)
    assert (both.wall_s, both.waited_s, both.own_s) == (4.0, 3.0, 1.0)
    (computed,) = both.stages
    assert (computed.elements, computed.rows, computed.busy_s) == (30, 30, 15.0)
    assert computed.nodes[0].busy_s == 15.0
    assert [worker.name for worker in both.pool] == [0, 1, 2]
    assert both.pool[0].alive_s == 4.0


def test_a_histogram_loses_what_the_earlier_one_had() -> None:
    early = replace(Stats(), waits=times((0.001, 10), (5.0, 1)))
    late = replace(Stats(), waits=times((0.001, 30), (5.0, 1)))
    waits = between(early, late).waits

    assert waits.count == 20
    assert 0.0008 < waits.mean_s < 0.0012
    assert waits.most_s < 0.002


def test_nothing_between_is_nothing() -> None:
    same = stats(stage(node("map#1", 0.5, 10)), workers=2, elements=10, waited_s=4.0, own_s=1.0)

    assert between(same, same).waits.count == 0
    assert between(same, same).elements == 0


def test_a_stage_that_is_new_is_all_new() -> None:
    late = stats(stage(node("map#1", 0.5, 40)), workers=2, elements=40, waited_s=7.0, own_s=2.0)

    assert between(Stats(), late).stages == late.stages


def test_no_time_is_below_zero_though_a_sample_said_more_before() -> None:
    early = replace(Stats(), wall_s=1.0, waited_s=0.1, own_s=0.6, outside_s=0.3)
    late = replace(Stats(), wall_s=3.0, waited_s=0.5, own_s=2.4, outside_s=0.1)
    both = between(early, late)

    assert both.outside_s == 0
    assert both.waited_s + both.own_s == pytest.approx(both.wall_s)
    assert both.own_s == pytest.approx(4.5 * both.waited_s)
