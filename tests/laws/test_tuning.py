"""Law 1 while AUTOTUNE changes the number of workers: to more, to fewer, to none and back."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from tests.laws.sampling import some

from tundish import AUTOTUNE, Dataset, Iterator, Options, set_seed
from tundish.loader.run.pool import pool, replacing
from tundish.loader.run.starting.launcher import start_method
from tundish.loader.run.watching import tuning
from tundish.loader.watch.throughput import EventSample
from tundish.testing import collect
from tundish.testing.functions import Draw, Fail, Keep
from tundish.testing.registry import FIRST, Case

SCRIPT = (3, 1, 0, 2, 4, 0, 1)


class Restless:
    """A tuner that says another number every time it is asked."""

    done = False

    def __init__(self, cores: int, initial: int, least: int, most: int) -> None:
        self._least, self._turn = least, count()

    def observe(self, sample: EventSample) -> int | None:
        return max(self._least, SCRIPT[next(self._turn) % len(SCRIPT)])

    def bound(self, workers: int) -> None:
        self.bounded = workers


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(tuning, "Tuner", Restless)
    monkeypatch.setattr(tuning.Tuning, "every_s", 0.0)
    set_seed(7)  # seeds that nobody gave are the same in each run
    yield
    set_seed(None)


def tuned(dataset: Dataset, iteration: int = 0) -> Iterator:
    options = Options(workers=AUTOTUNE)
    return dataset.with_options(options).iterator(iteration=iteration)


@pytest.mark.parametrize("case", [*FIRST, *some(24)], ids=lambda case: case.name)
def test_changing_the_number_of_workers_does_not_show(case: Case) -> None:
    with case.build().iterator(workers=0) as iterator:
        expected = collect(iterator, limit=case.limit)
    with tuned(case.build()) as iterator:
        found = collect(iterator, limit=case.limit)

    assert found == expected


def pipeline() -> Dataset:
    ds = Dataset.range(400).map(Draw(1), seed=1).filter(Keep(1)).map(Fail(1, 10))
    return ds.shuffle(20, seed=3).batch(3)


def test_it_does_change() -> None:
    with tuned(pipeline()) as iterator:
        collect(iterator)
        numbers = {workers for _, workers in iterator.stats.tuned}

    here = {0} if start_method() == "fork" else set()  # workers are forked at `iter`, or never
    assert numbers == set(SCRIPT) - here


def test_counts_go_on_through_all_changes() -> None:
    with pipeline().iterator(workers=0) as iterator:
        expected = collect(iterator), iterator.stats
    with tuned(pipeline()) as iterator:
        found = collect(iterator), iterator.stats

    assert found[0] == expected[0]
    assert (found[1].elements, found[1].errors) == (expected[1].elements, expected[1].errors)


@pytest.mark.parametrize("stop", [0, 1, 7, 30])
def test_a_state_of_any_moment_resumes(stop: int) -> None:
    with pipeline().iterator(workers=0) as iterator:
        expected = collect(iterator)
    with tuned(pipeline()) as iterator:
        first = collect(iterator, limit=stop)
        state = iterator.state_dict()
    with tuned(pipeline()) as iterator:
        iterator.load_state_dict(state)
        rest = collect(iterator)

    assert first + rest == expected


def test_deaths_while_the_number_changes() -> None:
    with pipeline().iterator(workers=0) as iterator:
        expected = collect(iterator)
    found = []
    with tuned(pipeline().with_options(Options(max_deaths=0))) as iterator:
        while True:
            more = collect(iterator, limit=3)
            found += more
            for pid in iterator.worker_pids()[:1]:
                with suppress(ProcessLookupError):  # the one before: nobody has missed it yet
                    os.kill(pid, signal.SIGKILL)
            if len(more) < 3:
                break

    assert found == expected


def test_a_function_with_worker_init_stays_in_workers() -> None:
    options = Options(workers=AUTOTUNE, worker_init=lambda: None)
    with iter(pipeline().with_options(options)) as iterator:
        collect(iterator)
        numbers = {workers for _, workers in iterator.stats.tuned}

    assert numbers
    assert 0 not in numbers


def test_tasks_of_dead_workers_go_to_those_that_a_change_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replacing, "BACK_OFF_S", (3600.0,))
    ds = Dataset.range(40).map(abs).batch(4)
    with ds.iterator(workers=0) as iterator:
        expected = collect(iterator)
    with ds.iterator(workers=2) as iterator:
        found = collect(iterator, limit=1)
        engine: Any = iterator._engine
        workers = engine._pool
        for peer in list(workers._peers):
            workers._dead(peer)
        engine._resize(3)

        assert not workers._orphans
        assert found + collect(iterator) == expected


def test_it_goes_on_with_those_there_are_where_no_more_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pipeline().iterator(workers=0) as iterator:
        expected = collect(iterator)
    start, started = pool.Pool._start, []

    def refuse(self: pool.Pool, **given: bool) -> None:
        started.append(1)
        if len(started) > 1:
            raise OSError(24, "Too many open files")
        start(self, **given)

    with tuned(pipeline()) as iterator:
        monkeypatch.setattr(pool.Pool, "_start", refuse)
        found = collect(iterator)

    assert len(started) > 1
    assert found == expected


def test_an_engine_in_the_place_of_one_that_could_not_grow_is_no_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pipeline().iterator(workers=0) as iterator:
        expected = collect(iterator)
    start = pool.Pool._start

    def refuse(self: pool.Pool, **given: bool) -> None:
        if len(self._peers) >= 2:
            raise OSError(24, "Too many open files")
        start(self, **given)

    monkeypatch.setattr(pool.Pool, "_start", refuse)
    monkeypatch.setattr("tundish.loader.run.parallelism.usable_cores", lambda: 2)
    with tuned(pipeline()) as iterator:
        engine: Any = iterator._engine
        engine._resize(3)

        assert engine.tuning.workers == iterator.stats.workers == engine._pool.size == 1
        assert engine.tuning.tuner.bounded == 1, "it goes on from there"
        iterator._doubt = True  # as an interrupt leaves it
        assert collect(iterator) == expected
