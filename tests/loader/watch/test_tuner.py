"""AUTOTUNE: near the best fixed number, soon, and without swinging; on made-up pipelines in made-up time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.loader.watch.simulated import Simulation, Work, rate
from tests.loader.watch.workloads import MS, SHORT, WORKLOADS

from tundish.loader.watch.histogram import Durations
from tundish.loader.watch.throughput import (
    EventSample,
    Measure,
    computed_per_s,
    predicted,
    warranted,
    window,
)
from tundish.loader.watch.tuner import Tuner, most_changes

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 32
SWEEP = (0, 1, 2, 4, 8, 16, 32)
WITHIN = 0.95
LIMIT_S = 60.0


def settled(work: Work, cores: int, *, seed: int = 0, noise: float = 0.0) -> Simulation:
    """Run a workload until its tuner has made up its mind."""
    tuner = Tuner(cores, cores, 0, MOST)
    simulation = Simulation(work, cores, cores, tuner, seed=seed, noise=noise)
    until = 0.0
    while not tuner.done:
        until += 0.5
        assert until < LIMIT_S, simulation.changed
        simulation.run(until)
    return simulation


def sample(workers: int = 2, **times: float) -> EventSample:
    usual = EventSample(0.1, 10, 0.09, 0.01, 0.0, 0.2, 0.0, workers)
    return replace(usual, **times)  # type: ignore[arg-type]  # delivered is an int


# -- near the best -------------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "work"), WORKLOADS, ids=[work.name for _, work in WORKLOADS])
def test_near_the_best_fixed_number(cores: int, work: Work) -> None:
    simulation = settled(work, cores)
    assert simulation.tuner is not None
    chosen = simulation.tuner.workers
    rates = {workers: rate(work, cores, workers) for workers in {*SWEEP, chosen}}
    assert rates[chosen] >= WITHIN * max(rates.values()), (chosen, rates, simulation.changed)
    assert len(simulation.changed) <= most_changes(MOST)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["decoding", "waiting and computing", "a disk for one"])
def test_a_noisy_machine_changes_little(name: str, seed: int) -> None:
    cores, work = next(each for each in WORKLOADS if each[1].name == name)
    simulation = settled(work, cores, seed=seed, noise=0.1)
    assert simulation.tuner is not None
    rates = {n: rate(work, cores, n) for n in {*SWEEP, simulation.tuner.workers}}
    assert rates[simulation.tuner.workers] >= 0.9 * max(rates.values())
    changed = len(simulation.changed)
    simulation.run(simulation.now + 30)
    assert len(simulation.changed) == changed  # it stays where it is


def test_waiting_functions_get_many_workers_at_once() -> None:
    simulation = settled(Work("waiting", wait_s=40 * MS), 2)
    ((when, workers),) = simulation.changed
    assert workers >= 30
    assert when < 1.0


def test_a_core_each_is_left_alone() -> None:
    assert settled(Work("decoding", cpu_s=16 * MS), 8).changed == []


def test_idle_workers_go_where_many_are() -> None:
    work = Work("slow consumer", cpu_s=0.25 * MS, thinks_s=5 * MS)
    ((_, workers),) = settled(work, 16).changed
    assert workers <= 2


# -- cores that other programs use ---------------------------------------------------------------


def most_chosen(work: Work, cores: int, *, others: int, workers: int = 0) -> tuple[int, int]:
    """The most workers at any time in half a minute, and how many there are then."""
    workers = workers or cores
    tuner = Tuner(cores, workers, 1, MOST)
    simulation = Simulation(work, cores, workers, tuner, others=others)
    simulation.run(30.0)
    return max([workers, *(count for _, count in simulation.changed)]), tuner.workers


@pytest.mark.parametrize("others", [1, 2, 8])
@pytest.mark.parametrize("spread", ["even", "exponential", "stragglers"])
def test_computing_gets_no_more_workers_than_cores(others: int, spread: str) -> None:
    """More would be faster: they would take the cores from other programs."""
    work = Work("computing", cpu_s=16 * MS, spread=spread)
    assert rate(work, 2, 2, others) < 0.9 * rate(work, 2, 16, others)
    assert most_chosen(work, 2, others=others) == (2, 2)


def test_computing_gives_back_the_workers_that_it_was_given() -> None:
    assert most_chosen(Work("computing", cpu_s=16 * MS), 2, others=2, workers=16) == (16, 2)


def test_waiting_gets_many_workers_beside_other_programs() -> None:
    _, workers = most_chosen(Work("waiting", wait_s=40 * MS, cpu_s=0.1 * MS), 2, others=2)
    assert workers >= 16


@pytest.mark.parametrize(("wait_s", "most"), [(4 * MS, 5), (16 * MS, 7), (64 * MS, 17)])
def test_a_mix_gets_what_its_waiting_warrants(wait_s: float, most: int) -> None:
    alone = warranted(wait_s, 16 * MS, 2, MOST)
    assert 3 <= alone <= most
    reached, workers = most_chosen(Work("both", wait_s=wait_s, cpu_s=16 * MS), 2, others=2)
    assert 2 < workers <= reached <= alone


# -- what lasts a while, and what does not -----------------------------------------------------------


def test_a_pause_of_the_consumer_is_no_reason() -> None:
    work = Work("waiting", wait_s=30 * MS, takes_s=5 * MS)
    steady = settled(work, 2)
    pausing = settled(replace(work, pause=(6.0, 10.0)), 2)
    pausing.run(120.0)
    assert [n for _, n in pausing.changed] == [n for _, n in steady.changed]


def test_other_work_is_noticed() -> None:
    now, then = Work("decoding", cpu_s=16 * MS), Work("waiting", wait_s=0.2, rows=2)
    tuner = Tuner(2, 2, 0, MOST)
    simulation = Simulation(replace(now, later=(10.0, then)), 2, 2, tuner)
    simulation.run(10.0)
    assert simulation.changed == []
    simulation.run(30.0)
    assert tuner.workers >= 30
    assert len(simulation.changed) <= most_changes(MOST, 20.0)


def test_work_that_swings_is_followed_less_and_less() -> None:
    tuner = Tuner(2, 2, 1, 8)
    works = [Work("waiting", wait_s=0.2, rows=2), Work("slow", cpu_s=0.01, takes_s=0.2)]
    simulation = Simulation(works[0], 2, 2, tuner)
    for k in range(40):  # every 30 s for 1200 s
        simulation.work = works[k % 2]
        simulation.run(30.0 * (k + 1))
    times = [at for at, _ in simulation.changed]
    assert 3 <= len(times) <= 12
    assert max(times) < 400


# -- the consumer's process ------------------------------------------------------------------------------


def test_without_workers_where_that_is_better() -> None:
    simulation = settled(SHORT, 2)
    assert simulation.changed[-1][1] == 0
    simulation.run(simulation.now + 5)
    assert simulation.changed[-1][1] == 0


def test_without_workers_is_tried_once() -> None:
    work = Work("short", cpu_s=0.6 * MS, alone_s=1.5 * MS, functions_s=0.05 * MS)
    simulation = settled(work, 2)
    assert [n for _, n in simulation.changed] == [0, 2]
    simulation.work = replace(work, thinks_s=5 * MS)
    simulation.run(simulation.now + 10)
    assert 0 not in [n for _, n in simulation.changed[2:]]


@pytest.mark.parametrize(("least", "functions_s"), [(1, 0.03 * MS), (0, 1.0)])
def test_without_workers_is_not_tried(least: int, functions_s: float) -> None:
    work = replace(SHORT, functions_s=functions_s)
    simulation = Simulation(work, 2, 2, Tuner(2, 2, least, MOST))
    simulation.run(5.0)
    assert 0 not in [n for _, n in simulation.changed]


def test_functions_that_nobody_timed_stay_in_workers() -> None:
    tuner = Tuner(2, 2, 0, MOST)
    asked = {tuner.observe(replace(sample(cpu_s=0.2), functions_s=None)) for _ in range(300)}
    assert asked == {None}


def test_out_of_the_consumers_process_when_functions_become_slow() -> None:
    simulation = settled(SHORT, 2)
    assert simulation.changed[-1][1] == 0
    simulation.work = Work("waiting", wait_s=0.2, rows=2)
    simulation.run(simulation.now + 15)
    assert simulation.changed[-1][1] >= 30


def test_none_are_tried_again_when_the_work_was_another() -> None:
    simulation = settled(SHORT, 2)
    simulation.work = Work("waiting", wait_s=0.2, rows=2)
    simulation.run(simulation.now + 15)
    assert simulation.changed[-1][1] >= 30
    simulation.work = SHORT
    simulation.run(simulation.now + 40)
    assert simulation.changed[-1][1] == 0


def test_pauses_that_were_not_seen_are_no_other_work() -> None:
    """Without workers only some calls are measured: what is between others counts as their own."""
    tuner = settled(SHORT, 2).tuner
    assert tuner is not None
    assert tuner.workers == 0
    usual = sample(0, delivered=1250, waited_s=0.1, own_s=0.0, busy_s=0.0)
    for _ in range(100):
        assert tuner.observe(usual) is None
    asked = [
        tuner.observe(replace(usual, seconds=1.1, waited_s=1.1) if n % 5 == 0 else usual)
        for n in range(500)
    ]
    assert asked == [None] * 500


# -- the bound -----------------------------------------------------------------------------------------------


def told(
    tuner: Tuner, each_s: float, *, waits: float = 0.99, count: int = 200, short: bool = False
) -> int | None:
    """Tell a tuner for a while that elements take so long, until it asks for something."""
    for _ in range(count):
        one = sample(
            tuner.workers,
            seconds=10 * each_s,
            waited_s=10 * each_s * waits,
            own_s=10 * each_s * (1 - waits),
            busy_s=10 * each_s * tuner.workers,
        )
        if short:
            one = replace(one, functions_s=0.01 * one.seconds)
        asked = tuner.observe(one)
        if asked is not None:
            return asked
    return None


def test_what_was_rejected_is_not_tried_again() -> None:
    tuner = Tuner(2, 2, 1, MOST)
    asked = []
    while (wanted := told(tuner, 0.02 if tuner.workers == 2 else 0.03)) is not None:
        asked.append(wanted)
    assert asked == [32, 2, 8, 2]


def test_more_that_gives_no_more_is_rejected_for_good() -> None:
    tuner = Tuner(2, 2, 1, MOST)
    asked = []
    while (wanted := told(tuner, 0.02)) is not None:
        asked.append(wanted)
    assert asked == [32, 2]


def test_none_after_all_where_more_did_not_come_true() -> None:
    tuner = Tuner(2, 2, 0, MOST)
    asked = []
    while (wanted := told(tuner, 0.02 if tuner.workers else 0.018, short=True)) is not None:
        asked.append(wanted)
    assert asked == [0, 2, 32, 2, 0]


def test_a_pool_that_cannot_grow_bounds_the_search() -> None:
    tuner = Tuner(2, 2, 1, MOST)
    assert told(tuner, 0.02) == 32
    tuner.bound(5)
    asked = []
    while (wanted := told(tuner, 0.008 if tuner.workers == 5 else 0.02)) is not None:
        asked.append(wanted)
    assert (asked, tuner.workers, tuner.done) == ([], 5, True)


def test_small_steps_end() -> None:
    most = 256
    tuner = Tuner(2, 2, 1, most)
    each_s, changes = 0.05, 0
    while told(tuner, each_s, waits=0.05) is not None:
        each_s, changes = each_s * 0.95, changes + 1
    assert 5 < changes <= most_changes(most)


def test_a_pause_within_a_trial_does_not_count() -> None:
    tuner = Tuner(2, 2, 1, MOST)
    assert told(tuner, 0.02) == 32
    for _ in range(4):
        assert tuner.observe(sample(32)) is None
    assert tuner.observe(sample(32, seconds=10.1, outside_s=10.0)) is None
    assert told(tuner, 0.01, count=30) is None
    assert tuner.workers == 32


@st.composite
def anything(draw: st.DrawFn) -> list[dict[str, float]]:
    """Samples as no pipeline gives them."""
    times = st.one_of(st.just(0.0), st.floats(1e-6, 10.0))
    one = st.fixed_dictionaries(
        {
            "seconds": st.floats(0.05, 5.0),
            "delivered": st.integers(0, 1000),
            **dict.fromkeys(("waited_s", "own_s", "outside_s", "busy_s", "cpu_s"), times),
            "consumer_cpu_s": times,
            "functions_s": times,
        }
    )
    runs = draw(st.lists(st.tuples(one, st.integers(1, 60)), min_size=1, max_size=20))
    return [given for given, times in runs for _ in range(times)]


@given(anything(), st.integers(1, 64), st.integers(0, 4), st.integers(1, 128))
@settings(max_examples=60)
def test_a_bound_on_changes_whatever_is_told(
    told: list[dict[str, float]], cores: int, least: int, most: int
) -> None:
    most = max(most, least)
    tuner = Tuner(cores, min(max(1, least, cores), most), least, most)
    seconds, changes = 0.0, 0
    for each in told:
        asked = tuner.observe(sample(tuner.workers, **each))
        seconds += each["seconds"]
        if asked is not None:
            assert least <= asked <= most
            assert asked == tuner.workers
            changes += 1
    assert tuner.changes == changes <= most_changes(most, seconds)


def test_workers_that_start_are_waited_for() -> None:
    tuner = Tuner(2, 2, 0, MOST)
    assert {tuner.observe(sample(starting=1)) for _ in range(100)} == {None}
    assert any(tuner.observe(sample()) for _ in range(20))


def test_samples_of_another_number_are_left_out() -> None:
    tuner = Tuner(2, 2, 0, MOST)
    assert {tuner.observe(sample(workers=7)) for _ in range(100)} == {None}
    assert not tuner.done


# -- the model --------------------------------------------------------------------------------------------------


def measure(**times: float) -> Measure:
    usual = Measure(2, 100, 2.0, 0.02, 0.0199, 0.0, 0.04, 0.0, 0.0, None, 0.0, 0.02)
    return replace(usual, **times)  # type: ignore[arg-type]  # those that are ints are not given


def test_sleeping_workers_are_as_good_as_many() -> None:
    assert predicted(measure(), 2, 16) == pytest.approx((16, 8.0))


def test_computing_workers_are_as_many_as_cores() -> None:
    computing = measure(cpu_s=0.04)
    assert predicted(computing, 2, 16).gain == pytest.approx(1.0)
    assert predicted(computing, 4, 16) == pytest.approx((4, 2.0), rel=0.05)


def test_a_consumer_that_computes_takes_a_core() -> None:
    assert predicted(measure(cpu_s=0.02, consumer_cpu_s=0.02), 2, 16).gain == pytest.approx(1.0)
    assert predicted(measure(cpu_s=0.02, consumer_cpu_s=0.0), 2, 16).gain > 1.5


def test_no_more_than_the_consumer_takes() -> None:
    found = predicted(measure(waited_s=0.01), 2, 16)
    assert found.gain == pytest.approx(2.0)
    assert 4 <= found.workers <= 6
    assert predicted(measure(waited_s=0.0), 2, 16).workers == 2


def test_the_repairman_is_between_his_bounds() -> None:
    for workers in (1, 3, 10, 100, 1000):
        got = computed_per_s(workers, 0.010, 0.005, cores=4)
        assert 0 < got <= min(workers / 0.015, 4 / 0.005) * (1 + 1e-9)
    assert computed_per_s(1000, 0.010, 0.005, cores=4) == pytest.approx(800.0)


# -- look-ahead ---------------------------------------------------------------------------------------------------


def tasks(seconds: Iterable[float]) -> Durations:
    seen = Durations()
    seen.extend(seconds)
    return seen


def test_look_ahead_is_a_rule_of_thumb_until_tasks_were_seen() -> None:
    assert window(2, Durations().frozen(), 1.0, 0) == 7
    assert window(8, tasks([0.004] * 10).frozen(), 4.0, 0) == 7
    assert window(1, Durations().frozen(), 8.0, 0, least=5) == 5


def test_look_ahead_outlasts_a_straggler() -> None:
    slow = tasks([0.001] * 990 + [0.1] * 10)
    assert window(4, slow.frozen(), 1.0, 12) == pytest.approx(2 + 2 * 4 * 50, rel=0.15)


def test_tasks_that_take_about_as_long_need_no_more() -> None:
    even = tasks([0.001 * (1 + k % 3) for k in range(2000)])
    assert window(4, even.frozen(), 1.0, 0) == 12


def test_look_ahead_does_not_flap() -> None:
    seen, now, values = Durations(), 0, []
    for k in range(3000):
        seen.add(0.004 * (1 + (k * 7919 % 100) / 100) * (20 if k % 150 == 0 else 1))
        now = window(8, seen.frozen(), 2.0, now)
        values.append(now)
    changes = sum(a != b for a, b in pairwise(values))
    assert changes <= 12
