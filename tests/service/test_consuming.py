"""Consumers of a shared job over connections: their elements, errors, states, and what they are refused."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.service.listeners import OURS, FixedPlace, free_port, listening
from tests.service.waiting import together, until

import tundish as td
from tundish.errors import CheckpointError, IncompatibleCheckpointError
from tundish.loader.dataset import Dataset
from tundish.loader.protocols.items import Made
from tundish.loader.run.iterator import Iterator as Elements
from tundish.loader.service.connections import answering, dialing, handshake
from tundish.loader.service.connections.answering import Later
from tundish.loader.service.connections.credentials import Address
from tundish.loader.service.connections.handshake import Refused
from tundish.loader.service.connections.loop import Loop
from tundish.loader.service.jobs import job as jobs_job
from tundish.loader.service.jobs import jobserver
from tundish.loader.service.jobs import places as jobs_places
from tundish.loader.service.jobs import window as jobs_window
from tundish.loader.service.jobs.consuming import Consume
from tundish.loader.service.jobs.dealing import Dealing
from tundish.loader.service.jobs.elements import read, written
from tundish.loader.service.jobs.holding import Holding
from tundish.loader.service.jobs.jobserver import JobServer
from tundish.loader.service.jobs.merging import alone, merge_states
from tundish.loader.service.jobs.places import JobConnection
from tundish.spec import flatten

# One of several consumers may be so slow that the others have everything.
pytestmark = pytest.mark.filterwarnings("ignore:job .* has no element for this consumer")


class Pair(NamedTuple):
    left: Any
    right: Any


@contextmanager
def serving(
    dataset: td.Dataset, dealing: Dealing | None = None, **given: Any
) -> Iterator[Consumers]:
    dealing = Dealing() if dealing is None else dealing
    given.setdefault("workers", 0)
    made = list[JobServer]()

    def start(loop: Loop) -> JobServer:
        made.append(JobServer(dataset, loop, dealing, **given))
        return made[0]

    with listening(start) as address:
        yield Consumers(dataset, dealing, made[0], address)


class Consumers:
    """Makes consumers of a job."""

    def __init__(
        self, dataset: td.Dataset, dealing: Dealing, server: JobServer, address: Address
    ) -> None:
        self.dataset, self.dealing, self.server = dataset, dealing, server
        self.address = address

    def plan(self, consumer: str | None = None, *, name: str = "j", **given: Any) -> Consume:
        place = FixedPlace(self.address, OURS)
        return Consume(self.dataset._node, place, name, self.dealing, consumer=consumer, **given)

    def one(self, consumer: str | None = None, **given: Any) -> Elements:
        return Elements(self.plan(consumer, **given), iteration=0)


def numbers(elements: Any, most: int | None = None) -> list[int]:
    return [int(x) for x in itertools.islice(elements, most)]


@pytest.mark.parametrize(
    "element",
    [
        np.arange(6.0).reshape(2, 3)[:, ::2],
        np.int64(7),
        np.array(["2020-01-01"], "M8[s]"),
        np.zeros((0, 3), np.float32),
        np.array([(1, 2.5)], [("a", "i2"), ("b", "f8")]),
        np.array([1, 2], ">i4"),
        {"b": (np.uint8(3), "text", b"bytes"), "a": {"x": np.ones(5000)}},
        Pair(np.bool_(True), np.array(["x", None], object)),
        (),
    ],
    ids=repr,
)
def test_elements_cross_as_they_are(element: Any) -> None:
    blobs, nbytes = written(element)
    back = read([bytearray(blob) for blob in blobs], 3)

    assert nbytes == sum(map(len, blobs))
    assert isinstance(back, Made)
    assert repr(back.value) == repr(element)
    assert type(back.value) is type(element)
    for leaf in flatten(back.value)[0]:
        assert not isinstance(leaf, np.ndarray) or leaf.flags.writeable


def test_two_consumers_have_each_element_once_and_the_job_ends_for_both() -> None:
    with serving(td.Dataset.range(200)) as job:
        first, second = together(lambda: numbers(job.one()), lambda: numbers(job.one()))

        assert sorted(first + second) == list(range(200))
        assert job.server.consumers() == 0


def test_what_a_consumer_has_is_its_own() -> None:
    with (
        serving(td.Dataset.from_tensor_slices(np.arange(12.0).reshape(3, 4))) as job,
        job.one() as it,
    ):
        first = next(it)
        first += 1

        assert first.tolist() == [1, 2, 3, 4]
        assert next(it).tolist() == [4, 5, 6, 7]


def fails_at_3(x: Any) -> Any:
    if int(x) == 3:
        raise LookupError(f"no {int(x)}")
    return x


def test_an_error_stands_at_its_place() -> None:
    with serving(td.Dataset.range(6).map(fails_at_3)) as job, job.one() as it:
        assert numbers(it, 3) == [0, 1, 2]
        with pytest.raises(LookupError, match="no 3"):
            next(it)
        assert numbers(it) == [4, 5]


def test_an_epoch_is_a_job_of_its_own() -> None:
    with serving(td.Dataset.range(30).shuffle(30, seed=1)) as job:
        ds = Dataset._of(job.plan())
        first, second = numbers(ds), numbers(ds)

        assert sorted(first) == sorted(second) == list(range(30))
        assert first != second


def test_of_epochs_that_are_over_no_iterator_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobserver, "_TICK_S", 0.01)
    with serving(td.Dataset.range(3)) as job:
        for epoch in range(4):
            with Elements(job.plan(), iteration=epoch) as it:
                assert numbers(it) == [0, 1, 2]
        until(lambda: len(job.server._iterations) == 1)


def forgotten(job: Consumers, iteration: int) -> None:
    """Wait until an iteration has ended."""
    until(lambda: iteration not in job.server._iterations)


def test_who_leaves_early_has_left_at_once() -> None:
    """A connection that is closed while answers are on their way is reset, and what was sent last may be lost."""
    with serving(td.Dataset.range(10_000)) as job:
        for _ in range(20):
            with job.one() as it:
                numbers(it, 30)
            assert job.server.consumers() == 0


def test_who_comes_to_an_epoch_that_others_have_finished_has_nothing_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when they have gone on to the next one: its elements were given to them."""
    monkeypatch.setattr(jobserver, "_TICK_S", 0.01)
    told = r"job 'j' has no element for this consumer: others have received all 30 of iteration 0"
    with serving(td.Dataset.range(30)) as job:
        assert numbers(job.one()) == list(range(30))
        with job.one() as late, pytest.warns(UserWarning, match=told):
            assert numbers(late) == []
        with Elements(job.plan(), iteration=1) as it:
            assert numbers(it) == list(range(30))
        forgotten(job, 0)
        with job.one() as late, pytest.warns(UserWarning, match=told):
            assert numbers(late) == []


def test_a_state_of_an_epoch_that_is_over_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobserver, "_TICK_S", 0.01)
    with serving(td.Dataset.range(30)) as job:
        with job.one("a") as it:
            numbers(it, 10)
            state = it.state_dict()
            numbers(it)
        with Elements(job.plan("a"), iteration=1) as it:
            numbers(it)
        forgotten(job, 0)
        with job.one("a") as it:
            it.load_state_dict(state)
            assert numbers(it) == list(range(10, 30))


def test_an_epoch_that_was_begun_again_is_not_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobserver, "_TICK_S", 0.01)
    with serving(td.Dataset.range(30)) as job:
        with job.one("a") as it:
            numbers(it, 10)
            state = it.state_dict()
            numbers(it)
        for _ in range(2):
            with Elements(job.plan("a"), iteration=1) as it:
                next(it)
                forgotten(job, 0)
            with job.one("a") as it:
                it.load_state_dict(state)
                numbers(it, 5)
        with Elements(job.plan("a"), iteration=1) as it:
            next(it)
            forgotten(job, 0)
            with job.one("b") as new:
                rest = numbers(new)
    assert rest
    assert rest == list(range(30))[-len(rest) :]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("kind", ["shared", "rounds"])
def test_who_comes_to_an_epoch_that_others_have_left_early_has_the_rest(
    kind: str, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with so many steps an epoch: the quick consumer may be in the next one before the slow one comes."""
    monkeypatch.setattr(jobserver, "_TICK_S", 0.01)
    ds = td.Dataset.range(200).shuffle(200)
    with serving(ds, Dealing(kind, consumers=2 if kind == "rounds" else None)) as job:
        with job.one("0") as it:
            had = numbers(it, 20)
        with Elements(job.plan("0"), iteration=1) as it:
            next(it)
            if not at_once:
                forgotten(job, 0)
            with job.one("1") as late:
                rest = numbers(late, 50)
    assert len({*had, *rest}) == 70


@pytest.mark.parametrize("at_once", [True, False])
def test_a_state_of_an_epoch_that_others_have_finished_goes_on_without_their_elements(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobserver, "_TICK_S", 0.01)
    ds = td.Dataset.range(100).shuffle(100)
    with serving(ds) as job:
        with job.one("a") as a:
            with job.one("b") as b:
                had = numbers(b, 10) + numbers(a, 10)
                state = b.state_dict()
                numbers(b, 10)  # these are given up
            had += numbers(a)
        for epoch in (1, 2):
            with Elements(job.plan("a"), iteration=epoch) as it:
                next(it)
        with Elements(job.plan("a"), iteration=3) as it:
            next(it)
            if not at_once:
                forgotten(job, 0)
            with job.one("b") as b:
                b.load_state_dict(state)
                had += numbers(b)
    assert sorted(had) == list(range(100))


def test_a_consumer_that_comes_just_as_others_begin_the_next_epoch_has_nothing_of_this_one() -> (
    None
):
    """The iterator of the one that is over is about to end then."""
    with serving(td.Dataset.range(30)) as job:
        assert numbers(job.one()) == list(range(30))
        with Elements(job.plan(), iteration=1) as it:
            next(it)
            with job.one() as late, pytest.warns(UserWarning, match="all 30 of iteration 0"):
                assert numbers(late) == []


def test_what_is_known_of_epochs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobserver, "_MOST_RESTING", 3)
    with serving(td.Dataset.range(100)) as job:
        for epoch in range(8):
            with Elements(job.plan(), iteration=epoch) as it:
                numbers(it, 5)
        assert list(job.server._resting) == [4, 5, 6]
        monkeypatch.setattr(jobserver, "_MOST_RESTING_BYTES", 0)
        numbers(Elements(job.plan(), iteration=8), 5)
        assert not job.server._resting


def test_a_run_of_other_seeds_goes_back_to_an_epoch_that_all_have_left() -> None:
    """Nobody is there whom its state could contradict."""
    ds = td.Dataset.range(30).shuffle(30)
    with serving(ds) as job, job.one("a") as it:
        had = numbers(it, 10)
        state = it.state_dict()
    with serving(ds) as job:
        numbers(job.one())
        numbers(Elements(job.plan(), iteration=1))
        with job.one("a") as it:
            it.load_state_dict(state)
            assert sorted(had + numbers(it)) == list(range(30))


def test_passes_that_end_early_leave_their_epochs() -> None:
    """Nobody closes a consumer whose pass is over before the job is: the next pass takes its place."""
    with serving(td.Dataset.range(100)) as job:
        ds = Dataset._of(job.plan("a")).take(5).repeat(10)
        with Elements(ds._node, iteration=0, workers=0) as it:
            numbers(it, 50)
            until(lambda: job.server.consumers() <= 1, timeout_s=10.0)
            assert sum(not each.ended for each in job.server._iterations.values()) <= 2


def test_nobody_has_missed_a_round_that_was_not_complete() -> None:
    with (
        serving(td.Dataset.range(3), Dealing("rounds", consumers=4)) as job,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        consumers = [partial(numbers, job.one(str(k))) for k in range(4)]
        assert together(*consumers) == [[], [], [], []]


def test_a_state_goes_on_and_is_small() -> None:
    with serving(td.Dataset.range(500)) as job:
        with job.one("a") as it:
            had = numbers(it, 300)
            state = json.loads(json.dumps(it.state_dict()))
            numbers(it, 50)  # these are given up
        with job.one("a") as it:
            it.load_state_dict(state)

            assert numbers(it) == list(range(300, 500))
    assert had == list(range(300))
    assert len(json.dumps(state)) < 4096


def test_a_job_that_another_agent_begins_again_waits_for_the_consumers_it_had() -> None:
    ds = td.Dataset.range(60)
    with serving(ds) as job, job.one("a") as a, job.one("b") as b:
        # After six more, each knows who else is there.
        had = numbers(a, 5) + numbers(b, 3) + numbers(a, 6) + numbers(b, 6)
        states = a.state_dict(), b.state_dict()
    with (
        serving(ds, Dealing(lease_s=20.0), again=True) as job,
        job.one("new") as new,
        job.one("a") as a,
        job.one("b") as b,
    ):
        for each, state in zip((a, b), states, strict=True):
            each.load_state_dict(state)

        def after_the_new_one(it: Elements) -> list[int]:
            deadline = time.monotonic() + 20
            while not job.server.consumers():
                assert time.monotonic() < deadline
                time.sleep(0.002)
            return numbers(it)

        rest = together(lambda: numbers(new), *(partial(after_the_new_one, it) for it in (a, b)))

    assert sorted([*had, *itertools.chain(*rest)]) == list(range(60))


def test_an_epoch_of_a_job_that_has_begun_again_waits_for_its_consumers_until_a_lease_is_over() -> (
    None
):
    """Not a lease from its own beginning: they may have been in this epoch, and are back by then."""
    with serving(td.Dataset.range(10), Dealing(lease_s=20.0), again=True) as job:
        began = time.monotonic()
        job.server._awaits_until = began + 0.2
        with Elements(job.plan(), iteration=1) as it:
            assert numbers(it) == list(range(10))
        assert 0.2 <= time.monotonic() - began < 10.0


def test_a_job_that_begins_again_waits_also_if_one_that_begins_from_merged_states_comes_first() -> (
    None
):
    ds = td.Dataset.range(60)
    with serving(ds) as job, job.one("a") as a, job.one("b") as b:
        had = numbers(a, 8) + numbers(b, 8)
        merged = merge_states([a.state_dict(), b.state_dict()])
    with serving(ds) as job, job.one("c") as c:
        c.load_state_dict(merged)
        had += numbers(c, 12)
        state = c.state_dict()
    with (
        serving(ds, Dealing(lease_s=20.0), again=True) as job,
        job.one("c") as c,
        job.one("d") as d,
    ):
        d.load_state_dict(merged)
        c.load_state_dict(state)

        came = threading.Event()

        def first() -> list[int]:
            found = numbers(d, 1)
            came.set()
            return found + numbers(d)

        def after_the_other() -> list[int]:
            assert not came.wait(0.5), "it was given elements"
            return numbers(c)

        rest = together(first, after_the_other)

    assert sorted([*had, *itertools.chain(*rest)]) == list(range(60))


def test_states_of_all_are_merged_and_go_on_anywhere() -> None:
    ds = td.Dataset.range(400).shuffle(100, seed=5).map(lambda x: x * 3).batch(2).unbatch()
    whole = numbers(ds)
    with serving(ds) as job, job.one("a") as a, job.one("b") as b:
        had = numbers(a, 21) + numbers(b, 13) + numbers(a, 9)
        merged = merge_states([a.state_dict(), b.state_dict()])
    with serving(ds) as job, job.one() as a, job.one() as b, job.one() as c:
        for each in (a, b, c):
            each.load_state_dict(merged)
        rest = list(itertools.chain(*together(*(partial(numbers, it) for it in (a, b, c)))))
    for workers in (0, 1):
        with Elements(ds._node, iteration=0, workers=workers) as it:
            it.load_state_dict(alone(merged))
            some = numbers(it, 3)
            middle = it.state_dict()
            assert sorted(had + some + numbers(it)) == sorted(whole)
            it.load_state_dict(json.loads(json.dumps(middle)))
            assert sorted(had + some + numbers(it)) == sorted(whole)

    assert sorted(had + rest) == sorted(whole)


def test_states_of_other_jobs_are_refused_with_words() -> None:
    with serving(td.Dataset.range(10)) as job, job.one("a") as it:
        next(it)
        state = it.state_dict()
        with (
            job.one("a", name="k") as other,
            pytest.raises(IncompatibleCheckpointError, match="'k' here, 'j' in the"),
        ):
            other.load_state_dict(state)
    with (
        serving(td.Dataset.range(11)) as job,
        job.one("a") as it,
        pytest.raises(IncompatibleCheckpointError, match=r"0 range.stop: 11 here, 10 in the state"),
    ):
        it.load_state_dict(state)
    with serving(td.Dataset.range(10).shuffle(10)) as job, job.one("a") as it:
        next(it)
        random = it.state_dict()
    with serving(td.Dataset.range(10).shuffle(10)) as job, job.one("b") as b, job.one("a") as it:
        next(b)
        it.load_state_dict(random)
        with pytest.raises(CheckpointError, match="job 'j': the state is of another run"):
            next(it)


def test_a_second_consumer_of_one_name_takes_the_place_of_the_first() -> None:
    with serving(td.Dataset.range(1000)) as job, job.one("a") as first, job.one("a") as second:
        assert numbers(first, 2) == [0, 1]
        assert len(numbers(second, 100)) == 100
        with pytest.raises(
            CheckpointError, match=r"another consumer has joined this job as 'a'.*state of its own"
        ):
            numbers(first, 100)


def test_a_dataset_without_order_has_no_numbers() -> None:
    ds = td.Dataset.range(3).with_options(td.Options(deterministic=False))

    with contextlib.closing(Loop()) as loop, pytest.raises(ValueError, match="deterministic=False"):
        JobServer(ds, loop)


def test_rounds_give_each_consumer_its_share_of_each_round() -> None:
    with serving(td.Dataset.range(32), Dealing("rounds", consumers=3)) as job:
        found = together(*(partial(numbers, job.one(str(i))) for i in range(3)))

    assert found == [list(range(i, 30, 3)) for i in range(3)]  # the last round is not whole


def noted(calls: list[int], x: Any) -> Any:
    """Return an element, and note that it was computed."""
    calls.append(int(x))
    return x


def test_trainers_of_a_window_each_have_everything() -> None:
    dealing = Dealing("window", lag="wait", most=8)
    calls: list[int] = []
    with serving(td.Dataset.range(100).map(partial(noted, calls)), dealing) as job:
        found = together(*(partial(numbers, job.one(f"t{i}")) for i in range(3)))

    assert max(len(each) for each in found) == 100
    assert all(each == list(range(100))[-len(each) :] for each in found)
    assert len(calls) == 100


def test_a_trainer_that_is_slow_skips_and_is_told_how_many() -> None:
    dealing = Dealing("window", most=8)
    with (
        serving(td.Dataset.range(200), dealing) as job,
        job.one("slow") as slow,
        job.one("quick") as quick,
    ):
        assert numbers(slow, 1) == [0]
        assert 149 <= numbers(quick, 150)[-1] <= 160  # it began with what was there
        with pytest.warns(
            UserWarning, match=r"trainer 'slow' was too slow for \d+ elements of job 'j'"
        ):
            late = numbers(slow)

        assert late == sorted(late)
        assert late[-1] == 199
        assert len(late) < 100


def test_the_others_wait_for_a_trainer_if_they_are_to() -> None:
    dealing = Dealing("window", lag="wait", most=8)
    with (
        serving(td.Dataset.range(100), dealing) as job,
        job.one("slow") as slow,
        job.one("quick") as quick,
    ):
        assert numbers(slow, 1) == [0]
        rest, all_ = together(lambda: numbers(slow), lambda: numbers(quick))

    assert rest == list(range(1, 100))
    assert all_ == list(range(100))[-len(all_) :]  # it begins with what is there when it joins


def test_a_trainer_goes_back_to_its_state() -> None:
    dealing = Dealing("window", lag="wait", most=8)
    with serving(td.Dataset.range(100), dealing) as job:
        with job.one("a") as it:
            numbers(it, 10)
            state = it.state_dict()
            numbers(it, 50)
        with job.one("a") as it:
            it.load_state_dict(state)

            assert numbers(it) == list(range(10, 100))


def test_what_is_made_ahead_is_bounded() -> None:
    calls: list[int] = []
    ds = td.Dataset.range(1000).map(partial(noted, calls))
    with serving(ds, Dealing(most=6)) as job, job.one(ahead=2) as it:
        numbers(it, 20)

        assert len(calls) <= 20 + 2 * 2 + 6 + 1


@pytest.mark.parametrize(
    "dealing", [Dealing(), Dealing("window", lag="wait")], ids=["shared", "window"]
)
def test_large_elements_wait_until_earlier_ones_are_confirmed(
    dealing: Dealing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer in a long step reads nothing: what it was answered waits in the server's memory, which is bounded."""
    monkeypatch.setattr(answering, "_MOST_UNSENT", 12 << 20)
    for module in (jobs_job, jobs_window):
        monkeypatch.setattr(module, "MOST_GIVEN_BYTES", 4 << 20)
    joins, join = list[Any](), JobServer._join

    def joined(server: JobServer, fields: dict[str, Any], caller: int) -> Any:
        joins.append(fields)
        return join(server, fields, caller)

    monkeypatch.setattr(JobServer, "_join", joined)
    ds = td.Dataset.range(12).map(lambda x: np.full(3 << 20, x, np.uint8))
    with serving(ds, dealing) as job, job.one("a", ahead=16) as it:
        found = []
        for x in it:
            found.append(int(x[-1]))
            time.sleep(0.5 * (len(found) < 3))
    assert found == list(range(12))
    assert len(joins) == 1, "its connection was closed"


@pytest.mark.parametrize("kind", [RuntimeError, PermissionError, TimeoutError, ConnectionError])
def test_the_iterator_that_cannot_begin_is_an_error_of_its_consumers(
    kind: type[Exception],
) -> None:
    """Whatever it is, and once: the next consumer has the iterator begun anew."""
    fails = {"now"}

    def begins() -> Any:
        if fails:
            raise kind("no")

    ds = td.Dataset.range(3).with_options(td.Options(worker_init=begins))
    with serving(ds) as job:
        with job.one() as it, pytest.raises(kind, match="no"):
            next(it)
        fails.clear()
        with job.one() as it:
            assert numbers(it) == [0, 1, 2]


def test_a_wait_that_is_interrupted_again_and_again_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw, wait = random.Random(4), JobConnection.wait

    def interrupted(self: JobConnection, *args: Any) -> None:
        if draw.random() < 0.2:
            raise KeyboardInterrupt
        wait(self, *args)
        if draw.random() < 0.2:
            raise KeyboardInterrupt

    monkeypatch.setattr(JobConnection, "wait", interrupted)
    had = []
    with serving(td.Dataset.range(40)) as job:
        ds = Dataset._of(job.plan("a")).map(lambda x: x * 2)
        with Elements(ds._node, iteration=0, workers=0) as it:
            while True:
                try:
                    had.append(int(next(it)))
                except KeyboardInterrupt:
                    continue
                except StopIteration:
                    break

    assert had == [2 * x for x in range(40)]


def test_a_forked_child_takes_nothing_of_its_parents() -> None:
    """It has the connection, too: a question of its own would be answered to the parent, or the reverse."""
    with serving(td.Dataset.range(100)) as job, job.one("a") as it:
        had = numbers(it, 5)
        pid = os.fork()
        if pid == 0:  # pragma: no cover - the child
            code = 1
            try:
                signal.alarm(10)
                next(it)
            except RuntimeError as error:
                code = "make another there" not in str(error)
                it.close()
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert job.server.consumers() == 1
        had += numbers(it)
    assert had == list(range(100))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_computed_behind_a_job_goes_on_from_its_state(workers: int) -> None:
    with serving(td.Dataset.range(120)) as job:
        ds = Dataset._of(job.plan("a")).map(double).batch(4)
        with Elements(ds._node, iteration=0, workers=workers) as it:
            had = [next(it).tolist() for _ in range(7)]
            state = json.loads(json.dumps(it.state_dict()))
            for _ in range(5):
                next(it)
        with Elements(ds._node, iteration=0, workers=2 - workers) as it:
            it.load_state_dict(state)
            rest = [batch.tolist() for batch in it]

    assert sorted(itertools.chain(*had, *rest)) == [2 * x for x in range(120)]


def double(x: Any) -> Any:
    return 2 * x


def test_a_server_of_another_version_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a rolling upgrade: waiting for it to change its version would look like a hang."""
    other = {**handshake.versions(), "numpy": "1.0"}
    with serving(td.Dataset.range(3)) as job, job.one(patience_s=1.0) as it:
        monkeypatch.setattr(dialing, "versions", lambda: other)
        for _ in range(2):
            with pytest.raises(Refused, match=r"numpy"):
                next(it)
        monkeypatch.undo()
        assert numbers(it) == [0, 1, 2]


def test_a_dataset_that_the_dispatcher_no_longer_knows_is_an_error_at_once() -> None:
    class Restarted(FixedPlace):
        def address(self, *, received: bool = False) -> Address:
            raise FileNotFoundError("no dataset d is registered here")

    place = Restarted(("127.0.0.1", 1), OURS)
    node = Consume(td.Dataset.range(3)._node, place, "j", Dealing(), patience_s=1.0)
    with Elements(node, iteration=0) as it, pytest.raises(FileNotFoundError, match="no dataset"):
        next(it)


def test_who_waits_long_for_a_server_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_places, "_ALONE_S", 0.1)
    place = FixedPlace(("127.0.0.1", free_port()), OURS)
    node = Consume(td.Dataset.range(3)._node, place, "j", Dealing(), patience_s=1.5)
    with (
        Elements(node, iteration=0) as it,
        pytest.warns(UserWarning, match=r"job 'j' is not served for .* nothing listens there"),
        pytest.raises(ConnectionError, match="not served"),
    ):
        next(it)


def test_another_job_of_the_name_is_not_joined() -> None:
    """It is waited for, as the dispatcher tells where the right one is served."""

    class Another(FixedPlace):
        @property
        def wanted(self) -> dict[str, Any]:
            return {**super().wanted, "dataset": "e"}

    ds = td.Dataset.range(3)
    with serving(ds) as job:
        place = Another(job.address, OURS)
        node = Consume(ds._node, place, "j", Dealing(), patience_s=0.2)
        with Elements(node, iteration=0) as it, pytest.raises(ConnectionError, match="not served"):
            next(it)
        assert not job.server.consumers()


def test_a_job_that_ends_while_it_is_joined_begins_no_iteration() -> None:
    claim = Holding("a", 2).claim().to_json()
    with contextlib.closing(Loop()) as loop:
        server = JobServer(td.Dataset.range(3), loop)
        server.close()

        answer = server._handle({"do": "join", "claim": claim, "iteration": 0}, [], 1)

        assert isinstance(answer, Later), "its connection is about to end"
        [served] = server._iterations.values()
        served._thread.join(20)
        assert served.over
