"""The verdict on made-up measurements: it names the right limit, and its numbers are right."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.loader.watch.situations import (
    BATCH,
    LOAD,
    LOADING,
    RANGE,
    elsewhere,
    node,
    stage,
    stats,
    times,
    view,
)

from tundish.loader.watch.adding import between
from tundish.loader.watch.stats import Stats, WorkerStats
from tundish.loader.watch.verdict import Verdict, explain
from tundish.loader.watch.view import PlanNode, PlanView

if TYPE_CHECKING:
    from tundish.loader.watch.stats import StageStats


def loading(each_s: float, batches: int, **settings: Any) -> StageStats:
    return stage(
        node("range#0", 0.0, 10 * batches), node("map#1", each_s, 10 * batches), **settings
    )


def text(verdict: Verdict) -> str:
    return "\n".join(verdict.lines)


def offered(verdict: Verdict) -> dict[str, float]:
    return {each.what: each.gain for each in verdict.predictions}


def test_busy_workers_are_the_limit() -> None:
    # 2 workers, 20 ms a batch each: 100 batches a second
    verdict = explain(
        stats(loading(0.002, 1000), workers=2, elements=1000, waited_s=9.9, own_s=0.1), LOADING
    )

    assert (verdict.limit, verdict.name) == ("workers", "map#1")
    assert "2 workers, busy 100 % of the time. map#1 (load) takes 100 %" in text(verdict)
    assert "2 ms a call; nearly all of it is CPU time" in text(verdict)
    assert "100 batches/s, 1,000/s of 10 rows each: 1,000 batches in 10 s" in text(verdict)
    assert offered(verdict)["one more worker"] == pytest.approx(1.5, rel=0.02)
    assert offered(verdict)["8 workers"] == pytest.approx(4.0, rel=0.05), "8 cores"


def test_functions_that_wait_may_have_more_workers_than_cores() -> None:
    measured = stats(
        loading(0.02, 100, cpu=0.02), workers=2, elements=100, waited_s=10.0, own_s=0.01, cores=2
    )
    verdict = explain(measured, LOADING)

    assert verdict.limit == "workers"
    assert "nearly all of it is waiting (a disk, a network, sleep)" in text(verdict)
    assert offered(verdict)["one more worker"] == pytest.approx(1.5, rel=0.02)
    assert max(offered(verdict).values()) > 20


def test_workers_that_wait_for_cores_are_not_too_few() -> None:
    measured = stats(
        loading(0.004, 500, cpu=0.5), workers=4, elements=500, waited_s=5.0, own_s=0.01, cores=2
    )
    verdict = explain(measured, LOADING)

    assert verdict.limit == "cores"
    assert "The limit: the cores. 2 of 2 are in use by 4 workers and this process" in text(verdict)
    assert "the rest mostly waiting for a core" in text(verdict)
    assert not [what for what in offered(verdict) if "more" in what]
    assert "2 workers are enough" in offered(verdict)


def test_other_programs_on_the_cores_are_known_by_the_queue() -> None:
    """Half of the time of each worker goes by in the queue for a core: no sleep, and not our doing."""
    settings: dict[str, Any] = {
        "workers": 1,
        "elements": 250,
        "waited_s": 10.0,
        "own_s": 0.01,
        "cores": 2,
    }
    asleep = explain(stats(loading(0.004, 250, cpu=0.5), **settings), LOADING)
    queued = explain(stats(loading(0.004, 250, cpu=0.5), queued=0.5, **settings), LOADING)

    assert offered(asleep)["one more worker"] == pytest.approx(2.0, rel=0.02)
    assert (asleep.limit, queued.limit) == ("workers", "cores")
    assert not [what for what in offered(queued) if "more worker" in what]
    assert (
        "other programs use the cores as well, and tasks wait for a core 50 % of the time"
        in text(queued)
    )
    assert "the rest mostly waiting for a core" in text(queued)


def test_few_tasks_that_wait_for_cores_are_not_held_up_by_the_order() -> None:
    """Many workers with little to do on cores that others have: some tasks take long for want of a core."""
    uneven = times((0.004, 950), (0.2, 50))
    computed = loading(0.0138, 100, tasks=uneven, busy_s=13.8, cpu=0.2)
    settings: dict[str, Any] = {
        "workers": 28,
        "elements": 100,
        "waited_s": 4.4,
        "own_s": 0.1,
        "cores": 2,
    }
    asleep = explain(stats(computed, **settings), LOADING)
    queued = explain(stats(computed, queued=0.8, **settings), LOADING)

    assert (asleep.limit, queued.limit) == ("order", "cores")
    assert "28 workers" in text(asleep)
    assert "busy only 11 % of the time" in text(asleep)
    assert (
        "other programs use the cores as well, and tasks wait for a core 80 % of the time"
        in text(queued)
    )
    assert not [what for what in offered(queued) if "more" in what or "ready" in what]


def test_no_more_workers_than_cores_are_advised_for_functions_that_compute() -> None:
    """More would be faster, by what they take from other programs."""
    measured = stats(
        loading(0.004, 250, cpu=0.75),
        queued=0.25,
        workers=2,
        elements=250,
        waited_s=5.0,
        own_s=0.01,
        cores=2,
    )
    verdict = explain(measured, LOADING)

    assert not [what for what in offered(verdict) if "worker" in what], str(verdict)


def test_a_consumer_that_never_waits_is_the_limit() -> None:
    measured = stats(loading(0.002, 500), workers=4, elements=500, own_s=0.1, outside_s=9.9)
    verdict = explain(measured, LOADING)

    assert (verdict.limit, verdict.name) == ("consumer", "")
    assert "takes 99 % of the time, 19.8 ms each: a faster pipeline would change little" in text(
        verdict
    )
    assert offered(verdict) == {"2 workers are enough": pytest.approx(1.0, rel=0.01)}


def test_what_is_within_its_uncertainty_is_not_offered() -> None:
    """Beside a slow consumer, of functions that hardly take any time, which differs from task to task."""
    uneven = times((0.00001, 95), (0.002, 5))
    cheap = loading(0.000011, 100, tasks=uneven, busy_s=0.011)
    measured = stats(cheap, workers=2, elements=100, waited_s=0.3, own_s=0.3, outside_s=9.4)
    verdict = explain(measured, LOADING)

    assert verdict.limit == "consumer"
    assert not [each for each in verdict.predictions if 1 < each.gain < 1 + each.spread]


def test_tiny_elements_are_limited_by_the_coordinator() -> None:
    ds = view(RANGE, replace(LOAD, function="add"))
    measured = stats(
        stage(node("map#1", 1e-6, 10**6)), workers=2, elements=10**6, own_s=8.0, outside_s=1.0
    )
    verdict = explain(measured, ds)

    assert verdict.limit == "coordinator"
    assert "8 µs an element: elements are small; larger batches, or fewer workers" in text(verdict)


def test_a_stage_in_this_process_is_the_limit_without_workers() -> None:
    computed = loading(0.002, 400, where="consumer")
    measured = stats(computed, workers=0, elements=400, waited_s=8.0, own_s=0.1, outside_s=1.9)
    verdict = explain(measured, LOADING)

    assert (verdict.limit, verdict.name) == ("process", "map#1")
    assert "`next` computes 80 % of the time (20 ms for a batch)" in text(verdict)
    assert offered(verdict)["1 worker"] == pytest.approx(50 / 40, rel=0.03)
    assert offered(verdict)["4 workers"] == pytest.approx(190 / 40, rel=0.05), "the consumer's 5 ms"


def test_this_process_is_known_to_wait_for_a_core() -> None:
    """Without workers: functions that compute, on cores that other programs use, too."""
    computed = loading(0.004, 400, where="consumer", cpu=0.5)
    measured = stats(computed, workers=0, elements=400, waited_s=16.0, own_s=0.1, cores=2)
    asleep = explain(measured, LOADING)
    queued = explain(replace(measured, queued_s=8.0), LOADING)

    assert (asleep.limit, queued.limit) == ("process", "cores")
    assert "waits for one 50 % of the time" in text(queued)
    assert "the rest mostly waiting for a core" in text(queued)
    assert [what for what in offered(asleep) if "worker" in what]
    assert not [what for what in offered(queued) if "worker" in what]
    assert between(measured, replace(measured, queued_s=8.0)).queued_s == pytest.approx(8.0)


def test_functions_that_sleep_here_gain_by_workers_whatever_else_runs() -> None:
    """On a busy machine a sleeper is late to wake, and so waits for a core, too."""
    computed = loading(0.004, 400, where="consumer", cpu=0.05)
    measured = stats(computed, workers=0, elements=400, waited_s=16.0, own_s=0.1, cores=2)
    verdict = explain(replace(measured, queued_s=6.4), LOADING)

    assert (verdict.limit, verdict.name) == ("process", "map#1")
    assert [what for what in offered(verdict) if "worker" in what]


def test_a_generator_in_this_process_is_the_limit() -> None:
    generator = PlanNode(
        "from_generator#0", "from_generator", function="rows", reads="generator", stays=True
    )
    ds = view(generator, LOAD, BATCH)
    measured = stats(
        stage(node("from_generator#0", 0.002, 5000), where="consumer"),
        stage(node("map#1", 0.0005, 5000)),
        workers=2,
        elements=500,
        own_s=10.1,
        outside_s=0.1,
    )
    verdict = explain(measured, ds)

    assert (verdict.limit, verdict.name) == ("generator", "from_generator#0")
    assert "from_generator#0 (rows), which runs in the consumer's process, 20 ms" in text(verdict)
    assert verdict.costs.own_s == pytest.approx(0.0002), "the generator's time is not the library's"
    assert not [what for what in offered(verdict) if "more" in what]
    assert "functions that run in this process take 98 %" in text(verdict)


def test_a_function_that_stays_in_this_process_is_the_limit() -> None:
    scan = PlanNode("scan#1", "scan", function="total", stays=True)
    ds = view(RANGE, scan, replace(BATCH, name="batch#2"))
    seen = stats(
        stage(node("scan#1", 0.002, 5000), where="consumer"),
        workers=2,
        elements=500,
        waited_s=0.1,
        own_s=10.1,
    )

    verdict = explain(seen, ds)

    assert (verdict.limit, verdict.name) == ("process", "scan#1")
    assert "workers cannot take it over, since each call needs the one before" in text(verdict)
    assert verdict.lines[1] == (
        "`next` waits for workers < 1 % of the time (200 µs for a batch); functions that run in this process take 98 % "
        "and the library's own work takes < 1 %"
    )
    assert verdict.waits == "your code waits 100 % for scan#1"
    consumer = verdict.svg().partition("the consumer</text>")[2]
    assert "waits &lt; 1 %, computes 98 %, library &lt; 1 %, your code 0 %" in consumer


def test_what_runs_here_while_the_iterator_is_made_is_not_the_callers() -> None:
    generator = PlanNode(
        "from_generator#0", "from_generator", function="rows", reads="generator", stays=True
    )
    seen = stats(
        stage(node("from_generator#0", 0.002, 5000), where="consumer"),
        workers=2,
        elements=500,
        outside_s=10.5,
    )

    verdict = explain(seen, view(generator, BATCH))

    assert (verdict.limit, verdict.name) == ("generator", "from_generator#0")
    assert verdict.costs.outside_s == pytest.approx(0.001)


def test_an_operator_that_drops_what_it_asks_about_has_made_no_more_than_it_gave() -> None:
    unique = PlanNode("unique#2", "unique", count=-2, asks=True)
    asked = stage(node("map#1", 0.002, 1000), node("unique#2", 0.0, 1000), where="consumer")
    seen = stats(asked, workers=0, elements=100, waited_s=2.0)

    assert explain(seen, view(RANGE, LOAD, unique)).costs.busy_s == pytest.approx(0.02)


def test_the_start_of_workers_is_no_work_of_operators_and_hides_none() -> None:
    tasks = times((0.002, 100), (0.3, 2))
    started = stage(node("map#1", 0.002, 100), tasks=tasks, busy_s=0.8)
    seen = stats(started, workers=2, elements=100, waited_s=0.5)

    assert explain(seen, view(RANGE, LOAD)).costs.nodes["map#1"] == pytest.approx(0.002, rel=0.2)


def test_one_reader_of_one_file_is_the_limit() -> None:
    reader = PlanNode("tfrecord#1", "tfrecord", reads="stream", rows=0)
    ds = view(RANGE, reader, PlanNode("batch#2", "batch", rows=10))
    measured = stats(
        stage(node("tfrecord#1", 0.002, 5000)),
        workers=4,
        elements=500,
        waited_s=10.0,
        own_s=0.1,
        pool=(9.9, 0.1, 0.1, 0.1),
    )
    verdict = explain(measured, ds)

    assert (verdict.limit, verdict.name) == ("reader", "tfrecord#1")
    assert "one worker reads alone: it is busy 98 % of the time, the others < 1 %" in text(verdict)
    assert not [what for what in offered(verdict) if "worker" in what]


def test_datasets_that_are_opened_one_after_another_are_the_limit() -> None:
    """Workers are half idle, some tasks are long, and yet another order would change nothing."""
    opener = PlanNode(
        "flat_map#1", "flat_map", ("range#0",), "records", rows=0, reads="stream", serial=True
    )
    load = replace(LOAD, name="map#2")
    ds = view(RANGE, opener, load, replace(BATCH, name="batch#3"))
    opening = times((0.0001, 900), (0.05, 100))
    measured = stats(
        stage(node("range#0", 0.0, 100), node("flat_map#1", 0.008, 1000), tasks=opening),
        stage(node("map#2", 0.004, 1000)),
        workers=2,
        elements=100,
        waited_s=9.0,
        own_s=0.5,
    )

    verdict = explain(measured, ds)

    assert (verdict.limit, verdict.name) == ("reader", "flat_map#1")
    assert "opens and reads one dataset at a time: 84 % of the time" in text(verdict)
    assert "as they are ready" not in offered(verdict)


def test_stragglers_keep_the_order_waiting() -> None:
    slow = times((0.004, 950), (0.2, 50))
    measured = stats(
        loading(0.0138, 100, tasks=slow, busy_s=13.8),
        workers=4,
        elements=100,
        waited_s=7.0,
        own_s=0.1,
    )
    verdict = explain(measured, LOADING)

    assert verdict.limit == "order"
    assert "busy only 49 % of the time while the consumer waits" in text(verdict)
    assert "Most tasks take about 4" in text(verdict)
    assert offered(verdict)["as they are ready"] == pytest.approx(2.0, rel=0.1)
    unordered = explain(measured, replace(LOADING, ordered=False))
    assert "as they are ready" not in offered(unordered)


def test_too_small_a_budget_is_the_limit() -> None:
    measured = stats(
        loading(0.004, 100), workers=4, elements=100, waited_s=3.0, own_s=0.1, used=0.95
    )
    verdict = explain(measured, LOADING)

    assert verdict.limit == "memory"
    assert "1.02 GB of 1.07 GB are in use" in text(verdict)
    assert "a larger memory budget" in offered(verdict)


def test_batches_that_are_copied_for_want_of_memory_are_not_small() -> None:
    seen = stats(
        stage(node("range#0", 0.0, 200), node("map#1", 0.001, 200)),
        workers=2,
        elements=100,
        waited_s=0.1,
        own_s=6.0,
        outside_s=0.4,
        copies=98,
    )

    verdict = explain(replace(seen, used_bytes=60_000_000, budget_bytes=60_000_000), LOADING)

    assert verdict.limit == "memory"
    assert "60 MB of 60 MB are in use, and what is delivered has to be copied" in text(verdict)
    assert "elements are small" not in text(verdict)


def test_receiving_from_other_machines_may_be_the_limit() -> None:
    measured = replace(
        stats(loading(0.002, 100), workers=2, elements=100, waited_s=0.01, own_s=2.0),
        pool=elsewhere(0.02, 0.3, 2.01),
        received=4_000_000_000,
        receiving_s=1.8,
    )
    verdict = explain(measured, LOADING)

    assert verdict.limit == "receiving"
    assert "90 % of the time, 2.22 GB a second" in text(verdict)
    assert verdict.headline.endswith("The limit: receiving from other machines, in this process")
    assert not [what for what in offered(verdict) if "more" in what]
    assert explain(replace(measured, receiving_s=0.2), LOADING).limit == "coordinator"


def test_the_network_may_be_the_limit() -> None:
    measured = replace(
        stats(loading(0.002, 100), workers=2, elements=100, waited_s=4.0, own_s=0.1),
        pool=elsewhere(0.02, 2.5, 4.1),
        received=400_000_000,
        receiving_s=0.1,
    )
    verdict = explain(measured, LOADING)

    assert verdict.limit == "network"
    assert "61 % of the time their tasks and rows are on the way, 50 ms a task" in text(verdict)
    assert "97.6 MB a second are received" in text(verdict)
    near = replace(measured, pool=elsewhere(0.02, 0.1, 4.1))
    assert explain(near, LOADING).limit == "window"


def test_too_few_measurements_are_no_verdict() -> None:
    measured = stats(loading(0.002, 3), workers=2, elements=3, waited_s=0.05, own_s=0.001)
    verdict = explain(measured, LOADING)

    assert (verdict.limit, verdict.predictions) == ("unknown", ())
    assert "3 batches in 51 ms: too little to tell" in text(verdict)


def test_few_elements_in_a_long_time_are_too_few_all_the_same() -> None:
    measured = stats(loading(0.2, 3), workers=2, elements=3, waited_s=3.0, own_s=0.001)

    assert explain(measured, LOADING).limit == "unknown"


def test_workers_that_are_not_quite_busy_stay_so() -> None:
    """Workers are idle a fifth of the time, whatever the reason: so will more of them be."""
    measured = stats(loading(0.002, 800), workers=2, elements=800, waited_s=9.9, own_s=0.1)
    verdict = explain(measured, LOADING)

    assert "busy 80 % of the time" in text(verdict)
    assert offered(verdict)["one more worker"] == pytest.approx(1.5, rel=0.02)


def test_few_large_batches_are_enough() -> None:
    measured = stats(loading(0.5, 7), workers=2, elements=7, waited_s=17.5, own_s=0.001)

    assert explain(measured, LOADING).limit == "workers"


def test_what_is_not_measured_is_said_to_be() -> None:
    verdict = explain(Stats(elements=1000, wall_s=10.0))

    assert verdict.limit == "unknown"
    assert "Times are not measured" in text(verdict)


def test_the_start_is_left_out() -> None:
    """The first task of each worker imports modules, and the first `next` waits for it."""
    first = times((0.02, 100), (2.0, 2))
    computed = loading(0.002, 100, tasks=first, busy_s=2.0 + 4.0)
    measured = stats(computed, workers=2, elements=100, waited_s=3.0, own_s=0.01)
    measured = replace(measured, waits=times((0.01, 99), (2.0, 1)))
    verdict = explain(measured, LOADING)

    assert verdict.costs.rate == pytest.approx(100, rel=0.1)
    assert offered(verdict)["one more worker"] == pytest.approx(1.5, rel=0.1)


def test_what_happened_since_an_earlier_look() -> None:
    early = stats(loading(0.02, 100), workers=2, elements=100, waited_s=10.0, own_s=0.1)
    done = stats(loading(0.002, 1000), workers=2, elements=1000, waited_s=9.9, own_s=0.1)
    node_ = done.stages[0].nodes[1]
    both = replace(
        done.stages[0],
        nodes=(replace(node_, elements=11_000, busy_s=node_.busy_s + 20.0),),
        elements=11_000,
        rows=11_000,
        busy_s=40.0,
        cpu_s=40.0,
    )
    late = replace(
        done, elements=1100, stages=(both,), wall_s=20.1, waited_s=19.9, own_s=0.2, cpu_s=0.2
    )
    verdict = explain(late, LOADING, early)

    assert verdict.costs.rate == pytest.approx(100, rel=0.01)
    assert "1,000 batches in 10 s" in text(verdict)


def test_an_earlier_look_is_stats() -> None:
    measured = stats(loading(0.02, 100), workers=2, elements=100, waited_s=10.0, own_s=0.1)
    seconds: Any = 3
    with pytest.raises(
        TypeError, match="since must be an earlier `stats` of the iterator, not int"
    ):
        explain(measured, LOADING, seconds)


def test_what_is_ready_and_waits_counts_as_made() -> None:
    """A window ahead of the consumer, in a short run: 24 batches are made, 12 delivered."""
    computed = stage(node("map#1", 0.002, 240))
    measured = stats(computed, workers=2, elements=12, own_s=0.1, outside_s=0.9)

    assert explain(measured, LOADING).costs.busy_s == pytest.approx(0.02, rel=0.01)


def test_errors_restarts_and_copies_are_told() -> None:
    measured = stats(
        loading(0.002, 1000),
        workers=2,
        elements=999,
        errors=1,
        restarts=3,
        copies=7,
        waited_s=9.9,
        own_s=0.1,
    )
    told = text(explain(replace(measured, skipped={"map#1": 2}), LOADING))

    assert "3 workers died and were replaced" in told
    assert "1 element failed: < 1 %" in told
    assert "elements skipped for their errors: 2 by map#1" in told
    assert "7 batches had to be copied" in told


def test_a_verdict_needs_no_plan() -> None:
    measured = stats(loading(0.002, 1000), workers=2, elements=1000, waited_s=9.9, own_s=0.1)
    verdict = explain(measured)

    assert (verdict.limit, verdict.name) == ("workers", "map#1")
    assert "<svg" in verdict.svg()


def test_a_pool_that_the_tuner_sizes_gets_no_advice_about_its_size() -> None:
    measured = stats(loading(0.002, 1000), workers=2, elements=1000, waited_s=9.9, own_s=0.1)
    verdict = explain(replace(measured, tuned=((0.5, 2),)), LOADING)

    assert not [what for what in offered(verdict) if "worker" in what]
    assert "AUTOTUNE chose 2 workers after 500 ms" in text(verdict)


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_measured_is_no_division_by_zero(workers: int) -> None:
    empty = Stats(workers=workers, elements=20, wall_s=1.0, watched=True)
    begun = WorkerStats(1, 5, tasks=1, busy_s=0.1, alive_s=1.0, queued_s=0.1)
    alive = replace(empty, pool=(WorkerStats(0, None), begun))

    for each in (empty, alive, replace(alive, waited_s=1.0), replace(empty, outside_s=1.0)):
        verdict = explain(each, PlanView())
        assert str(verdict)
        assert verdict.svg()


def test_a_consumer_that_works_most_of_the_time_is_the_limit_though_it_waits_at_times() -> None:
    measured = stats(
        loading(0.0002, 1000), workers=3, elements=1000, waited_s=1.0, own_s=3.0, outside_s=0.1
    )

    assert explain(measured, LOADING).limit == "coordinator"
