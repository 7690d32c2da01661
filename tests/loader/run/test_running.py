"""Ways of running a plan: out of turn, with deadlines, by threads, set up by the user, traced."""

from __future__ import annotations

import collections
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import descriptors
from tests.rooms import visits

from tundish import Dataset, Options
from tundish.errors import SharedMemoryError, StalledError, WorkerDiedError
from tundish.loader.run.coordinating.coordinator import Coordinator
from tundish.loader.run.coordinating.store import shared_ring
from tundish.loader.run.iterator import Iterator
from tundish.loader.run.parallelism import parallelism_of
from tundish.shm.ring import SlotState
from tundish.testing import digest
from tundish.testing.files import files, read


def uneven(x: Any) -> Any:
    """Every tenth element takes much longer than the others."""
    if x % 10 == 0:
        time.sleep(0.01)
    return x * 2


def odd(x: Any) -> bool:
    return bool(x % 2)


def no_third(x: Any) -> bool:
    return bool(x % 3)


UNORDERED = {
    "map": lambda: Dataset.range(120).map(uneven, deterministic=False),
    "filter": lambda: Dataset.range(200).filter(odd).map(uneven, deterministic=False).repeat(2),
    "two stages": lambda: (
        Dataset.range(120)
        .map(uneven)
        .filter(no_third)
        .shuffle(5, seed=1)
        .map(uneven)
        .with_options(Options(deterministic=False))
    ),
}


@pytest.mark.parametrize("name", UNORDERED)
@pytest.mark.parametrize("step", [0, 7, 31])
def test_out_of_turn_every_element_comes_once_also_after_a_restore(name: str, step: int) -> None:
    ds = UNORDERED[name]()
    want = sorted(int(x) for x in ds.iterator(workers=0))
    with ds.iterator(workers=2) as it:
        first = [int(next(it)) for _ in range(step)]
        state = json.loads(json.dumps(it.state_dict()))
    for workers in (0, 3):
        with ds.iterator(workers=workers) as it:
            it.load_state_dict(state)
            assert sorted(first + [int(x) for x in it]) == want


def test_out_of_turn_is_out_of_turn() -> None:
    # The first element waits until three others have been delivered.
    gate = threading.Event()

    def wait_at_the_first(x: Any) -> Any:
        if x == 0:
            assert gate.wait(20)
        return x

    ds = Dataset.range(12).map(wait_at_the_first, deterministic=False)
    with ds.iterator(workers=2, executor="thread") as it:
        found = []
        for x in it:
            found.append(int(x))
            if len(found) == 3:
                gate.set()
    assert found.index(0) >= 3
    assert sorted(found) == list(range(12))


def sleeps_for_ever(x: Any) -> Any:
    if x == 5:
        time.sleep(1000)
    return x


def test_a_deadline_ends_an_element_and_shows_where_it_stood() -> None:
    ds = Dataset.range(8).map(sleeps_for_ever).with_options(Options(deadline=0.3, workers=1))
    found: list[Any] = []
    with iter(ds) as it:
        while len(found) < 8:
            try:
                found.append(int(next(it)))
            except StalledError as error:
                found.append(error)
    late = found.pop(5)
    assert found == [0, 1, 2, 3, 4, 6, 7]
    assert "sleeps_for_ever" in late.detail
    assert late.what == "element 5 in map#1"
    assert late.seconds == 0.3


def sleeps_deep_down(x: Any, depth: int = 150) -> Any:
    return sleeps_deep_down(x, depth - 1) if depth else sleeps_for_ever(x)


def test_a_deadline_in_a_deep_stack_is_no_death() -> None:
    ds = Dataset.range(5, 7).map(sleeps_deep_down).with_options(Options(deadline=0.3, workers=1))
    with iter(ds) as it:
        with pytest.raises(StalledError, match="sleeps_for_ever"):
            next(it)
        assert next(it) == 6
        assert it.stats.restarts == 1


def dies_at_three(x: Any) -> Any:
    if x == 3:
        os._exit(7)
    return x


def test_as_many_deaths_as_the_user_allows() -> None:
    ds = Dataset.range(6).map(dies_at_three).with_options(Options(max_deaths=1, workers=2))
    found: list[Any] = []
    with iter(ds) as it:
        while len(found) < 6:
            try:
                found.append(int(next(it)))
            except WorkerDiedError as error:
                found.append((error.deaths, error.how))
    assert found == [0, 1, 2, (1, "exit status 7"), 4, 5]


def what_was_set(_: Any) -> Any:
    return os.environ.get("SET_BY_INIT", "nothing")


def set_something() -> None:
    os.environ["SET_BY_INIT"] = "something"


@pytest.mark.parametrize("workers", [0, 2])
def test_worker_init_runs_before_the_first_task(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SET_BY_INIT", raising=False)
    ds = Dataset.range(3).map(what_was_set).with_options(Options(worker_init=set_something))
    with ds.iterator(workers=workers) as it:
        assert list(it) == ["something"] * 3
    monkeypatch.delenv("SET_BY_INIT", raising=False)


def fails_to_start() -> None:
    raise LookupError("no such device", 3)


def test_an_error_of_worker_init_reaches_the_consumer() -> None:
    ds = Dataset.range(3).map(uneven).with_options(Options(worker_init=fails_to_start, workers=1))
    with iter(ds) as it, pytest.raises(LookupError) as caught:
        next(it)
    assert caught.value.args == ("no such device", 3)


def how_many_inside(x: Any) -> Any:
    inner = Dataset.range(2).map(uneven, num_parallel_calls=2)
    with iter(inner) as it:
        return it.stats.workers * 10 + len(list(it)) + x * 0


def test_no_workers_of_workers() -> None:
    ds = Dataset.range(2).map(how_many_inside, num_parallel_calls=1)
    with iter(ds) as it:
        assert [int(x) for x in it] == [2, 2]


def test_who_says_how_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNDISH_WORKERS", raising=False)
    plan = Dataset.range(9).map(uneven, num_parallel_calls=3).map(uneven, num_parallel_calls=5)
    root = plan._node
    assert parallelism_of(root, Options(), None).workers == 5
    assert parallelism_of(root, Options(workers=2), None).workers == 2
    assert parallelism_of(root, Options(workers=2), 1).workers == 1
    assert parallelism_of(Dataset.range(9).map(uneven)._node, Options(), None).workers == 0
    monkeypatch.setenv("TUNDISH_WORKERS", "4")
    assert parallelism_of(root, Options(workers=2), 1).workers == 4


def megabyte(x: Any) -> Any:
    return np.full(1 << 18, x, np.float32)


def test_what_is_no_number_of_workers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_WORKERS", "auto")
    with pytest.raises(ValueError, match="TUNDISH_WORKERS is 'auto'"):
        Dataset.range(3).map(uneven).iterator()


def test_a_batch_beyond_the_budget_is_an_error_with_numbers() -> None:
    ds = Dataset.range(8).map(megabyte).batch(4).with_options(Options(memory_budget="3MB"))
    with ds.iterator(workers=2) as it, pytest.raises(SharedMemoryError) as caught:
        next(it)
    assert caught.value.needed == 4 << 20
    assert caught.value.available == 3_000_000


WITHOUT = """
import numpy as np
from tundish import Dataset

def big(x):
    return np.full(300_000, x, np.float32)

with Dataset.range(10).map(big).batch(3).iterator(workers=2) as it:
    print([int(b[-1, 0]) for b in it], it.stats.used_bytes)
"""


def test_without_shared_memory_batches_travel_in_messages(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WITHOUT)
    path = os.pathsep.join(filter(None, sys.path))
    ran = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "TUNDISH_MEMORY": "none", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout == "[2, 5, 8, 9] 0\n"


def test_every_message_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace.jsonl"
    monkeypatch.setenv("TUNDISH_TRACE", str(trace))
    with Dataset.range(30).map(uneven).batch(5).iterator(workers=2) as it:
        assert len(list(it)) == 6
        tasks = it.stats.tasks
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds.count("TASK") >= tasks
    assert kinds.count("DONE") == tasks
    assert kinds.count("HELLO") >= 1


def test_an_iterator_of_another_process_says_so() -> None:
    with Dataset.range(30).map(uneven).iterator(workers=1) as it:
        assert int(next(it)) == 0
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            told = _told(it)
            os.write(write, told.encode())
            os._exit(0)
        os.close(write)
        os.waitpid(pid, 0)
        assert "was made in process" in os.read(read, 1000).decode()
        os.close(read)
        assert len(list(it)) == 29


def _told(it: Iterator) -> str:
    try:
        while True:
            next(it)
    except RuntimeError as error:
        return str(error)


def small_and_long(x: Any) -> Any:
    return {"n": x, "row": np.full(3, x), "text": chr(65 + int(x) % 26) * 5000}


@pytest.mark.parametrize("batched", [False, True])
def test_small_rows_beside_long_strings(batched: bool) -> None:
    # The rows travel in the message, and what has no fixed size in the slot.
    ds = Dataset.range(200).map(small_and_long)
    ds = ds.batch(50) if batched else ds
    with ds.iterator(workers=2) as it:
        assert_all_equal(list(it), list(ds.iterator(workers=0)))


def large(x: Any) -> Any:
    return np.full(100_000, x, np.float32)


def doubled(batch: Any) -> Any:
    return batch * 2


def test_moving_rows_to_private_memory_disturbs_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a worker has been told of stays where it is until it has answered.
    feed = Coordinator.feed

    def feed_and_evict(self: Coordinator) -> bool:
        moved = feed(self)
        self.memory.evict()
        return moved

    monkeypatch.setattr(Coordinator, "feed", feed_and_evict)
    ds = Dataset.range(90).filter(no_third).map(large).batch(4).map(doubled)
    with ds.iterator(workers=2) as it:
        assert_all_equal(list(it), list(ds.iterator(workers=0)))


def assert_all_equal(found: list[Any], want: list[Any]) -> None:
    assert [digest(x) for x in found] == [digest(x) for x in want]


def test_a_block_half_made_gives_its_slot_back() -> None:
    ring = shared_ring()
    assert ring is not None
    before = ring.count(SlotState.GRANTED)
    for _ in range(5):
        with Dataset.range(4000).map(small_and_late).batch(64).iterator(workers=2) as it:
            next(it)
    assert ring.count(SlotState.GRANTED) == before


def small_and_late(x: Any) -> Any:
    time.sleep(0.001)
    return np.full(4, x)


def for_ever() -> Any:
    return itertools.count()


def as_text(number: Any) -> str:
    return str(number)


@pytest.mark.parametrize(
    "ds",
    [
        Dataset.from_generator(for_ever).shuffle(10, seed=1),
        Dataset.range(5).map(as_text).cache().repeat().shuffle(3, seed=1).prefetch(2),
    ],
    ids=["generator", "cache"],
)
def test_computed_items_that_never_end_are_not_taken_ahead_for_ever(ds: Dataset) -> None:
    with ds.iterator(workers=0) as it:
        want = [next(it) for _ in range(40)]
    with ds.iterator(workers=2) as it:
        assert [next(it) for _ in range(40)] == want


def test_a_local_namedtuple_comes_back_as_what_it_was() -> None:
    local = collections.namedtuple("local", "x y")  # noqa: PYI024 - made as users make them

    def made(number: Any) -> Any:
        return local(number, number + 10)

    with Dataset.range(4).map(made).batch(2).iterator(workers=2) as it:
        found = list(it)

    assert all(type(batch) is local for batch in found)
    assert [batch.y.tolist() for batch in found] == [[10, 11], [12, 13]]


def three(_: Any) -> Any:
    """A dataset of three elements."""
    return Dataset.range(3)


def test_beside_a_writer_alone_flat_map_is_computed_here(tmp_path: Path) -> None:
    """The engine of workers runs it, and there are no blocks."""
    ds = Dataset.range(4).prefetch(3).snapshot(tmp_path).flat_map(three)

    assert [int(x) for x in ds.iterator(workers=0)] == [0, 1, 2] * 4


@pytest.mark.parametrize("kind", ["csv", "text", "tfrecord", "parquet", "tar"])
def test_threads_close_the_files_that_they_read(kind: str) -> None:
    """Once the iterator is closed, though the dataset is still there and nothing was collected."""
    ds = read(Dataset, kind).shard(3, 1).map(digest).with_options(Options(executor="thread"))
    names = files(kind)
    before = set(threading.enumerate())
    with ds.iterator(workers=2) as it:
        next(it)
        reading = set(threading.enumerate()) - before
        assert any(target in names for _, target in descriptors())
    for thread in reading:
        thread.join()

    assert not [target for _, target in descriptors() if target in names]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["batch", "window", "snapshot"])
def test_few_functions_decide_about_a_plan(name: str, workers: int, tmp_path: Path) -> None:
    """docs/design/002 lists them."""
    ds = Dataset.range(100).map(uneven)
    if name == "snapshot":
        ds = ds.snapshot(str(tmp_path))
    ds = ds.window(4).flat_map(one_by_one) if name == "window" else ds.batch(4)

    found = visits(ds, workers)

    assert found["parallelism.py: parallelism_of"], "rooms are seen at all"
    assert len(found) <= 15
    assert found.total() - len(found) <= 15


def one_by_one(window: Any) -> Any:
    return window


def made_slowly(x: Any) -> dict[str, Any]:
    time.sleep(0.005)
    return {"x": x, "made": time.perf_counter()}


def no_fourth(element: dict[str, Any]) -> bool:
    return bool(element["x"] % 4)


SLOW: dict[str, Any] = {
    "filtered": lambda ds: ds.filter(no_fourth).batch(4),
    "shuffled": lambda ds: ds.shuffle(4, seed=1).batch(4),
}


@pytest.mark.parametrize("name", list(SLOW))
def test_batches_of_slow_elements_do_not_wait_for_later_ones(name: str) -> None:
    """Their rows are gathered while all workers are busy with the next elements: a few batches ahead, not many."""
    came, made = [], []
    with SLOW[name](Dataset.range(600).map(made_slowly)).iterator(workers=2) as it:
        for batch in it:
            came.append(time.perf_counter())
            made.append(batch["made"].max())

    ahead = [sum(later < at for later in made[k:]) for k, at in enumerate(came, start=1)]

    assert np.median(ahead) <= 7, ahead
