"""What a worker finds, and what its consumer hears of it."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tundish.loader.run import launcher as module
from tundish.loader.run.launcher import Exit, Launcher, WorkerProcess, launcher, prestart
from tundish.loader.run.surroundings import interpreter, worker_environ

ROOT = Path(__file__).parents[3]
ENTRIES = "tests.loader.run.entries"
SOON_S = 10.0  # nothing here takes a tenth of this, unless it never happens

Begin = Callable[..., WorkerProcess]


@pytest.fixture(params=["zygote", "spawn"])
def made(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    one = Launcher(request.param)
    yield one
    one.close()


@pytest.fixture
def fresh() -> Iterator[None]:
    """No launcher of the process is there before, and none after."""
    for each in list(module._current.values()):
        each.close()
    yield
    for each in list(module._current.values()):
        each.close()


def run(made: Launcher, entry: str, config: bytes = b"") -> tuple[bytes, Exit]:
    """Run a worker to its end; return what it wrote and how it ended."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file:
        worker = made.start(f"{ENTRIES}:{entry}", [write], config)
        os.close(write)
        told = file.read()
    end = worker.wait_exit(SOON_S)
    assert end is not None
    worker.release()
    return told, end


def readable(fd: int, timeout_s: float = 0) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


# -------------------------------------------------------------------------------- what it finds


def test_a_worker_finds_its_consumers_surroundings(
    made: Launcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # All of it changes after the zygote was started.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNDISH_TEST", "\udcff an odd one")
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(sys, "argv", ["train.py", "--fast"])
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))

    found = json.loads(run(made, "surroundings", b"a config")[0])

    assert found["config"] == "a config"
    assert found["environ"] == {**os.environ, **worker_environ(1)}
    assert found["environ"]["OMP_NUM_THREADS"] == "1"
    assert found["environ"]["CUDA_VISIBLE_DEVICES"] == ""
    assert found["path"][: len(sys.path)] == sys.path
    assert found["argv"] == ["train.py", "--fast"]
    assert found["cwd"] == str(tmp_path)
    assert found["stdin"] == ""
    assert found["main"] == ["__doc__", "__loader__", "__name__", "__package__", "__spec__"]
    assert found["session"] == made._process.pid
    assert found["group"] != found["session"]
    assert found["handlers"] == ["Handlers.SIG_DFL", "Handlers.SIG_DFL"]


def test_a_worker_has_its_own_descriptors_and_no_others(made: Launcher) -> None:
    found = json.loads(run(made, "surroundings")[0])

    assert found["inheritable"] == [False]
    listing = 1  # the folder that it reads to find them
    theirs = {0, 1, 2, *found["fds"]}
    # Without a zygote's fork: the pipe that says the zygote lives, and the sentinel's end.
    assert len(set(found["open"]) - theirs) == listing + (2 if made.kind == "spawn" else 0)


def test_a_signal_mask_of_the_users_thread_is_not_inherited() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    made = Launcher("zygote")
    try:
        told, _ = run(made, "surroundings")
    finally:
        made.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert json.loads(told)["blocked"] == []


def test_the_number_of_threads_is_the_launchers() -> None:
    made = Launcher("zygote", threads=3)
    found = json.loads(run(made, "surroundings")[0])
    made.close()

    assert found["environ"]["OPENBLAS_NUM_THREADS"] == "3"


def test_a_zygote_forks_from_one_thread_with_malloc_set(made: Launcher) -> None:
    run(made, "end", b"return")
    zygote = psutil.Process(made._process.pid)

    assert zygote.num_threads() == 1
    assert zygote.environ()["MALLOC_TRIM_THRESHOLD_"] == str(256 << 20)


def test_a_request_may_be_of_any_size(made: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_TEST", "x" * 100_000)

    found = json.loads(run(made, "surroundings", b"y" * 3_000_000)[0])

    assert found["config"] == "y" * 3_000_000
    assert found["environ"]["TUNDISH_TEST"] == "x" * 100_000


def test_descriptors_arrive_in_order(made: Launcher) -> None:
    there, back = os.pipe(), os.pipe()
    worker = made.start(f"{ENTRIES}:echo", [there[0], back[1]], b"")
    os.close(there[0])
    os.close(back[1])

    os.write(there[1], b"hello")
    assert os.read(back[0], 100) == b"hello"
    os.close(there[1])

    assert worker.wait_exit(SOON_S) == Exit(0, "exit status 0", "")
    worker.release()
    os.close(back[0])


def test_what_a_worker_prints_is_seen_where_the_consumer_prints_now(
    made: Launcher, capfd: pytest.CaptureFixture[str]
) -> None:
    run(made, "say")

    assert capfd.readouterr() == ("said by a worker\n", "told by a worker\n")


def test_what_a_worker_prints_is_seen_before_it_ends(
    made: Launcher, capfd: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    before = os.dup(1), os.dup(2)
    os.dup2(write, 1)
    os.dup2(write, 2)
    worker = made.start(f"{ENTRIES}:say", [], b"and stay")
    for fd, kept in zip((1, 2), before, strict=True):
        os.dup2(kept, fd)
        os.close(kept)
    os.close(write)
    told = b""
    while told.count(b"\n") < 2:
        told += os.read(read, 100)
    os.close(read)

    assert set(told.splitlines()) == {b"said by a worker", b"told by a worker"}
    assert worker.exit is None
    worker.kill()
    worker.release()


# -------------------------------------------------------------------------------- how it ends


@pytest.mark.parametrize(
    ("how", "code", "words", "stderr"),
    [
        ("return", 0, "exit status 0", "last words\n"),
        ("return 3", 3, "exit status 3", "last words\n"),
        ("exit", 0, "exit status 0", "last words\n"),
        ("exit 4", 4, "exit status 4", "last words\n"),
        ("exit text", 1, "exit status 1", "last words\na reason\n"),
        ("_exit", 5, "exit status 5", "last words\n"),
        ("closed stderr", 6, "exit status 6", "last words\n"),
        ("SIGKILL", -9, "SIGKILL (9)", "last words\n"),
        ("SIGTERM", -15, "SIGTERM (15)", "last words\n"),
        ("segfault", -11, "SIGSEGV (11)", "last words\n"),
    ],
)
def test_an_exit_tells_how_and_the_last_words(
    made: Launcher, how: str, code: int, words: str, stderr: str
) -> None:
    assert run(made, "end", how.encode())[1] == Exit(code, words, stderr)


def test_an_exception_is_told_on_stderr(made: Launcher, capfd: pytest.CaptureFixture[str]) -> None:
    end = run(made, "end", b"raise")[1]

    assert end.code == 1
    assert end.stderr.endswith("ValueError: a mistake\n")
    assert capfd.readouterr().err == end.stderr


def test_the_last_4_kb_of_stderr_are_kept(
    made: Launcher, capfd: pytest.CaptureFixture[str]
) -> None:
    end = run(made, "chatter")[1]

    assert end.stderr == "x" * 4096
    assert capfd.readouterr().err == "x" * (1 << 20)


def test_an_entry_that_does_not_exist_is_told(made: Launcher) -> None:
    end = run(made, "nothing")[1]

    assert end.code == 1
    assert "has no attribute 'nothing'" in end.stderr


def test_the_sentinel_is_readable_once_the_worker_has_ended(made: Launcher) -> None:
    there, back = os.pipe(), os.pipe()
    worker = made.start(f"{ENTRIES}:echo", [there[0], back[1]], b"")
    for fd in (there[0], back[1]):
        os.close(fd)
    assert (worker.sentinel is not None) == (made.kind == "spawn")
    while worker.pid is None:
        assert made.wait(SOON_S)
    assert worker.sentinel is not None
    assert psutil.pid_exists(worker.pid)
    os.write(there[1], b"x")
    assert os.read(back[0], 1) == b"x"
    assert not readable(worker.sentinel)

    worker.kill()

    assert readable(worker.sentinel, SOON_S)
    assert worker.wait_exit(SOON_S) == Exit(-9, "SIGKILL (9)", "")
    assert "SIGKILL" in repr(worker)
    worker.release()
    worker.release()
    assert worker.sentinel is None
    os.close(there[1])
    os.close(back[0])


def test_a_worker_killed_before_it_is_there_dies_on_arrival(made: Launcher) -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as file:
        worker = made.start(f"{ENTRIES}:sleep", [write], b"")
        os.close(write)
        assert worker.pid is None
        worker.kill()
        worker.release()

        assert readable(file.fileno(), SOON_S)
        file.read()  # ends when the worker has: nobody takes in its pid


def test_news_make_the_launcher_readable(made: Launcher) -> None:
    worker = made.start(f"{ENTRIES}:end", [], b"return")
    while worker.exit is None:
        fd = made.fileno()
        assert fd is not None
        assert readable(fd, SOON_S)
        made.pump()

    assert worker.exit.code == 0
    worker.release()


def test_waiting_for_an_exit_ends_with_its_time(made: Launcher) -> None:
    worker = made.start(f"{ENTRIES}:sleep", [os.open(os.devnull, os.O_WRONLY)], b"")

    assert worker.wait_exit(0.01) is None
    worker.kill()
    assert worker.wait_exit() is not None
    worker.release()


def test_a_worker_that_cannot_begin_has_ended(made: Launcher) -> None:
    run(made, "end", b"return")
    limits = resource.prlimit(made._process.pid, resource.RLIMIT_NOFILE)
    in_use = psutil.Process(made._process.pid).num_fds()
    resource.prlimit(made._process.pid, resource.RLIMIT_NOFILE, (in_use + 2, limits[1]))
    failing = made.start(f"{ENTRIES}:end", [], b"return")
    end = failing.wait_exit(SOON_S)
    resource.prlimit(made._process.pid, resource.RLIMIT_NOFILE, limits)

    assert end == Exit(os.EX_OSERR, "it could not be started: Too many open files", "")
    assert run(made, "end", b"return 3")[1].code == 3
    failing.release()


def test_closing_ends_all_and_nothing_can_be_started_after(made: Launcher) -> None:
    worker = made.start(f"{ENTRIES}:sleep", [os.open(os.devnull, os.O_WRONLY)], b"")
    made.close()
    made.close()

    assert worker.exit is not None
    assert not made.alive
    assert made.fileno() is None
    assert made.start(f"{ENTRIES}:end", [], b"").exit is not None
    worker.kill()
    worker.release()


# -------------------------------------------------------------------------------- how many


def test_nothing_is_left_of_fifty_workers(made: Launcher) -> None:
    run(made, "end", b"return")
    gc.collect()
    zygote = psutil.Process(made._process.pid)
    before = len(os.listdir("/dev/fd")), zygote.num_fds()

    for _ in range(10):
        workers = [made.start(f"{ENTRIES}:end", [], b"return") for _ in range(5)]
        assert [worker.wait_exit(SOON_S).code for worker in workers if worker.wait_exit(SOON_S)] == [0] * 5
        del workers

    assert (len(os.listdir("/dev/fd")), zygote.num_fds()) == before
    assert not zygote.children()


def test_hundreds_may_be_asked_for_before_the_first_is_there(made: Launcher) -> None:
    # More than the socket holds: the rest waits here.
    count = 400 if made.kind == "zygote" else 40
    os.kill(made._process.pid, signal.SIGSTOP)
    workers = [made.start(f"{ENTRIES}:end", [], b"return") for _ in range(count)]
    for worker in workers[: count // 2]:
        worker.kill()
    os.kill(made._process.pid, signal.SIGCONT)

    ends = [worker.wait_exit(60) for worker in workers]

    assert {end.code for end in ends[: count // 2] if end} <= {0, -9}
    assert {end.code for end in ends[count // 2 :] if end} == {0}
    assert None not in ends
    for worker in workers:
        worker.release()
