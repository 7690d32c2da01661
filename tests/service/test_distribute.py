"""`td.service` over a dispatcher and two workers of this process, and processes of those."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.clusters import Cluster, ReachedCluster, cluster_process
from tests.service.computed import large, slow, slowly_where, square, where

import tundish as td
from tundish import AUTOTUNE, Dataset, Options, service
from tundish.cli.frame import _workers
from tundish.loader.run import enginemaker
from tundish.loader.service.connections.handshake import versions
from tundish.loader.service.distributing import staff
from tundish.loader.service.servers import joining
from tundish.loader.watch.stats import Stats
from tundish.testing.compare import Outcome, collect, difference
from tundish.testing.functions import Draw, Fail, Tag
from tundish.testing.registry import CASES, FIRST

pytestmark = pytest.mark.usefixtures("seeded")

STEPS = 12
DYNAMIC = service.ShardingPolicy.DYNAMIC


@pytest.fixture(scope="module")
def cluster() -> Iterator[ReachedCluster]:
    with cluster_process() as found:
        yield found


def steps(ds: Dataset, workers: int | None, most: int = STEPS) -> tuple[list[Outcome], list[str]]:
    """Return what an iterator gives, and its position after each."""
    found: list[Outcome] = []
    states: list[str] = []
    with ds.iterator(workers=workers) as iterator:
        while len(found) < most and (more := collect(iterator, limit=1)):
            found += more
            states.append(json.dumps(iterator.state_dict()["position"], sort_keys=True))
    return found, states


# -- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [k if k % 4 == 0 else pytest.param(k, marks=pytest.mark.thorough) for k in range(8)]
)
def test_two_workers_elsewhere_do_not_show(number: int, cluster: ReachedCluster) -> None:
    for case in FIRST[number::8]:
        expected, states = steps(case.build(), 0)

        found, theirs = steps(cluster.computes(case.build()), 2)

        assert difference(expected, found, (case.name, "elsewhere")) is None
        assert theirs == states, case.name


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(40))
def test_no_case_shows_them(first: int, cluster: ReachedCluster) -> None:
    for case in CASES[first::40]:
        expected, states = steps(case.build(), 0, 40)

        found, theirs = steps(cluster.computes(case.build()), 2, 40)

        assert difference(expected, found, (case.name, "elsewhere")) is None
        assert theirs == states, case.name


def test_no_workers_are_those_of_no_service(cluster: ReachedCluster) -> None:
    here = Dataset.range(3).map(lambda _: os.getpid())
    served = cluster.computes(here.with_options(Options(workers=0)))
    assert {int(x) for x in served} == {os.getpid()}


@pytest.mark.parametrize("first", ["with", "without"])
def test_a_state_goes_on_with_a_service_and_without(first: str, cluster: ReachedCluster) -> None:
    plain = (
        Dataset.range(60).map(Fail(1, 9), on_error="skip").shuffle(9, seed=3).map(Draw(1), seed=1)
    ).batch(4)
    served = cluster.computes(plain)
    everything, _ = steps(plain, 0, 50)
    begins, goes_on = (served, plain) if first == "with" else (plain, served)
    for k in (0, 1, 5, 11):
        with begins.iterator(workers=2) as iterator:
            begun = collect(iterator, limit=k)
            state = json.loads(json.dumps(iterator.state_dict()))
        with goes_on.iterator(workers=2) as iterator:
            iterator.load_state_dict(state)
            rest = collect(iterator)
        assert difference(everything, [*begun, *rest], ("whole", "in parts")) is None


def test_what_is_before_is_elsewhere_and_what_is_after_is_at_home(cluster: ReachedCluster) -> None:
    before = Dataset.range(12).map(where)
    ds = cluster.computes(before).map(lambda pid: (pid, os.getpid()))
    with ds.iterator(workers=2) as iterator:
        found = [tuple(int(part) for part in next(iterator)) for _ in range(11)]
        machines = {worker.where for worker in iterator.stats.pool}

    there, here = ({each[k] for each in found} for k in (0, 1))
    assert not there & here
    assert os.getpid() not in there
    assert machines
    assert machines <= cluster.addresses


def test_workers_come_and_go_while_it_runs() -> None:
    with ExitStack() as stack:
        other = Cluster(stack, workers=1)
        ds = other.computes(Dataset.range(400).map(square).batch(4))
        with iter(ds.with_options(Options(workers=3))) as iterator:
            found = [next(iterator) for _ in range(10)]
            second = other.add(cores=2)
            found += [next(iterator) for _ in range(20)]
            other.workers[0].stop()
            found += [next(iterator) for _ in range(20)]
            other.add(cores=2)
            second.stop()
            found += list(iterator)
    assert [int(x) for batch in found for x in batch] == [k * k for k in range(400)]


def test_a_dispatcher_that_is_gone_stops_nobody() -> None:
    with ExitStack() as stack:
        cluster = Cluster(stack)
        with cluster.computes(Dataset.range(200).map(square)).iterator(workers=2) as iterator:
            found = [int(next(iterator)) for _ in range(5)]
            cluster.dispatcher.stop()
            found += [int(x) for x in iterator]
    assert found == [k * k for k in range(200)]


def test_the_tuner_has_this_machines_cores_first(cluster: ReachedCluster) -> None:
    ds = cluster.computes(Dataset.range(40).map(square, num_parallel_calls=AUTOTUNE).batch(4))
    with iter(ds) as iterator:
        found = [int(x) for batch in iterator for x in batch]
        pool = iterator.stats.pool
    assert found == [k * k for k in range(40)]
    assert all(worker.pid is not None for worker in pool)


# -- policies --------------------------------------------------------------------------------------


def test_off_gives_a_copy_for_each_worker(cluster: ReachedCluster) -> None:
    ds = Dataset.range(6).shuffle(6).map(square)
    expected, _ = steps(ds.repeat(2), 0, 50)

    found, _ = steps(cluster.computes(ds, "parallel_epochs"), 2, 50)
    three, _ = steps(cluster.computes(ds, "parallel_epochs", copies=3), 2, 50)

    assert difference(expected, found, ("repeat", "OFF")) is None
    assert difference(steps(ds.repeat(3), 0, 50)[0], three, ("repeat", "OFF")) is None


def test_data_is_the_dataset(cluster: ReachedCluster) -> None:
    ds = Dataset.range(20).map(square).batch(3)
    expected, states = steps(ds, 0)

    assert steps(cluster.computes(ds, service.ShardingPolicy.DATA), 2) == (expected, states)


def text_files(folder: Path) -> list[str]:
    paths = [folder / f"{name}.txt" for name in "abcd"]
    for k, path in enumerate(paths):
        path.write_text("".join(f"{path.stem}{n}\n" for n in range(2 + k)))
    return [str(path) for path in paths]


def test_static_shares_in_turn(tmp_path: Path) -> None:
    paths = text_files(tmp_path)
    with ExitStack() as stack:
        cluster = Cluster(stack, worker_addresses=["localhost:%port%", "localhost:%port%"])
        read = Dataset.list_files(paths, shuffle=False).flat_map(td.TextLineDataset)
        by_file = cluster.computes(read, service.ShardingPolicy.FILE)
        found = [str(x.decode() if isinstance(x, bytes) else x) for x in by_file]
        assert found == [
            "a0",
            "b0",
            "a1",
            "b1",
            "c0",
            "b2",
            "c1",
            "d0",
            "c2",
            "d1",
            "c3",
            "d2",
            "d3",
            "d4",
        ]

        hinted = Dataset.range(7).shard(td.experimental.SHARD_HINT, td.experimental.SHARD_HINT)
        by_hint = cluster.computes(hinted.batch(2), service.ShardingPolicy.HINT)
        assert [x.tolist() for x in by_hint] == [[0, 2], [1, 3], [4, 6], [5]]

        either = service.ShardingPolicy.FILE_OR_DATA
        assert [int(x) for x in cluster.computes(Dataset.range(5), either)] == list(range(5))
        with pytest.raises(ValueError, match="not a list of files"):
            cluster.computes(Dataset.range(5), service.ShardingPolicy.FILE)
        with pytest.raises(ValueError, match="but the plan has none"):
            cluster.computes(Dataset.range(5), service.ShardingPolicy.HINT)


def test_static_shares_need_to_know_how_many(cluster: ReachedCluster) -> None:
    with pytest.raises(ValueError, match=r"start it with DispatcherConfig\(worker_addresses="):
        cluster.computes(Dataset.range(5), service.ShardingPolicy.HINT)


def test_other_arguments_change_no_element(cluster: ReachedCluster) -> None:
    for target_workers, compression in (("AUTO", "AUTO"), ("ANY", None), ("LOCAL", "AUTO")):
        ds = cluster.computes(
            Dataset.range(8).map(square).batch(3),
            target_workers=target_workers,
            compression=compression,
            max_outstanding_requests=1,
            data_transfer_protocol="grpc",
        )
        assert [int(x) for batch in ds for x in batch] == [k * k for k in range(8)]


# -- datasets by their ids -------------------------------------------------------------------------


def test_a_registered_dataset_is_read_by_its_id(cluster: ReachedCluster) -> None:
    ds = Dataset.range(9).map(Tag(2)).batch(2)

    number = service.register_dataset(cluster.target, ds)
    again = service.register_dataset(cluster.target, Dataset.range(9).map(Tag(2)).batch(2))
    read = service.from_dataset_id("distributed_epoch", cluster.target, number)

    assert number == again == f"{int(ds.fingerprint()):016x}"
    assert read.fingerprint() == ds.fingerprint()
    assert difference(steps(ds, 0)[0], steps(read, 2)[0], ("here", "by its id")) is None
    with pytest.raises(FileNotFoundError, match="no dataset 'nothing' is registered"):
        service.from_dataset_id(DYNAMIC, cluster.target, "nothing")


def test_an_id_of_ones_own_stands_for_one_dataset(cluster: ReachedCluster) -> None:
    one, other = Dataset.range(3), Dataset.range(4)

    assert service.register_dataset(cluster.target, one, dataset_id="mine") == "mine"
    assert service.register_dataset(cluster.target, one, dataset_id="mine") == "mine"
    with pytest.raises(ValueError, match=r"'mine' is the id of another dataset.*range"):
        service.register_dataset(cluster.target, other, dataset_id="mine")
    assert len(list(service.from_dataset_id(DYNAMIC, cluster.target, "mine"))) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda k: Dataset.from_tensor_slices(np.full(3, k)),
        lambda k: Dataset.range(3).map(partial(np.add, k)),
        lambda k: Dataset.range(3).map(lambda x: x + k),
    ],
    ids=["arrays", "partial", "captured"],
)
def test_an_id_of_ones_own_stands_for_one_content(
    cluster: ReachedCluster, make: Callable[[int], Dataset], request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    assert service.register_dataset(cluster.target, make(1), dataset_id=name) == name
    assert service.register_dataset(cluster.target, make(1), dataset_id=name) == name
    with pytest.raises(
        ValueError, match=r"is the id of another dataset: its arrays, or the values.*another id"
    ):
        service.register_dataset(cluster.target, make(2), dataset_id=name)


def test_what_cannot_be_pickled_is_named(cluster: ReachedCluster) -> None:
    lock = threading.Lock()

    def locked(x: Any) -> Any:
        with lock:
            return x

    with pytest.raises(TypeError, match=r"map#1.*lock"):
        service.register_dataset(cluster.target, Dataset.range(3).map(locked), dataset_id="x")


# -- errors ----------------------------------------------------------------------------------------


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staff, "NOBODY_S", 0.2)
    monkeypatch.setattr(staff, "ANSWER_S", 0.5)
    with ExitStack() as stack:
        empty = Cluster(stack, workers=0)
        ds = empty.computes(Dataset.range(3).map(square))
        with pytest.raises(
            TimeoutError, match="no worker has joined the dispatcher at tcp://localhost"
        ):
            iter(ds)
        with pytest.raises(TimeoutError, match="no worker has joined"):
            list(empty.computes(Dataset.range(3), "parallel_epochs"))
        assert [int(x) for x in ds.iterator(workers=0)] == [0, 1, 4]
    with pytest.raises(OSError, match=empty.target.split(":")[-1]):
        iter(ds)


def test_workers_that_cannot_serve_are_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staff, "NOBODY_S", 0.2)
    with ExitStack() as stack:
        cluster = Cluster(stack, workers=0)
        monkeypatch.setattr(joining, "versions", lambda: {**versions(), "numpy": "0.9"})
        cluster.add(name="old")
        with pytest.raises(
            TimeoutError, match=r"old at \S+ has numpy 0\.9, and this process numpy \d"
        ):
            iter(cluster.computes(Dataset.range(3).map(square)))
        monkeypatch.undo()
        monkeypatch.setattr(staff, "NOBODY_S", 0.2)
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        cluster.add(name="far")
        monkeypatch.undo()
        monkeypatch.setattr(staff, "NOBODY_S", 0.2)
        with pytest.raises(
            TimeoutError, match=r"no worker of this machine.*far at \S+ is on elsewhere"
        ):
            iter(cluster.computes(Dataset.range(3).map(square), target_workers="LOCAL"))


def test_it_is_applied_to_datasets() -> None:
    with pytest.raises(TypeError, match="applied to a Dataset"):
        service.distribute(DYNAMIC, "localhost:1")([1, 2])  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ValueError, match="processing_mode must be"):
        service.distribute("all", "localhost:1")


# -- watching --------------------------------------------------------------------------------------


def test_statistics_tell_bytes_and_the_way(cluster: ReachedCluster) -> None:
    ds = cluster.computes(Dataset.range(48).map(large).batch(4))
    with ds.iterator(workers=2) as iterator:
        for _ in range(12):
            next(iterator)
        seen, verdict = iterator.stats, iterator.explain()
        lines = "\n".join(_workers(seen.pool, 200))
    ended = iterator.stats

    assert {worker.where for worker in seen.pool} <= cluster.addresses
    assert ended.received >= 48 * 400_000
    assert 0 < ended.receiving_s <= ended.wall_s
    assert sum(worker.received for worker in seen.pool) == seen.received
    assert all(worker.round_trip_s >= 0 for worker in seen.pool)
    assert "127.0.0.1:" in lines
    assert str(verdict)
    assert Stats.from_dict(json.loads(json.dumps(seen.to_dict()))) == seen


def test_without_a_service_nothing_is_received() -> None:
    with Dataset.range(8).map(large).batch(2).iterator(workers=2) as iterator:
        assert len(list(iterator)) == 4
        assert (iterator.stats.received, iterator.stats.receiving_s) == (0, 0.0)


@pytest.mark.slow
def test_the_tuner_asks_for_seats_beyond_its_own_cores(
    cluster: ReachedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enginemaker, "usable_cores", lambda: 1)
    asked: list[int] = []
    want = staff.ServiceStaff.want

    def noted(seats: staff.ServiceStaff, count: int) -> None:
        asked.append(count)
        want(seats, count)

    monkeypatch.setattr(staff.ServiceStaff, "want", noted)
    ds = cluster.computes(Dataset.range(100_000).map(slow, num_parallel_calls=AUTOTUNE).batch(2))
    with iter(ds) as iterator:
        deadline = time.monotonic() + 30
        while not any(worker.where and worker.tasks for worker in iterator.stats.pool):
            next(iterator)
            assert time.monotonic() < deadline, iterator.stats.tuned
    assert max(asked) > 1


def test_what_comes_after_has_as_many_workers_as_it_asks_for(cluster: ReachedCluster) -> None:
    ds = cluster.computes(Dataset.range(60).map(square)).map(slowly_where, num_parallel_calls=3)
    with ds.iterator(workers=2) as iterator:
        here = {int(pid) for pid in iterator}

    assert os.getpid() not in here
    assert len(here) == 3


def rest_with_another(
    iterator: Any, cluster: Cluster, warned: pytest.WarningsRecorder
) -> list[int]:
    """Read the rest of an iterator; a worker is added as soon as somebody was warned."""

    def add() -> None:
        deadline = time.monotonic() + 60
        while not warned.list and time.monotonic() < deadline:
            time.sleep(0.01)
        cluster.add()

    adding = threading.Thread(target=add)
    adding.start()
    found = [int(x) for x in iterator]
    adding.join()
    return found


def test_an_iterator_without_workers_says_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        cluster = Cluster(stack, workers=1)
        ds = cluster.computes(Dataset.range(200).map(square))
        with ds.iterator(workers=1) as iterator:
            found = [int(next(iterator))]
            monkeypatch.setattr(staff, "NOBODY_S", 0.1)
            cluster.workers[0].stop()
            with pytest.warns(UserWarning, match="waits for one to join") as warned:
                found += rest_with_another(iterator, cluster, warned)
    assert found == [k * k for k in range(200)]
