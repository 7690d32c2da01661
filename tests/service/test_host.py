"""One pipeline for several processes: each gets every element, has its own state, and harms no other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.changing import config
from tests.service.hosted import (
    Consumer,
    checked,
    end_of,
    firsts,
    host_pids,
    hosted,
    is_torn,
)
from tests.service.waiting import until

import tundish as td
from tundish.loader.service.host import pipeline
from tundish.loader.service.host import starting as hoststarting
from tundish.loader.service.host.host import HostedDataset, host
from tundish.loader.service.host.slots import PrivateSlots

STARTED = hoststarting.start_host

pytestmark = pytest.mark.usefixtures("forks_hosts")

ALL = [list(range(first, first + 4)) for first in range(0, 40, 4)]


def reading(name: str, **given: Any) -> Iterator[Any]:
    """Yield what each batch is, and whether it is torn."""
    for batch in hosted(name, **given):
        yield firsts(batch), is_torn(batch)


def test_one_consumer_gets_what_the_dataset_gives() -> None:
    plain = list(checked())

    with iter(hosted("one", linger=0.0)) as it:
        found = list(it)

    assert len(found) == len(plain)
    for mine, other in zip(found, plain, strict=True):
        for key in other:
            np.testing.assert_array_equal(mine[key], other[key])
            assert mine[key].dtype == other[key].dtype
            assert mine[key].flags.writeable


def test_consumers_get_every_element_of_one_pipeline(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hoststarting, "start_host", STARTED)
    consumers = [Consumer(reading, "several", workers=1) for _ in range(4)]
    first = [each.next() for each in consumers]
    pids = host_pids(runtime)
    rest = [each.rest() for each in consumers]

    assert len(pids) == 1
    assert all(
        ([one, *more] == [(batch, False) for batch in ALL])
        for one, more in zip(first, rest, strict=True)
    )


def test_states_are_those_of_an_iterator_of_the_dataset_alone() -> None:
    plain = iter(checked())
    with iter(hosted("states", linger=0.0)) as it:
        assert it.state_dict() == plain.state_dict()
        for _ in ALL:
            assert firsts(next(it)) == firsts(next(plain))
            assert it.state_dict() == plain.state_dict()
        assert next(it, None) is next(plain, None) is None
        assert it.state_dict() == plain.state_dict()
    plain.close()
    assert it.state_dict() == plain.state_dict()


def test_states_within_a_parcel_of_small_elements_are_exact() -> None:
    ds = td.Dataset.range(300).shuffle(50, seed=3).map(lambda x: x * 2)
    plain = iter(ds)
    with iter(host(ds, "small", linger=0.0)) as it:
        for step in range(200):
            assert next(it) == next(plain)
            if step % 7 == 0:
                assert it.state_dict() == plain.state_dict()
    plain.close()


def test_a_handlers_state_is_of_the_last_delivered_element() -> None:
    """A signal comes again and again, mostly while the consumer waits for the host process; a plain iterator continues."""
    ds = td.Dataset.range(60).map(slowly)
    saved: list[tuple[int, Any]] = []
    got: list[int] = []
    before = signal.getsignal(signal.SIGALRM)
    with iter(host(ds, "handled", linger=0.2)) as it:
        next(it)
        it.state_dict()  # imports modules, which a second signal would find half imported

        def save(*_: object) -> None:
            saved.append((len(got), it.state_dict()))

        signal.signal(signal.SIGALRM, save)
        signal.setitimer(signal.ITIMER_REAL, 0.003, 0.007)
        try:
            got.extend(int(x) for x in it)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert got == list(range(1, 60))
    assert len(saved) > 3
    for count, state in saved[::4]:
        with ds.iterator(workers=0) as again:
            again.load_state_dict(state)
            # One element may be on its way from `next` to the list.
            assert next(again, 60) in (count + 1, count + 2)


def slowly(x: Any) -> Any:
    time.sleep(0.003)
    return x


@pytest.mark.parametrize("after", [0, 3, 10])
def test_each_goes_on_from_the_others_state(after: int) -> None:
    with iter(hosted("resumed")) as it:
        for _ in range(after):
            next(it)
        state = it.state_dict()
    plain = iter(checked())
    plain.load_state_dict(state)
    assert [firsts(batch) for batch in plain] == ALL[after:]
    with iter(hosted("resumed")) as again:
        again.load_state_dict(state)
        assert [firsts(batch) for batch in again] == ALL[after:]


def test_a_consumer_begins_at_another_position_than_the_others() -> None:
    with iter(hosted("behind", window="1 MB")) as ahead:
        states = []
        for _ in range(8):
            states.append(ahead.state_dict())
            next(ahead)
        with iter(hosted("behind", window="1 MB")) as behind:
            behind.load_state_dict(states[2])
            assert firsts(next(behind)) == ALL[2]
            assert behind.host_pid == ahead.host_pid
            assert [firsts(batch) for batch in ahead] == ALL[8:]
            assert [firsts(batch) for batch in behind] == ALL[3:]


def test_iterations_differ_and_are_the_same_for_all() -> None:
    def shuffled(name: str) -> HostedDataset:
        return host(td.Dataset.range(20).shuffle(20), name, linger=1.0)

    first, second = shuffled("epochs"), shuffled("epochs")
    with iter(first) as one, iter(second) as other:
        zeroth = [int(x) for x in one]
        assert [int(x) for x in other] == zeroth
    with iter(first) as one, iter(second) as other:
        found = [int(x) for x in one]
        assert [int(x) for x in other] == found
    assert found != zeroth
    assert sorted(found) == sorted(zeroth) == list(range(20))


def test_what_one_changes_in_place_nobody_else_sees() -> None:
    """Each page of a slot that was written to is dropped before the slot shows the next batch."""

    def writing() -> Iterator[Any]:
        for batch in hosted("writers", elements=400, workers=1, window="2 MB"):
            yield firsts(batch), is_torn(batch)
            batch["data"][:] = 255
            batch["crc"][:] = 0

    many = [list(range(first, first + 4)) for first in range(0, 400, 4)]
    plain = Consumer(reading, "writers", elements=400, workers=1, window="2 MB")
    consumers = [Consumer(writing), Consumer(writing), plain]
    for consumer in consumers:
        assert consumer.rest() == [(batch, False) for batch in many]


def test_pages_that_were_written_to_are_dropped_with_the_last_view() -> None:
    fd = os.memfd_create("slots")
    os.ftruncate(fd, 1 << 20)
    os.pwrite(fd, b"a" * (1 << 20), 0)
    slots = PrivateSlots(os.dup(fd), 1 << 19, 2)
    first, second = slots.view(1, 100, 9000), slots.view(1, 9000, 20000)
    second[:] = ord("x")
    os.pwrite(fd, b"b" * (1 << 20), 0)
    assert second[0] == ord("x")
    del first
    slots.leave(1)
    assert second.tobytes() == b"x" * 11000  # the page that both have is not dropped under it
    del second
    slots.leave(1)
    again = slots.view(1, 0, 20000)
    assert again.tobytes() == b"b" * 20000
    assert slots.written == 1
    slots.leave(1)
    assert slots.written == 1
    slots.close()
    os.close(fd)


def test_views_stay_valid_after_closing_and_after_the_host_process_has_died() -> None:
    kept = []
    with iter(hosted("kept", elements=80, workers=1)) as it:
        kept += [next(it) for _ in range(3)]
        pid = it.host_pid
    with iter(
        hosted("kept", elements=80, workers=1)
    ) as other:  # it goes on computing into free slots
        for batch in other:
            assert not is_torn(batch)
    assert not any(map(is_torn, kept))
    assert pid is not None
    if not end_of(pid):
        os.kill(pid, signal.SIGKILL)
        until(lambda: end_of(pid), "killed")
    assert not any(map(is_torn, kept))
    with iter(hosted("kept", elements=80, workers=1)) as other:
        assert firsts(next(other)) == ALL[0]


def test_all_elements_can_be_held() -> None:
    """Beyond its share of memory a consumer gets copies: everybody goes on."""
    with iter(hosted("hoard", elements=200, window="2 MB", linger=0.0)) as it:
        held = list(it)
    assert [firsts(batch) for batch in held] == [list(range(at, at + 4)) for at in range(0, 200, 4)]
    assert not any(map(is_torn, held))


def test_an_error_stands_in_the_place_of_its_element_for_each() -> None:
    def picky(x: Any) -> Any:
        if x == 3:
            raise KeyError("three")
        return x

    ds = td.Dataset.range(6).map(picky, num_parallel_calls=1)
    for _ in range(2):
        found: list[Any] = []
        with iter(host(ds, "errors", linger=0.5)) as it:
            while True:
                try:
                    found.append(int(next(it)))
                except StopIteration:
                    break
                except KeyError as error:
                    found.append(error.args)
        assert found == [0, 1, 2, ("three",), 4, 5]


def test_what_is_not_in_columns_travels_too() -> None:
    def odd(x: Any) -> Any:
        n = int(x)
        big = np.arange(n * 40_000, dtype=np.float64)
        return {
            "text": "é" * n,
            "raw": b"\0" * n,
            "ragged": big,
            "object": np.array([n, None], object),
        }

    for workers in (0, 1):
        ds = td.Dataset.range(5).map(odd, num_parallel_calls=workers or None)
        with iter(ds) as plain, iter(host(ds, f"odd-{workers}", linger=0.1)) as it:
            for mine, other in zip(it, plain, strict=True):
                assert mine["text"] == other["text"]
                assert mine["raw"] == other["raw"]
                np.testing.assert_array_equal(mine["ragged"], other["ragged"])
                assert mine["object"].tolist() == other["object"].tolist()


def test_another_dataset_of_the_same_name_is_an_error_with_the_difference() -> None:
    with iter(host(td.Dataset.range(10).batch(2), "named", linger=0.1)) as it:
        next(it)
        with pytest.raises(
            ValueError, match=r"runs another dataset.*\n.*batch.*size: 3 here, 2 there"
        ):
            iter(host(td.Dataset.range(10).batch(3), "named"))
        with pytest.raises(ValueError, match="operators here: range -> map -> batch"):
            iter(host(td.Dataset.range(10).map(abs).batch(2), "named"))
        assert next(it).tolist() == [2, 3]
    arrays = [td.Dataset.from_tensor_slices(np.arange(5) + shift) for shift in (0, 1)]
    with iter(host(arrays[0], "arrays", linger=0.1)) as it:
        next(it)
        with pytest.raises(ValueError, match="runs another dataset"):
            iter(host(arrays[1], "arrays"))


def test_two_names_are_two_host_processes(runtime: Path) -> None:
    with iter(hosted("a")) as one, iter(hosted("b", elements=8)) as other:
        assert one.host_pid != other.host_pid
        assert len(host_pids(runtime)) == 2
        assert [firsts(batch) for batch in other] == ALL[:2]
        assert [firsts(batch) for batch in one] == ALL


def test_names_may_have_a_hundred_characters() -> None:
    """A socket's path has less room, so its file has another name."""
    names = ["n" * 99 + last for last in "ab"]
    made = [iter(host(td.Dataset.range(3 + at), name, linger=0.1)) for at, name in enumerate(names)]
    with made[0] as one, made[1] as other:
        assert [int(x) for x in one] == [0, 1, 2]
        assert [int(x) for x in other] == [0, 1, 2, 3]


def test_it_can_be_started_in_advance_and_ends_when_the_last_has_left(runtime: Path) -> None:
    ds = hosted("advance", linger=0.2)
    ds.start()
    (pid,) = host_pids(runtime)
    with iter(ds) as it:
        assert it.host_pid == pid
        next(it)
    until(lambda: end_of(pid), "the host process goes when nobody is there")
    assert not list(runtime.iterdir())


def test_it_goes_last() -> None:
    ds = host(td.Dataset.range(3), "last")
    with pytest.raises(TypeError, match="apply operators before it"):
        ds.batch(2)
    with pytest.raises(TypeError, match="call host once"):
        host(ds, "again")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("../x", {}),
        ("", {}),
        ("a", {"lag": "drop"}),
        ("a", {"window": "much"}),
        ("a", {"consumers": 0}),
        ("a", {"linger": -1}),
    ],
)
def test_bad_arguments(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|is not a number"):
        host(td.Dataset.range(3), name, **given)


def test_a_forked_child_of_a_consumer_harms_nobody() -> None:
    with iter(hosted("forked", elements=200, window="2 MB")) as it:
        batch = next(it)

        def child() -> Iterator[Any]:
            try:
                next(it)
            except RuntimeError as error:
                yield str(error)
            it.close()

        asked = Consumer(child)
        assert "make another there" in asked.next()
        assert asked.wait() == 0
        assert [firsts(each) for each in it] == [list(range(at, at + 4)) for at in range(4, 200, 4)]
        assert not is_torn(batch)


def counting(path: Path) -> Any:
    """Return a function that leaves a byte for each element that it computes, wherever that is."""

    def count(x: Any) -> Any:
        with path.open("ab") as file:
            file.write(b".")
        return {"x": x, "data": np.full(100_000, x, np.uint8)}

    return count


def test_one_that_has_caught_up_shares_the_pipeline_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "computed"
    ds = td.Dataset.range(120).map(counting(path)).batch(2)
    shared = host(ds, "merged", linger=0.2, window="1 MB")
    with iter(shared) as ahead:
        states = []
        for _ in range(12):
            states.append(ahead.state_dict())
            next(ahead)
        with iter(shared) as behind:
            behind.load_state_dict(states[8])
            found = [int(next(behind)["x"][0]) for _ in range(6)]
            for mine, other in zip(ahead, behind, strict=False):
                found.append(int(other["x"][0]))
                assert mine["x"][0] in (found[-1], found[-1] - 4)
            found += [int(batch["x"][0]) for batch in behind]
    assert found == list(range(16, 120, 2))
    assert path.stat().st_size < 120 + 24


def test_of_many_positions_the_first_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever begins there joins the stream of the others, however late."""
    monkeypatch.setattr(pipeline, "_MOST_KNOWN", 3)
    known = pipeline.KnownPositions()
    for number in range(9):
        known.note(None if number == 0 else {"at": number}, number)
    assert known.number(None) == 0
    assert [known.number({"at": at}) for at in (1, 6, 7, 8)] == [None, None, 7, 8]


def test_those_that_begin_at_one_state_share_a_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "computed"
    ds = td.Dataset.range(40).shuffle(9, seed=2).map(counting(path)).batch(2)
    with ds.iterator(iteration=0) as plain:
        for _ in range(5):
            next(plain)
        state = plain.state_dict()
    before = path.stat().st_size
    shared = host(ds, "from-a-state", linger=0.2)
    with iter(shared) as one, iter(shared) as other:
        one.load_state_dict(state)
        other.load_state_dict(state)
        assert [x["x"].tolist() for x in one] == [x["x"].tolist() for x in other]
    assert path.stat().st_size - before < 2 * 30, "each has a pipeline of its own"


@pytest.mark.filterwarnings("ignore:.*changed at run time")
@pytest.mark.parametrize("workers", [0, 1])
def test_globals_have_the_first_consumers_values(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hoststarting, "start_host", STARTED)  # not a fork, which has everything
    monkeypatch.setattr(config, "SIZE", 77)
    monkeypatch.setattr(config, "STEPS", list(range(20_000)))
    monkeypatch.setattr(config, "NAME", abs)
    ds = td.Dataset.range(3).map(
        lambda x: config.SIZE + config.STEPS[int(x) + 9000] + config.NAME(-1)
    )
    shared = host(ds.with_options(td.Options(workers=workers)), f"globals-{workers}", linger=0.2)
    assert [int(x) for x in shared] == [9078, 9079, 9080]
