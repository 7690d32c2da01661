"""The jobs that an agent starts and stops as it is told, with servers that do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from tests.service.listeners import JobDouble

from tundish.loader.service.connections.loop import Loop
from tundish.loader.service.jobs import hosting
from tundish.loader.service.jobs.hosting import JobOrder, Jobs

FIRST, OTHER = JobOrder("j", "d", "shared"), JobOrder("j", "e", "shared")


class Bench:
    def __init__(self, loop: Loop) -> None:
        self.made: list[JobDouble] = []
        self.jobs = Jobs(start=self._start)
        self.jobs.attach(loop)

    def _start(self, order: JobOrder, payload: bytes, loop: Loop) -> JobDouble:
        self.made.append(JobDouble(order, payload, loop))
        self.made[-1].is_ready = False
        return self.made[-1]

    def do(self, *orders: JobOrder, stop: tuple[str, ...] = ()) -> None:
        self.jobs.do(orders, stop, lambda _: b"")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(hosting, "_LOADING_S", 0.0)
    with closing(Loop()) as loop, ended(Bench(loop)) as found:
        yield found


@contextmanager
def ended(bench: Bench) -> Iterator[Bench]:
    try:
        yield bench
    finally:
        bench.jobs.end()


def test_one_that_starts_is_told_when_it_is_ready(bench: Bench) -> None:
    bench.do(FIRST)
    bench.do(FIRST)
    assert len(bench.made) == 1
    assert bench.jobs.serves() == {}
    bench.made[0].is_ready = True
    assert bench.jobs.serves() == {"j": (1, FIRST.wanted)}


def test_one_that_starts_and_is_not_wanted_any_more_is_stopped(bench: Bench) -> None:
    bench.do(FIRST)
    bench.do()
    assert bench.made[0].closed.wait(10)
    assert bench.jobs.serves() == {}
    assert not bench.jobs.lost()


@pytest.mark.parametrize("ready", [False, True])
def test_another_one_of_its_name_takes_its_place(bench: Bench, ready: bool) -> None:
    bench.do(FIRST)
    bench.made[0].is_ready = ready
    bench.jobs.serves()
    bench.do(OTHER)
    assert bench.made[0].closed.wait(10)
    bench.made[1].is_ready = True
    assert bench.jobs.serves() == {"j": (1, OTHER.wanted)}


def test_one_that_does_not_start_in_time_has_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "_STARTING_S", -1.0)
    bench.do(FIRST)
    (lost,) = bench.jobs.lost().values()
    assert lost.failed
    assert "not ready after" in lost.why
    assert bench.made[0].closed.wait(10)


def test_a_lost_one_is_told_until_it_was_heard(bench: Bench) -> None:
    bench.do(FIRST)
    bench.made[0].is_ready = True
    bench.jobs.serves()
    bench.made[0].ended, bench.made[0].gave = "killed", True
    assert bench.jobs.serves() == {}
    lost = bench.jobs.lost()
    assert [(each.why, each.failed, each.gave) for each in lost.values()] == [
        ("killed", False, True)
    ]
    assert bench.jobs.lost() == lost
    bench.jobs.told(lost)
    assert not bench.jobs.lost()


def test_stopping_does_not_wait(bench: Bench) -> None:
    bench.do(FIRST)
    bench.made[0].closes.clear()
    bench.do(stop=("j",))
    bench.do(OTHER)
    bench.made[1].is_ready = True
    assert bench.jobs.serves()
    assert not bench.made[0].closed.is_set()
    bench.made[0].closes.set()
    bench.jobs.end()
    assert all(each.closed.is_set() for each in bench.made)


def test_one_that_cannot_be_started(bench: Bench) -> None:
    def fetch(dataset: str) -> Any:
        raise FileNotFoundError(f"no dataset {dataset}")

    bench.jobs.do([FIRST], (), fetch)
    (lost,) = bench.jobs.lost().values()
    assert lost.failed
    assert lost.why == "FileNotFoundError: no dataset d"
