"""Durable elements of a run that writes and is left early, whichever way; and the effect of a full disk."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import tundish as td
from tundish.errors import SharedMemoryError
from tundish.loader.run import parallelengine
from tundish.loader.run.coordinating import coordinator
from tundish.loader.run.storing import orders, recorder
from tundish.snapshot.catalog import Catalog

# An interpreter waits 1.5 s for a writer. That is for writing: on a busy machine it takes as long to start one.
IS_UP = """
def is_up(it):
    return all(writer.ready for writer in it._engine._pool.writing)
"""

SCRIPT = f"""{IS_UP}
import sys, numpy as np, tundish as td
def make(x): return np.full(500, x)
folder, workers, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
it = td.Dataset.range(400).map(make).snapshot(folder, batch_bytes=20_000).iterator(workers=workers)
while workers and not is_up(it): it.pump()
for at, _ in enumerate(it):
    if at == 149: break
if how == "raise": raise ValueError("left")
if how == "exit": sys.exit(3)
if how == "del": del it
"""


DEADLINE_S = 20


def durable(folder: Path) -> int:
    """Return how many elements are durable when the writer has left: it may outlive the process it wrote for."""
    catalog = Catalog(folder)
    (key,) = catalog.keys()
    deadline = time.monotonic() + DEADLINE_S
    while catalog.store.size(f"{key}/lease.json") is not None:
        assert time.monotonic() < deadline, "it has not given its lease back"
    return max(prefix.next for prefix in catalog.prefixes(key))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("how", ["end", "del", "exit", "raise"])
def test_what_has_passed_is_durable(tmp_path: Path, workers: int, how: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(workers), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == {"exit": 3, "raise": 1}.get(how, 0), done.stderr
    assert how == "raise" or not done.stderr
    assert durable(tmp_path) >= 150


BESIDE = f"""{IS_UP}
import sys
import numpy as np, tundish as td
ds = td.Dataset.range(300).map(lambda x: np.full(500, x)).snapshot(sys.argv[1]).prefetch(1)
it = ds.iterator(workers=0)
while not is_up(it): it.pump()
for _ in range(150):
    next(it)
"""


def test_what_a_writer_beside_is_given_by_an_interpreter_that_exits(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BESIDE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr
    assert durable(tmp_path) >= 150


def pipeline(folder: Path, count: int = 300) -> td.Dataset:
    return (
        td.Dataset.range(count).map(lambda x: np.full(500, x)).snapshot(folder, batch_bytes=20_000)
    )


def test_the_next_run_waits_for_a_writer_that_lingers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallelengine, "_LEAVING_S", 0.0)
    for stop in (50, 120, 300):
        with pipeline(tmp_path).iterator(workers=2) as it:
            found = [int(next(it)[0]) for _ in range(stop)]
        assert found == list(range(stop))
    with pipeline(tmp_path).iterator(workers=0) as it:
        assert it.stats.snapshots[0].durable == 300
        assert [int(x[0]) for x in it] == list(range(300))
    assert len(Catalog(tmp_path).runs(Catalog(tmp_path).keys()[0])) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_little_is_made_durable_in_time_too(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements that fill no batch of a file for long: small ones, or slow ones."""
    monkeypatch.setattr(recorder, "COMMIT_S", 0.0)
    with td.Dataset.range(10**6).map(abs).snapshot(tmp_path).iterator(workers=workers) as it:
        deadline = time.monotonic() + DEADLINE_S
        while not it.stats.snapshots[0].durable:
            assert time.monotonic() < deadline, "nothing is durable"
            next(it)


def test_the_lease_is_renewed_while_little_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "RENEW_S", 0.0)
    with td.Dataset.range(90).snapshot(tmp_path).iterator(workers=0) as it:
        (lease,) = tmp_path.glob("*/lease.json")
        os.utime(lease, (1, 1))
        next(it)
        assert lease.stat().st_mtime > 1


def test_the_lease_is_renewed_while_what_is_on_disk_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pipeline(tmp_path).iterator(workers=0) as it:
        for _ in range(50):
            next(it)
    monkeypatch.setattr(recorder, "RENEW_S", 0.0)
    with pipeline(tmp_path).iterator(workers=0) as it:
        (lease,) = tmp_path.glob("*/lease.json")
        os.utime(lease, (1, 1))
        next(it)
        assert lease.stat().st_mtime > 1


def test_the_leases_are_renewed_while_the_consumer_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the writer, of all that it writes."""
    monkeypatch.setattr(orders, "REFRESH_S", 0.01)
    below = pipeline(tmp_path / "a").snapshot(tmp_path / "b", batch_bytes=20_000)
    with below.iterator(workers=1, executor="thread") as it:
        next(it)
        it.save(tmp_path / "state.json")  # so the writer has orders of both
        leases = [*tmp_path.glob("*/*/lease.json")]
        assert len(leases) == 2
        for lease in leases:
            os.utime(lease, (1, 1))
        deadline = time.monotonic() + DEADLINE_S
        while any(lease.stat().st_mtime == 1 for lease in leases):
            assert time.monotonic() < deadline, "they are stale elsewhere"
            time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 2])
def test_dropping_the_iterator_commits(tmp_path: Path, workers: int) -> None:
    it = pipeline(tmp_path).iterator(workers=workers)
    for _ in range(70):
        next(it)
    del it
    gc.collect()
    with pipeline(tmp_path).iterator(workers=0) as other:
        assert other.stats.snapshots[0].durable >= 70


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("step", ["shard.batch:3", "journal.begin", "index.begin"])
def test_a_disk_that_fails_is_told_once(tmp_path: Path, workers: int, step: str) -> None:
    script = """
import sys, numpy as np, tundish as td
def make(x): return np.full(500, x)
it = td.Dataset.range(300).map(make).snapshot(sys.argv[1], batch_bytes=20_000).iterator(workers=int(sys.argv[2]))
seen, told = [], []
while True:
    try:
        seen.append(int(next(it)[0]))
        if len(seen) == 100: it.save(sys.argv[1] + ".json")
    except td.errors.SnapshotError as error:
        told.append(str(error))
    except StopIteration:
        break
print(seen == list(range(300)), len(told), told)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "s"), str(workers)]
    environ = {"TUNDISH_FAILPOINT": f"{step}:raise", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environ
    )
    assert done.stdout.startswith("True 1 "), done.stdout + done.stderr
    assert "element(s) are durable" in done.stdout
    with pipeline(tmp_path / "s").iterator(workers=0) as it:
        assert [int(x[0]) for x in it] == list(range(300))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_is_loaded_while_it_writes(tmp_path: Path, workers: int) -> None:
    with pipeline(tmp_path).iterator(workers=workers) as it:
        for stop in (0, 40, 90):
            it.load_state_dict({**it.state_dict(), "position": {"n": stop}})
            assert it.stats.snapshots[0].doing == "write"
            assert [int(next(it)[0]) for _ in range(50)] == list(range(stop, stop + 50))
        assert [int(x[0]) for x in it] == list(range(140, 300))
    assert len(Catalog(tmp_path).runs(Catalog(tmp_path).keys()[0])) == 1


def test_a_lease_that_nobody_gave_back_is_taken_again(tmp_path: Path) -> None:
    with pipeline(tmp_path).iterator(workers=0) as it:
        next(it)
        catalog = Catalog(tmp_path)
        (key,) = catalog.keys()
        lease = (tmp_path / key / "lease.json").read_bytes()
    (tmp_path / key / "lease.json").write_bytes(lease)  # as if its writer had died just before
    with pipeline(tmp_path).iterator(workers=0) as it:
        assert it.stats.snapshots[0].doing == "write"


def dying(folder: Path) -> td.Dataset:
    def make(x: np.int64) -> np.int64:
        if x == 30 and not (folder / "mended").exists():
            os._exit(9)
        return x

    return td.Dataset.range(60).map(make).snapshot(folder / "s", batch_bytes=64, version="1")


def test_an_element_that_killed_its_worker_is_not_kept_as_failed(tmp_path: Path) -> None:
    given, told = [], []
    with dying(tmp_path).iterator(workers=1) as it:
        while True:
            try:
                given.append(int(next(it)))
            except StopIteration:
                break
            except (td.errors.WorkerDiedError, td.errors.SnapshotError) as error:
                told.append(type(error).__name__)
    assert given == [x for x in range(60) if x != 30]
    assert told == ["WorkerDiedError", "SnapshotError"]
    (tmp_path / "mended").touch()
    with dying(tmp_path).iterator(workers=1) as it:
        assert it.stats.snapshots[0].durable == 30
        assert [int(x) for x in it] == list(range(60))


def test_an_order_that_cannot_be_told_loses_no_element(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise SharedMemoryError("a task's input", 1, 0, "every slot is in use")

    monkeypatch.setattr(coordinator.Coordinator, "order", full)
    given, told = [], []
    with pipeline(tmp_path).iterator(workers=2) as it:
        while True:
            try:
                given.append(int(next(it)[0]))
            except StopIteration:
                break
            except td.errors.SnapshotError as error:
                told.append(str(error))
    assert given == list(range(300))
    assert len(told) == 1
    assert "every slot is in use" in told[0]


def test_closing_goes_on_where_leaving_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> NoReturn:
        raise RuntimeError("a writer that cannot start")

    it = pipeline(tmp_path).iterator(workers=2)
    next(it)
    monkeypatch.setattr(parallelengine.ParallelEngine, "_settle", broken)
    it.close()
    assert it.worker_pids() == []


def test_the_writer_runs_nothing_of_the_users(tmp_path: Path) -> None:
    def note() -> None:
        (tmp_path / f"init-{os.getpid()}").touch()

    ds = pipeline(tmp_path / "s").with_options(td.Options(worker_init=note))
    with ds.iterator(workers=2) as it:
        assert sum(1 for _ in it) == 300
    assert len(list(tmp_path.glob("init-*"))) == 2


def test_an_iterator_that_could_not_be_made_lets_others_write(tmp_path: Path) -> None:
    def fail() -> NoReturn:
        raise RuntimeError("not today")

    ds = td.Dataset.range(20).map(abs).snapshot(str(tmp_path))

    with pytest.raises(RuntimeError, match="not today") as caught:
        ds.with_options(td.Options(worker_init=fail)).iterator(workers=0)
    assert sum(1 for _ in ds) == 20
    assert caught.tb is not None, "its frames refer to the recorder all the while"
    assert list(tmp_path.rglob("manifest.json"))
