"""Waiting for a core, told from what the system says: exactly, by switches, or by how many want a core."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import psutil
import pytest

from tundish.loader.run.watching import queueing
from tundish.loader.run.watching.queueing import Queue, Runner, queued_s

if TYPE_CHECKING:
    from pathlib import Path

HERE = Runner(os.getpid())


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc that says what the test writes."""
    monkeypatch.setattr(queueing, "PROC", str(tmp_path))
    return tmp_path


def tell(proc: Path, pid: int, thread: int, queued: float) -> None:
    folder = proc / str(pid) / "task" / str(thread)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(f"123 {round(queued * 1e9)} 7\n", encoding="ascii")


def test_what_was_queued_since_the_last_look_by_all_threads(proc: Path) -> None:
    queue, workers = Queue(2), [Runner(7), Runner(8, 81)]
    for pid, thread, seconds in ((7, 7, 1.0), (7, 71, 2.0), (8, 8, 3.0), (8, 81, 4.0)):
        tell(proc, pid, thread, seconds)
    assert queue.since(workers, 1.0, 0.5) == 0.0, "nothing is known of the time before"
    for pid, thread, seconds in (
        (7, 7, 1.1),
        (7, 71, 2.2),
        (7, 72, 9.0),
        (8, 8, 99.0),
        (8, 81, 4.5),
    ):
        tell(proc, pid, thread, seconds)
    assert queue.since(workers, 1.0, 0.5) == pytest.approx(0.8), "of 8 only thread 81 works"


def test_a_worker_that_is_new_brings_no_past(proc: Path) -> None:
    queue = Queue(2)
    tell(proc, 7, 7, 1.0)
    queue.since([Runner(7)], 1.0, 0.5)
    tell(proc, 9, 9, 50.0)
    assert queue.since([Runner(7), Runner(9)], 1.0, 0.5) == 0.0


def test_the_system_is_not_asked_about_workers_that_hardly_compute(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing, "_queued", lambda _: pytest.fail("asked"))
    assert Queue(2).since([Runner(7)], 1.0, 0.01) == 0.0


@pytest.mark.parametrize(("given", "lost", "expected"), [(100, 0, 0.0), (1, 9, 0.72), (0, 5, 0.8)])
def test_switches_tell_where_the_system_does_not(
    proc: Path, monkeypatch: pytest.MonkeyPatch, given: int, lost: int, expected: float
) -> None:
    counted = [(3, 2), (3 + given, 2 + lost)]

    class Process:
        def __init__(self, pid: int) -> None:
            assert pid == 7

        def num_ctx_switches(self) -> object:
            return counted.pop(0)

    monkeypatch.setattr(psutil, "Process", Process)
    queue = Queue(2)
    queue.since([Runner(7)], 1.0, 0.2)
    assert queue.since([Runner(7)], 1.0, 0.2) == pytest.approx(expected), "of 0.8 s off a core"


@pytest.mark.parametrize(("load", "expected"), [(1.0, 0.0), (4.0, 0.3), (40.0, 0.7)])
def test_where_only_the_load_is_known(
    proc: Path, monkeypatch: pytest.MonkeyPatch, load: float, expected: float
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(Queue, "_lost", lambda *_: None)
    assert Queue(2).since([Runner(7)], 1.0, 0.3) == pytest.approx(expected)


def test_a_process_that_is_gone_is_no_error() -> None:
    gone = Runner(2**22 - 1)
    assert queued_s(*gone) == 0.0
    assert Queue(2).since([gone], 1.0, 0.99) >= 0.0


def test_here_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.exists(f"/proc/self/task/{threading.get_native_id()}/schedstat"):  # noqa: PTH110
        pytest.skip("this system does not tell")
    monkeypatch.setattr(Queue, "_lost", lambda *_: pytest.fail("needs no switches"))
    queue = Queue(2)
    assert queue.since([HERE], 1.0, 0.9) == 0.0
    assert queue.since([HERE], 1.0, 0.9) >= 0.0
