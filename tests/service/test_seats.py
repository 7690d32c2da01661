"""Laws of workers on other machines: nothing shows but the time."""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import psutil
import pytest
from tests.service.certificates import Authority
from tests.service.computed import Fit, Samples, Stream, images, sleepy, whiter, wide
from tests.service.fleets import Cutter, Listed, Machine, machines, remotely
from tests.service.jobprocesses import Processes
from tests.service.listeners import OTHERS, TOKEN, free_port

from tundish import DataLoader, Dataset, Options
from tundish.errors import WorkerDiedError
from tundish.loader.run.coordinating.store import shared_ring
from tundish.loader.run.pool import replacing
from tundish.loader.service.agents.agent import Agent
from tundish.loader.service.connections.credentials import Address, Credentials
from tundish.loader.service.connections.dialing import Refused
from tundish.loader.service.distributing import seats as seats_module
from tundish.loader.service.distributing import standing
from tundish.loader.service.distributing.seats import SeatRecruiting
from tundish.testing import assert_resumes_anywhere, assert_workers_do_not_show, collect
from tundish.testing.functions import Draw, Keep, Pause, Tag
from tundish.testing.registry import CASES, Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TIMEOUT_S = 30
SHARED_RING = "tundish.loader.run.coordinating.memory.shared_ring"


@pytest.fixture(scope="module")
def fleet(program: Processes) -> Iterator[list[Machine]]:
    with machines(program, 2) as found:
        yield found


@pytest.fixture
def places(fleet: list[Machine]) -> Listed:
    return Listed([machine.address for machine in fleet])


def digests(iterator: Any) -> list[str]:
    return [outcome.digest or str(outcome.error) for outcome in collect(iterator)]


PLANS: dict[str, Callable[[], Any]] = {
    "drawn": lambda: Dataset.range(150).shuffle(None, seed=1).map(Pause(1)).map(Draw(1), seed=2).batch(16),
    "dropped": lambda: Dataset.range(150).map(Pause(1)).map(Draw(1), seed=2).filter(Keep(2)).batch(16),
    "behind": lambda: Dataset.range(150).map(Pause(1)).shuffle(50, seed=3).batch(8).map(Tag(1)),
    "unbatched": lambda: Dataset.range(150).map(Pause(1)).batch(6).unbatch().map(Draw(1), seed=5).batch(10),
    "large": lambda: Dataset.range(80).map(Pause(1)).map(images).batch(8),
    "again": lambda: Dataset.range(96).map(images).shuffle(20, seed=4).map(whiter).batch(8),
}  # fmt: skip


def without_memory(*_: object) -> None:
    """There is no shared memory."""


def test_a_worker_elsewhere_keeps_memory_for_few_rows(places: Listed) -> None:
    """Not for the largest batch it has had a part in: what an agent takes does not grow with the batches it has made."""
    ds = Dataset.range(1 << 40).map(wide).batch(64)
    with remotely(places), ds.iterator(workers=2) as iterator:
        for _ in range(30):
            next(iterator)
        before = iterator.stats.tasks
        nbytes = sum(next(iterator).nbytes for _ in range(10))
        assert iterator.stats.tasks - before >= nbytes // (10 << 20)


def test_a_long_path_of_imports_travels(places: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Bazel makes it, which gives each package an entry."""
    more = [f"/nowhere/{k}/{'x' * 200}" for k in range(400)]
    monkeypatch.setattr(sys, "path", [*sys.path, *more])
    with remotely(places), Dataset.range(9).map(Tag(1)).iterator(workers=1) as iterator:
        assert len(collect(iterator)) == 9


# ------------------------------------------------------------------------- workers do not show


def few(count: int) -> list[Case]:
    return random.Random(19).sample(CASES, count)


# The last issues tasks before any seat is there, and orders a writer.
@pytest.mark.parametrize(
    "case",
    [*few(8), *(c for c in CASES if c.name == "snapshot-flat_map")],
    ids=lambda c: c.name,
)
def test_two_agents_do_not_show(case: Case, places: Listed) -> None:
    with remotely(places):
        assert_workers_do_not_show(case.build, workers=(0, 2), limit=case.limit)


@pytest.mark.parametrize("case", few(30)[14:18], ids=lambda c: c.name)
def test_two_agents_do_not_show_without_shared_memory(case: Case, places: Listed) -> None:
    with remotely(places), patch(SHARED_RING, without_memory):
        assert_workers_do_not_show(case.build, workers=(0, 2), limit=case.limit)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("slots", [True, False], ids=["slots", "messages"])
def test_two_agents_show_in_no_case(case: Case, places: Listed, *, slots: bool) -> None:
    ring = shared_ring if slots else without_memory
    with remotely(places), patch(SHARED_RING, ring):
        assert_workers_do_not_show(case.build, workers=(0, 2), limit=case.limit)


@pytest.mark.parametrize("local", [0, 1])
@pytest.mark.parametrize("case", few(36)[32:], ids=lambda c: c.name)
def test_states_of_none_and_of_remote_workers(case: Case, places: Listed, local: int) -> None:
    with remotely(places, local):
        assert_resumes_anywhere(case.build, workers=(0, 2), steps=2, limit=case.limit)


@pytest.mark.thorough
@pytest.mark.parametrize("local", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_all_states_of_none_and_of_remote_workers(case: Case, places: Listed, local: int) -> None:
    with remotely(places, local):
        assert_resumes_anywhere(case.build, workers=(0, 2), steps=4, limit=case.limit)


@pytest.mark.parametrize("plan", PLANS)
def test_a_state_goes_from_crew_to_crew(plan: str, places: Listed) -> None:
    """None, local, remote, mixed, and back: each goes on with the one before it, and states are equal."""
    ds = PLANS[plan]()
    with ds.iterator(workers=0) as iterator:
        expected = digests(iterator)
    crews = {"none": (0, None), "local": (2, None), "remote": (2, 0), "mixed": (2, 1)}
    states: dict[str, Any] = {}
    for name, crew in crews.items():
        with begun(ds, places, *crew) as iterator:
            first = [outcome.digest for outcome in collect(iterator, limit=5)]
            states[name] = iterator.state_dict()
        assert first == expected[:5]
    assert all(state == states["none"] for state in states.values())
    for crew in crews.values():
        with begun(ds, places, *crew) as iterator:
            iterator.load_state_dict(states["none"])
            assert digests(iterator) == expected[5:]


def begun(ds: Any, places: Listed, workers: int, local: int | None) -> Any:
    if local is None:
        return ds.iterator(workers=workers)
    with remotely(places, local):
        return ds.iterator(workers=workers)


# ---------------------------------------------------------------------------- where rows arrive


@pytest.mark.parametrize("local", [0, 1])
def test_rows_lie_in_slots_within_the_budget(places: Listed, local: int) -> None:
    """A batch of 8 MB with a budget of 40: the first ask for more than they were granted."""
    ds = Dataset.range(240).map(wide).batch(8).with_options(Options(memory_budget=40_000_000))
    most = 0
    with begun(ds, places, 3, local) as iterator:
        for number, batch in enumerate(iterator):
            most = max(most, iterator.stats.used_bytes)
            assert (batch[:, 0, 0] == np.arange(8 * number, 8 * number + 8)).all()
            del batch
        assert iterator.stats.restarts == 0
    assert 8_000_000 <= most <= 40_000_000


def test_a_worker_elsewhere_is_measured_by_what_it_says(places: Listed) -> None:
    with begun(PLANS["large"](), places, 2, 0) as iterator:
        collect(iterator, limit=8)
        pool = iterator.stats.pool
        assert any(each.rows > 0 for each in pool)
        assert all(each.queued_s == 0.0 for each in pool)


@pytest.mark.parametrize("slots", [True, False], ids=["slots", "messages"])
@pytest.mark.parametrize("shape", [(3,), (200, 200)])
def test_a_loader_has_the_same_seats(
    places: Listed, shape: tuple[int, ...], *, slots: bool
) -> None:
    """The first batches of the larger ones ask for more than they were granted."""
    ring = shared_ring if slots else without_memory
    found = []
    for remote in (False, True):
        loader = DataLoader(Samples(shape), batch_size=7, num_workers=2)
        if remote:
            loader._recruiting = partial(SeatRecruiting, places=places)
        with patch(SHARED_RING, ring):
            found.append(
                [
                    [part.tolist() if hasattr(part, "tolist") else part for part in batch]
                    for batch in loader
                ]
            )
    assert found[0] == found[1]


def test_replicas_of_an_iterable_have_their_seats(places: Listed) -> None:
    found = []
    for recruiting in (None, partial(SeatRecruiting, places=places)):
        loader = DataLoader(Stream(), batch_size=4, num_workers=2)
        loader._recruiting = recruiting
        found.append([batch.tolist() for batch in loader])
    assert found[0] == found[1]


@pytest.mark.parametrize("plan", ["large", "dropped"])
def test_rows_come_over_tls(plan: str, tmp_path: Path) -> None:
    """Rows are decrypted into their slots; what is decrypted and not taken out would be announced by no descriptor."""
    authority = Authority(tmp_path / "authority")
    ours, theirs = (Credentials(TOKEN, authority.member(name)) for name in ("trainer", "agent"))
    ds = PLANS[plan]()
    with ds.iterator(workers=0) as iterator:
        expected = digests(iterator)
    with Agent("127.0.0.1", 0, theirs) as agent:
        agent.start()
        with remotely(Listed([agent.address], ours)), ds.iterator(workers=2) as iterator:
            assert digests(iterator) == expected
            assert iterator.stats.restarts == 0


# --------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("seed", range(2))
def test_a_connection_is_cut_at_any_byte(places: Listed, seed: int) -> None:
    """Also in the middle of rows that are received into their slot."""
    rng = random.Random(seed)
    ds = Dataset.range(120).map(images).batch(8).with_options(Options(max_deaths=0))
    with ds.iterator(workers=0) as iterator:
        expected = digests(iterator)
    after = [int(10 ** rng.uniform(0, 6.7)) for _ in range(12)]
    with Cutter(places.list[seed % 2], after) as cutter, remotely(Listed([cutter.address])):
        with ds.iterator(workers=2) as iterator:
            assert digests(iterator) == expected
        assert cutter.cut


def test_one_who_hangs_holds_nobody_up(places: Listed, silent: Address) -> None:
    """An address at which nothing answers costs a seat, not time."""
    ds = PLANS["large"]()
    mixed = Listed([silent, *places.list])
    with remotely(mixed), ds.iterator(workers=3) as iterator:
        began = time.monotonic()
        next(iterator)
        assert time.monotonic() - began < 4  # a dial is given up after 5
    with remotely(Listed([silent]), local=1), ds.iterator(workers=2) as iterator:
        began = time.monotonic()
        next(iterator)
        assert time.monotonic() - began < 4


@pytest.fixture
def silent() -> Iterator[Address]:
    """Accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()


def test_a_seat_that_cannot_be_had_is_had_later(places: Listed) -> None:
    """Nobody is there at first: the iterator waits, and goes on when an agent has come."""
    late = Listed([("127.0.0.1", free_port())])
    with remotely(late), PLANS["drawn"]().iterator(workers=2) as iterator:
        threading.Timer(0.3, lambda: late.list.append(places.list[0])).start()
        assert len(collect(iterator, limit=4)) == 4
    assert late.failures


def test_an_iterator_without_a_worker_says_why(
    monkeypatch: pytest.MonkeyPatch, places: Listed
) -> None:
    """Nobody is at the address at first, which is told before an agent is at another."""
    monkeypatch.setattr(seats_module, "ALONE_S", 0.2)
    port = free_port()
    late = Listed([("127.0.0.1", port)])
    told = rf"no agent .* a worker for 0\.2 s.*refused.*{port}"
    with (
        remotely(late),
        PLANS["drawn"]().iterator(workers=1) as iterator,
        pytest.warns(UserWarning, match=told) as warned,
    ):
        assert len(with_more(iterator, late, places.list[0], warned)) == 4


def with_more(
    iterator: Any, late: Listed, address: Address, warned: pytest.WarningsRecorder
) -> list[Any]:
    """Read an iterator; an agent is there as soon as somebody was warned."""

    def add() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not warned.list and time.monotonic() < deadline:
            time.sleep(0.005)
        late.list.append(address)

    adding = threading.Thread(target=add)
    adding.start()
    found = collect(iterator, limit=4)
    adding.join()
    return found


def read_until(warned: pytest.WarningsRecorder, iterator: Any) -> None:
    """Read an iterator until somebody was warned, and some elements more."""
    while not warned.list:
        next(iterator)
    assert len(collect(iterator, limit=9)) == 9


class AskedOften(Listed):
    """Places that have another one when they have been asked some times."""

    def __init__(self, first: Address, then: Address, times: int) -> None:
        super().__init__([first])
        self._then, self.left = then, times

    def addresses(self) -> Sequence[Address]:
        self.left -= 1
        if not self.left:
            self.tried = len(self.failures)
            self.list.append(self._then)
        return super().addresses()


def test_places_are_asked_often_while_nobody_can_be_reached(places: Listed) -> None:
    """Each time is a step of their own connection, as to a dispatcher that is being replaced."""
    late = AskedOften(("127.0.0.1", free_port()), places.list[0], times=25)
    with remotely(late), Dataset.range(9).map(Tag(1)).iterator(workers=1) as iterator:
        assert len(collect(iterator)) == 9
    assert late.tried <= 8, "they are asked between attempts as well"


def test_refusals_say_why(places: Listed) -> None:
    strangers = Listed(places.list, OTHERS)
    with (
        remotely(strangers),
        Dataset.range(9).map(images).iterator(workers=2) as iterator,
        pytest.raises(Refused, match="does not know the token"),
    ):
        next(iterator)
    # With a worker at home it goes on, and says so.
    with (
        remotely(strangers, local=1),
        Dataset.range(1 << 40).map(images).iterator(workers=2) as iterator,
        pytest.warns(UserWarning, match="no agent gives this iterator a worker") as warned,
    ):
        read_until(warned, iterator)  # a few elements may be there before the agent has answered


@pytest.fixture(scope="module")
def unfit(request: pytest.FixtureRequest, program: Processes) -> Iterator[list[Machine]]:
    """Two agents whose workers cannot start."""
    with machines(program, 2, TUNDISH_TEST_UNFIT=request.param) as found:
        yield found


@pytest.mark.parametrize("unfit", ["raises"], indirect=True)
def test_an_agent_whose_workers_cannot_start_stops_nobody(
    unfit: list[Machine], fleet: list[Machine]
) -> None:
    mixed = Listed([unfit[0].address, fleet[0].address, unfit[1].address])
    until, found = time.monotonic() + TIMEOUT_S, []
    with (
        remotely(mixed),
        Dataset.counter().map(Fit()).map(Pause(1)).iterator(workers=3) as iterator,
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        while not warned and time.monotonic() < until:
            found.append(next(iterator))
        found += [next(iterator) for _ in range(100)]
    assert found == list(range(len(found)))
    assert re.search("could not start, so .*: this machine lacks a library", str(warned[0].message))


@pytest.mark.parametrize("unfit", ["raises"], indirect=True)
def test_agents_whose_workers_all_cannot_start_are_an_error(unfit: list[Machine]) -> None:
    with (
        remotely(Listed([each.address for each in unfit])),
        Dataset.range(9).map(Fit()).iterator(workers=4) as iterator,
        pytest.raises(RuntimeError, match="lacks a library"),
        pytest.warns(UserWarning, match="could not start"),
    ):
        next(iterator)


@pytest.mark.parametrize("unfit", ["dies"], indirect=True)
def test_an_agent_whose_workers_die_as_they_start_stops_nobody(
    unfit: list[Machine], fleet: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight such deaths in a row are an error only where no worker is up."""
    monkeypatch.setattr(replacing, "_ELSEWHERE_S", 0.1)
    monkeypatch.setattr(standing, "_REST_S", (0.01,))
    mixed = Listed([unfit[0].address, fleet[0].address])
    with (
        remotely(mixed),
        Dataset.range(3000).map(Fit()).map(Pause(1)).iterator(workers=2) as iterator,
    ):
        assert list(iterator) == list(range(3000))
        assert iterator.stats.restarts
    with (
        remotely(Listed([unfit[0].address])),
        Dataset.range(9).map(Fit()).iterator(workers=2) as iterator,
        pytest.raises(WorkerDiedError, match="its start"),
    ):
        next(iterator)


TRAINER = """
import sys, time
from tundish import Dataset
from tests.service.fleets import Listed, remotely
def slow(index):
    time.sleep(60 if index > 20 else 0)
    return index
with remotely(Listed([("127.0.0.1", int(sys.argv[1]))])):
    iterator = Dataset.range(100).map(slow).iterator(workers=3)
print(next(iterator), flush=True)
time.sleep(60)
"""


def test_workers_of_a_trainer_that_is_killed_are_gone(fleet: list[Machine]) -> None:
    before = fleet[0].workers()
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(fleet[0].address[1])],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == "0\n"
    workers = [each for each in fleet[0].workers() if each not in before]
    assert workers
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    began = time.monotonic()
    _, alive = psutil.wait_procs(workers, TIMEOUT_S)
    assert not alive
    assert time.monotonic() - began < 0.5 * patience()


def test_closing_does_not_wait_for_workers_that_sleep(fleet: list[Machine], places: Listed) -> None:
    with remotely(places):
        iterator = Dataset.range(100).map(sleepy).iterator(workers=2)
    assert next(iterator) == 0
    workers = [worker for machine in fleet for worker in machine.workers()]
    assert workers
    began = time.monotonic()
    iterator.close()
    assert time.monotonic() - began < 0.5 * patience()
    _, alive = psutil.wait_procs(workers, TIMEOUT_S)
    assert not alive


def patience() -> float:
    """Return how much longer things may take on a machine that is busy with others."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
