"""Law 4: death is survived."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.laws import functions

from tundish import Dataset, Options
from tundish.errors import WorkerDiedError
from tundish.testing import assert_survives_kills
from tundish.testing.functions import Draw, Fail, Keep, Pause
from tundish.testing.registry import CASES, REGISTRY, Case

ENOUGH = 8
"""So many elements, or there is nobody left to kill."""


def elements(case: Case) -> int:
    return sum(not outcome.error for outcome in case.expected())


KILLED = [
    next((case for case in cases if elements(case) >= ENOUGH), None) or max(cases, key=elements)
    for cases in REGISTRY.values()
]
"""Of each operator the first case of enough elements; else the one of most."""
OTHERS = [case for case in CASES if case not in KILLED]


@pytest.mark.parametrize("how", functions.DEATHS)
def test_a_death_does_not_show(how: str, tmp_path: Path) -> None:
    ds = Dataset.range(12).map(functions.Die(str(tmp_path), how)).batch(2)
    with ds.iterator(workers=2) as it:
        found = [batch.tolist() for batch in it]

    assert found == [[4 * i, 4 * i + 2] for i in range(6)]
    assert len(list(tmp_path.iterdir())) == 1, "it died once"


@pytest.mark.parametrize("how", functions.DEATHS)
def test_an_element_that_always_kills_is_named_and_passed(how: str, tmp_path: Path) -> None:
    ds = Dataset.range(12).map(functions.Die(str(tmp_path), how, times=10**6)).batch(2)
    found: list[list[int]] = []
    with ds.iterator(workers=2) as it:
        found.extend(next(it).tolist() for _ in range(2))
        with pytest.raises(WorkerDiedError) as caught:
            next(it)
        found.extend(batch.tolist() for batch in it)

    assert found == [[0, 2], [4, 6], [12, 14], [16, 18], [20, 22]]
    assert 3 <= len(list(tmp_path.iterdir())) <= 6, "those of longer tasks do not count"
    assert caught.value.deaths == 3
    assert "5" in caught.value.element
    assert how in caught.value.how or not how.startswith("SIG")


def test_two_deaths_are_not_yet_an_error(tmp_path: Path) -> None:
    ds = Dataset.range(12).map(functions.Die(str(tmp_path), "SIGKILL", times=2))
    with ds.iterator(workers=2) as it:
        assert [int(x) for x in it] == [2 * i for i in range(12)]


def test_the_limit_of_deaths_is_an_option(tmp_path: Path) -> None:
    ds = Dataset.range(12).map(functions.Die(str(tmp_path), "SIGKILL", times=5))
    with ds.with_options(Options(max_deaths=0)).iterator(workers=2) as it:
        assert [int(x) for x in it] == [2 * i for i in range(12)]


@pytest.mark.parametrize("case", KILLED, ids=lambda c: c.name)
def test_kills_at_random_steps_do_not_show(case: Case) -> None:
    """One case of every operator. Of workers that are busy: an idle one has nothing to lose."""
    assert_survives_kills(lambda: case.build().map(Pause(2)), kills=4, limit=case.limit)


@pytest.mark.thorough
@pytest.mark.parametrize("case", OTHERS, ids=lambda c: c.name)
def test_kills_do_not_show_in_any_case(case: Case) -> None:
    if elements(case) < ENOUGH:
        pytest.skip("it may end before a worker can be killed")
    assert_survives_kills(lambda: case.build().map(Pause(2)), kills=3, workers=3, limit=case.limit)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_many_kills_do_not_show(workers: int) -> None:
    ds = (
        Dataset.range(400)
        .map(Pause(2))
        .map(Draw(1), seed=1)
        .filter(Keep(1))
        .map(Fail(2, 10))
        .shuffle(20, seed=1)
        .batch(4)
    )
    assert_survives_kills(ds, kills=12, workers=workers)


def test_a_death_keeps_what_the_worker_said(tmp_path: Path) -> None:
    ds = Dataset.range(3).map(functions.Die(str(tmp_path), "SIGSEGV", at=1, times=10**6))
    with ds.iterator(workers=1) as it:
        next(it)
        with pytest.raises(WorkerDiedError, match="SIGSEGV"):
            next(it)


def test_one_who_goes_on_after_workers_could_not_start_is_told_so_again() -> None:
    ds = Dataset.range(4).map(abs).with_options(Options(workers=1, worker_init=functions.leave))
    with iter(ds) as it:
        for _ in range(2):
            with pytest.raises(WorkerDiedError, match="its start"):
                next(it)


GONE_S = 0.5
SCRIPT = """
import sys, time
from tests.laws.functions import sleep_for_ever
from tundish import Dataset
it = Dataset.range(100).map({function}).iterator(workers=3)
while len(it.worker_pids()) < 3:
    it.pump()
    time.sleep(0.001)
print(*it.worker_pids(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("function", ["sleep_for_ever", "abs"])
def test_workers_go_with_the_consumer(function: str) -> None:
    """SIGKILL of the process that asked leaves no worker."""
    script = SCRIPT.format(function=function)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as consumer:
        assert consumer.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in consumer.stdout.readline().split()]
        others = psutil.Process(consumer.pid).children(recursive=True)
        assert len(workers) == 3
        os.kill(consumer.pid, signal.SIGKILL)
        since = time.monotonic()
        while any(map(lives, [*workers, *others])) and time.monotonic() < since + 10:
            time.sleep(0.001)
        took = time.monotonic() - since

    assert took < GONE_S


def lives(process: psutil.Process) -> bool:
    """Return True if a process has not ended; its entry may wait for whoever should have looked after it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
