"""Conformance 35, 36, 38 and 39: processes that die, and the traces they leave."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from tests.laws.functions import DEATHS
from tests.torch.datasets import Blocks, Deadly, Here, Numbers, noted
from tests.torch.faces import NUMPY, Face, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

from tundish.errors import WorkerDiedError

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs.py")
SOON_S = 0.5
NOISE_S = 0.5  # what a busy machine may add


@pytest.mark.parametrize("how", DEATHS)
def test_35_a_death_is_survived(our_face: Face, how: str, tmp_path: Path) -> None:
    loader = our_face(Deadly(12, str(tmp_path), how), batch_size=2, num_workers=2)

    assert numbers(loader) == list(range(12))
    assert len(noted(tmp_path)) == 1


def test_35_a_worker_killed_from_outside_is_survived(our_face: Face) -> None:
    iterator = iter(our_face(Here(40), batch_size=2, num_workers=2, prefetch_factor=2))
    first, processes = next(iterator)
    os.kill(processes.tolist()[0], signal.SIGKILL)

    assert first.tolist() == [0, 1]
    assert [number for batch in iterator for number in batch[0].tolist()] == list(range(2, 40))


@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("place", ["main", "thread"])
def test_35_a_sample_that_kills_is_named(
    our_face: Face, how: str, place: str, tmp_path: Path
) -> None:
    loader = our_face(Deadly(12, str(tmp_path), how, times=99), batch_size=2, num_workers=2)
    iterator = iter(loader)
    error, found = caught(iterator) if place == "main" else in_thread(lambda: caught(iterator))
    raised = time.monotonic()

    assert isinstance(error, WorkerDiedError)
    assert isinstance(error, RuntimeError)
    assert found == [[0, 1], [2, 3]]
    assert "5" in str(error)
    assert how in str(error) or not how.startswith("SIG")
    assert len(noted(tmp_path)) == 3
    assert raised - float(noted(tmp_path)[-1][0]) < SOON_S + NOISE_S
    assert next(iterator).tolist() == [6, 7], "the rest comes"


@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("place", ["main", "thread"])
def test_35_as_torch_it_is_an_error_at_once(
    our_face: Face, how: str, place: str, tmp_path: Path
) -> None:
    dataset = Deadly(12, str(tmp_path), how, times=99)
    iterator = iter(our_face(dataset, batch_size=2, num_workers=2, rng_compat="torch"))
    error, _ = caught(iterator) if place == "main" else in_thread(lambda: caught(iterator))
    raised = time.monotonic()

    assert isinstance(error, RuntimeError)
    ((when, process),) = noted(tmp_path)
    assert f"pid {process}" in str(error) or f"pid(s) {process}" in str(error)
    assert raised - float(when) < SOON_S + NOISE_S


def test_35_torch_names_the_process_too(face: Face, tmp_path: Path) -> None:
    options = {"rng_compat": "torch"} if face.ours else {}
    dataset = Deadly(12, str(tmp_path), "SIGKILL", times=99)
    iterator = iter(face(dataset, batch_size=2, num_workers=2, **options))
    error, _ = caught(iterator)
    if (
        not face.ours
    ):  # its handler of SIGCHLD raises wherever the other worker's end finds this process
        with contextlib.suppress(RuntimeError):
            iterator._shutdown_workers()

    assert isinstance(error, RuntimeError)
    assert str(noted(tmp_path)[0][1]) in str(error)


def caught(iterator: Any) -> tuple[BaseException, list[Any]]:
    """The first error, and the batches before it."""
    found: list[Any] = []
    try:
        found.extend(batch.tolist() for batch in iterator)
    except Exception as error:  # noqa: BLE001 (the test judges it)
        return error, found
    raise AssertionError(found)


def in_thread(function: Callable[[], Any]) -> Any:
    """Call it in a thread that is not the main one."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(30)
    return results[0]


def start(name: str, face: Face) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PROGRAMS, name, face.module],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def runs(process: psutil.Process) -> bool:
    """Return True if a process has not ended; where nobody waits for orphans, one that has is still listed."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def named_memory(process: psutil.Process) -> set[Path]:
    """Files of shared memory that a process has mapped or open; another's are no concern of a test."""
    here = Path(f"/proc/{process.pid}")
    found: set[Path] = set()
    with contextlib.suppress(OSError):  # it has ended
        found.update(Path(line[line.index("/") :]) for line in mapped(here) if "/" in line)
        found.update(link.readlink() for link in (here / "fd").iterdir())
    return {path for path in found if path.is_relative_to("/dev/shm")}


def mapped(process: Path) -> list[str]:
    return (process / "maps").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wait_for_signal", "wait_on_slow_workers"])
def test_36_a_killed_parent_leaves_nothing(our_face: Face, name: str) -> None:
    with start(name, our_face) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        children = family(process)
        names = set().union(*map(named_memory, [psutil.Process(process.pid), *children]))
        process.kill()
        deadline = time.monotonic() + 1 + NOISE_S
        while any(map(runs, children)) and time.monotonic() < deadline:
            time.sleep(0.02)

    assert len(children) >= 2
    assert not [child for child in children if runs(child)]
    assert not [path for path in names if path.exists()]


def test_38_batches_that_are_kept_cost_no_descriptors(our_face: Face) -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        shared = [
            line for line in mapped(Path("/proc/self")) if "memfd" in line or "/dev/shm" in line
        ]
        return len(list(Path("/proc/self/fd").iterdir())), len(shared)

    kept, counts = [], []
    for number, batch in enumerate(our_face(Blocks(400), batch_size=2, num_workers=2)):
        kept.append(batch)
        if number in {20, 190}:
            counts.append(held())

    assert len(kept) == 200
    assert counts[0] == counts[1]
    for number, (block, keys) in enumerate(kept):
        assert keys.tolist() == [2 * number, 2 * number + 1]
        assert np.asarray(block)[:, ::9999].T.tolist() == [keys.tolist()] * 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wait_for_signal", "wait_on_slow_workers"])
def test_39_ctrl_c_is_raised_once_and_workers_are_quiet(face: Face, name: str) -> None:
    with start(name, face) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        children = family(process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
        sent = time.monotonic()
        _, errors = process.communicate(timeout=10)
        ended = time.monotonic() - sent
        _, alive = psutil.wait_procs(filter(runs, children), timeout=1)

    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert not alive
    assert ended < 1 + NOISE_S


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [("leave", 0), ("leave_persistent", 0), ("fail", 3)])
def test_39_leaving_is_quick_and_silent(face: Face, name: str, status: int) -> None:
    with start(name, face) as process:
        output, errors = process.communicate(timeout=30)
        ended = time.time()

    assert errors == ""
    assert process.returncode == status
    assert ended - float(output.split()[0]) < 1 + 2 * NOISE_S


@pytest.mark.slow
def test_39_no_torch_in_workers_that_do_not_need_it() -> None:
    pytest.importorskip("torch")
    with start("without_torch", NUMPY) as process:
        output, errors = process.communicate(timeout=30)

    assert (output, errors) == ("[False]\n", "")


@pytest.mark.slow
def test_21_a_generator_that_comes_late_is_seeded_too() -> None:
    pytest.importorskip("torch")
    with start("draw", NUMPY) as process:
        output, errors = process.communicate(timeout=30)

    assert errors == ""
    in_workers, here = output.splitlines()
    assert in_workers == here


def test_39_dropping_an_iterator_ends_its_workers(face: Face) -> None:
    before = set(psutil.Process().children(recursive=True))
    iterator = iter(face(Numbers(100, (0.01,)), num_workers=2))
    next(iterator)
    started_since = set(psutil.Process().children(recursive=True)) - before
    workers = [each for each in started_since if "zygote" not in each.name()]
    assert len(workers) >= 2
    started = time.monotonic()
    del iterator
    gc.collect()
    limit = SOON_S + NOISE_S + (0 if face.ours else 5)
    psutil.wait_procs(workers, limit)

    assert time.monotonic() - started < limit
