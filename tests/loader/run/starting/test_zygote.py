"""Deaths: which processes die with which, and which do not; real processes, killed for real."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tundish.loader.run.starting.launcher import Launcher
from tundish.loader.run.starting.workerprocess import WorkerProcess
from tundish.shm.budget import portable
from tundish.shm.liveness import kill_session

ROOT = Path(__file__).parents[4]
KINDS = pytest.mark.parametrize("kind", ["spawn"] if portable() else ["zygote", "spawn"])
LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
SOON_S = 5.0  # nothing here takes a tenth of this, unless it never happens

pytestmark = LINUX


def is_gone(pid: int) -> bool:
    """Return True if a process has ended; an orphan may stay in the table until init looks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def happens(condition: Callable[[], bool], timeout_s: float = SOON_S) -> bool:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def all_gone(pids: list[int]) -> bool:
    return happens(lambda: all(map(is_gone, pids)))


def kill(*pids: int) -> None:
    for pid in pids:
        if not is_gone(pid):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def trainer(
    kind: str, entry: str, how: str = "", **options: Any
) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Run a training process; yield it with the pids of its zygote, its workers and theirs."""
    with subprocess.Popen(
        [sys.executable, "tests/loader/run/trainer.py", kind, entry, how],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    ) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        try:
            yield process, [pid for pid in pids if pid > 0]
        finally:
            kill(process.pid, *map(abs, pids))


@contextlib.contextmanager
def started(kind: str, entry: str) -> Iterator[tuple[Launcher, WorkerProcess, list[int]]]:
    """Start a worker; yield it with the pids it tells: its own and its children's."""
    made = Launcher(kind)
    read, write = os.pipe()
    pids: list[int] = []
    try:
        worker = made.start(f"tests.loader.run.entries:{entry}", [write], b"")
        os.close(write)
        pids += [int(word) for word in os.read(read, 1000).split()]
        yield made, worker, pids
        worker.release()
    finally:
        os.close(read)
        made.close()
        kill(*pids)


@KINDS
@pytest.mark.parametrize("entry", ["sleep", "hold_gil", "stop", "deaf", "threads", "parent"])
def test_all_end_with_a_killed_parent(kind: str, entry: str) -> None:
    with trainer(kind, entry) as (process, pids):
        assert len(pids) == (9 if entry == "parent" else 3)
        assert not any(map(is_gone, pids))

        process.kill()

        assert all_gone(pids)


@KINDS
def test_a_fork_that_holds_every_socket_keeps_nobody_alive(kind: str) -> None:
    with trainer(kind, "sleep", "fork") as (process, pids):
        process.kill()

        assert all_gone(pids)


@KINDS
def test_workers_outlive_the_thread_that_made_the_zygote(kind: str) -> None:
    with trainer(kind, "sleep", "thread") as (process, pids):
        # The trainer has told the pids after the thread's end. A death signal would have come
        # with that end, before anything it did later.
        assert not any(map(is_gone, pids))

        process.kill()

        assert all_gone(pids)


@KINDS
def test_the_terminals_interrupt_reaches_the_trainer_alone(kind: str) -> None:
    ours, theirs = pty.openpty()
    try:
        with trainer(kind, "sleep", "interrupt", stdin=theirs, start_new_session=True) as (
            process,
            pids,
        ):
            os.write(ours, b"\x03")
            assert process.stdout is not None
            assert process.stdout.readline() == b"interrupted\n"
            assert not any(map(is_gone, pids))
    finally:
        os.close(ours)
        os.close(theirs)


@KINDS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_zygote_is_not_stopped_by_a_signal_to_all(kind: str, number: int) -> None:
    with started(kind, "sleep") as (made, worker, _):
        os.kill(made._process.pid, number)
        worker.kill()

        assert worker.wait_exit(SOON_S) is not None
        assert made.alive


@KINDS
def test_what_a_worker_has_started_ends_with_it(kind: str) -> None:
    with started(kind, "parent") as (made, worker, pids):
        pid, child, leaver, fork = pids

        os.kill(pid, signal.SIGKILL)

        assert worker.wait_exit(SOON_S) is not None
        assert all_gone([child, fork])
        # It has a group of its own, so it ends with the zygote.
        assert portable() or not is_gone(leaver)
        made.close()
        assert all_gone([leaver])


@KINDS
def test_a_killed_zygote_takes_everybody_along(kind: str) -> None:
    with started(kind, "parent") as (made, worker, pids):
        os.kill(made._process.pid, signal.SIGKILL)
        assert worker.wait_exit(SOON_S) is not None

        assert worker.exit is not None
        assert "zygote" in worker.exit.how
        assert not made.alive
        assert all_gone(pids)


@KINDS
def test_a_zygote_killed_while_nobody_looks_takes_its_workers_along(kind: str) -> None:
    with started(kind, "sleep") as (made, _, pids):
        os.kill(made._process.pid, signal.SIGKILL)

        assert all_gone(pids)


def test_close_ends_a_zygote_that_does_not_react() -> None:
    with started("zygote", "sleep") as (made, _, pids):
        os.kill(made._process.pid, signal.SIGSTOP)
        made.close()

        assert all_gone(pids)


@pytest.mark.skipif(portable(), reason="nobody looks for a session's members")
def test_kill_session_spares_other_sessions() -> None:
    ours = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        kill_session(ours.pid + 1)
        assert ours.poll() is None

        kill_session(ours.pid)
        assert ours.wait(SOON_S) == -signal.SIGKILL
    finally:
        ours.kill()
        ours.wait()


@KINDS
def test_a_stderr_that_nobody_reads_holds_up_nobody(kind: str) -> None:
    # The chatting worker has to wait, as it would if it wrote there itself. Nobody else does.
    script = f"""
import os
from tundish.loader.run.starting.launcher import Launcher
launcher = Launcher({kind!r})
read, write = os.pipe()
chatting = launcher.start("tests.loader.run.entries:chatter", [], b"1024")
other = launcher.start("tests.loader.run.entries:end", [], b"return 3")
print(other.wait_exit({SOON_S}).code, chatting.exit, flush=True)
print(chatting.wait_exit({SOON_S}).code, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"3 None\n"

        out, err = process.communicate(timeout=SOON_S)

        assert out == b"0\n"
        assert len(err) == (1 << 20) + len("last words\n")


@KINDS
def test_the_last_words_are_passed_on_after_the_end(kind: str) -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    before = os.dup(2)
    os.dup2(write, 2)
    os.close(write)
    made = Launcher(kind)
    told = bytearray()

    def listen() -> None:
        while data := os.read(read, 4096):
            told.extend(data)

    reader = threading.Thread(target=listen)
    try:
        worker = made.start("tests.loader.run.entries:chatter", [], b"40")
        assert worker.wait_exit(SOON_S) is not None  # all of it is with the zygote
        worker.release()
    finally:
        os.dup2(before, 2)
        os.close(before)
        reader.start()
        made.close()
        reader.join()
        os.close(read)

    assert len(told) == 40 << 10
