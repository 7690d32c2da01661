"""The surroundings that a worker finds, and the news of it that its consumer hears."""

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
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tundish.loader.run.starting import launcher as module
from tundish.loader.run.starting.launcher import Launcher, launcher, prestart
from tundish.loader.run.starting.surroundings import interpreter, worker_environ
from tundish.loader.run.starting.workerprocess import Exit, WorkerProcess

ROOT = Path(__file__).parents[4]
ENTRIES = "tests.loader.run.entries"
FDS = Path("/dev/fd")
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


def sleeper(made: Launcher) -> WorkerProcess:
    """A worker that sleeps for ever."""
    with Path(os.devnull).open("wb") as nowhere:
        return made.start(f"{ENTRIES}:sleep", [nowhere.fileno()], b"")


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
    assert found["handlers"] == [True, True]  # the default ones


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


def test_malloc_is_set_where_an_interpreter_begins(made: Launcher) -> None:
    found = json.loads(run(made, "surroundings")[0])

    assert f"MALLOC_TRIM_THRESHOLD_={256 << 20}" in found["began_with"]
    assert "MALLOC_TRIM_THRESHOLD_" not in found["environ"]  # what workers start is left alone


def test_a_zygote_forks_from_one_thread(made: Launcher) -> None:
    run(made, "end", b"return")

    assert psutil.Process(made._process.pid).num_threads() == 1


def test_warnings_are_treated_as_by_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "warnoptions", ["error::UserWarning"])
    for kind in ("zygote", "spawn"):
        made = Launcher(kind)
        found = json.loads(run(made, "surroundings")[0])
        made.close()

        assert found["warnings"] == ["error::UserWarning"]


def test_this_package_is_found_without_the_users_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    known = [entry for entry in sys.path if Path(entry, "tundish").exists()]
    assert known
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in known] + [str(tmp_path)])
    for kind in ("zygote", "spawn"):
        made = Launcher(kind)
        assert run(made, "end", b"return 3")[1].code == 3
        made.close()


def test_workers_do_not_draw_the_same_numbers(made: Launcher) -> None:
    assert len({run(made, "draw")[0] for _ in range(3)}) == 3


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


@pytest.mark.parametrize("kind", ["zygote", "spawn"])
def test_what_a_worker_prints_is_seen_where_the_consumer_prints_now(
    kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    made = Launcher(kind)
    run(made, "say")
    made.close()

    said = "said by a worker\nwithout an end of line"
    assert capfd.readouterr() == (said, "told by a worker\n")


@pytest.mark.parametrize("kind", ["zygote", "spawn"])
def test_what_a_worker_prints_is_seen_before_it_ends(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    made = Launcher(kind)
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
    made.close()


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
    end = run(made, "chatter", b"1024")[1]

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
    sentinel = worker.sentinel
    assert not readable(sentinel)

    worker.kill()

    assert readable(sentinel, SOON_S)
    assert worker.wait_exit(SOON_S) == Exit(-9, "SIGKILL (9)", "")
    assert "SIGKILL" in repr(worker)
    for _ in range(2):
        worker.release()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(sentinel)
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
    worker = sleeper(made)

    assert worker.wait_exit(0.01) is None
    worker.kill()
    assert worker.wait_exit() is not None
    worker.release()


def test_a_worker_that_cannot_begin_has_ended(made: Launcher) -> None:
    # Every step on which the zygote may run out of descriptors. What it has begun is killed.
    run(made, "end", b"return")
    zygote = psutil.Process(made._process.pid)
    in_use = zygote.num_fds()
    limits = resource.prlimit(zygote.pid, resource.RLIMIT_NOFILE)
    failures = 0
    for room in range(12):
        resource.prlimit(zygote.pid, resource.RLIMIT_NOFILE, (in_use + room, limits[1]))
        worker = sleeper(made)
        while worker.exit is None and worker.pid is None:
            assert made.wait(SOON_S)
        if worker.exit is not None:
            failures += 1
            assert worker.exit == Exit(
                os.EX_OSERR, "it could not be started: Too many open files", ""
            )
        else:
            worker.kill()
            assert worker.wait_exit(SOON_S) == Exit(-9, "SIGKILL (9)", "")
        worker.release()
    resource.prlimit(zygote.pid, resource.RLIMIT_NOFILE, limits)

    assert failures >= 5
    assert run(made, "end", b"return 3")[1].code == 3
    assert not zygote.children()
    assert zygote.num_fds() == in_use


def test_closing_ends_all_and_nothing_can_be_started_after(made: Launcher) -> None:
    worker = sleeper(made)
    made.close()
    made.close()

    assert worker.exit is not None
    assert not made.alive
    assert made.fileno() is None
    late = sleeper(made)
    assert late.exit is not None
    for each in (worker, late):
        each.kill()
        each.release()


# -------------------------------------------------------------------------------- how many


@pytest.mark.slow
def test_nothing_is_left_of_many_workers(made: Launcher) -> None:
    run(made, "end", b"return")
    gc.collect()
    zygote = psutil.Process(made._process.pid)
    before = len(list(FDS.iterdir())), zygote.num_fds()

    for _ in range(10 if made.kind == "zygote" else 3):
        workers = [made.start(f"{ENTRIES}:end", [], b"return") for _ in range(5)]
        ends = [worker.wait_exit(SOON_S) for worker in workers]
        assert ends == [Exit(0, "exit status 0", "last words\n")] * 5
        del workers

    assert (len(list(FDS.iterdir())), zygote.num_fds()) == before
    assert not zygote.children()


@pytest.mark.slow
def test_hundreds_may_be_asked_for_before_the_first_is_there(made: Launcher) -> None:
    # More than the socket holds: the rest waits here.
    count = 400 if made.kind == "zygote" else 16  # interpreters
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


# -------------------------------------------------------------------------------- one a process


@pytest.mark.usefixtures("fresh")
def test_the_process_has_one_until_it_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_START", "zygote")
    prestart(1, None, ())
    one = launcher()
    assert launcher() is one
    assert one.kind == "zygote"
    worker = sleeper(one)

    os.kill(one._process.pid, signal.SIGKILL)
    end = worker.wait_exit(SOON_S)

    assert end == Exit(-9, "SIGKILL (9), together with its zygote", "")
    assert launcher() is not one
    assert run(launcher(), "end", b"return 3")[1].code == 3
    worker.release()


@pytest.mark.usefixtures("fresh")
def test_zygotes_killed_again_and_again_before_they_are_ready_are_an_error() -> None:
    for _ in range(2):
        one = launcher()
        os.kill(one._process.pid, signal.SIGKILL)
        assert sleeper(one).wait_exit(SOON_S) is not None
    one = launcher()
    os.kill(one._process.pid, signal.SIGKILL)

    with pytest.raises(RuntimeError, match="did not start: SIGKILL"):
        sleeper(one).wait_exit(SOON_S)
    assert run(launcher(), "end", b"return 3")[1].code == 3


@pytest.mark.usefixtures("fresh")
def test_one_that_died_unnoticed_is_replaced() -> None:
    one = launcher()
    os.kill(one._process.pid, signal.SIGKILL)
    fd = one.fileno()
    assert fd is not None
    assert readable(fd, SOON_S)

    assert launcher() is not one


@pytest.mark.usefixtures("fresh")
def test_threads_share_one() -> None:
    found: list[Launcher] = []
    codes: list[int] = []

    def work() -> None:
        found.append(launcher())
        codes.extend(run(launcher(), "end", b"return 3")[1].code for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(map(id, found))) == 1
    assert codes == [3] * 20


def test_news_taken_in_by_another_thread_end_a_wait(made: Launcher) -> None:
    run(made, "end", b"return")
    for _ in range(5):
        worker = sleeper(made)
        waiter = threading.Thread(target=worker.wait_exit, args=(SOON_S,))
        waiter.start()
        worker.kill()
        while worker.exit is None:
            made.pump()
        waiter.join(SOON_S / 2)

        assert not waiter.is_alive()
        worker.release()


@pytest.mark.usefixtures("fresh")
def test_a_forked_child_has_its_own_and_leaves_the_parents_alone() -> None:
    parents = launcher()
    worker = sleeper(parents)
    while worker.pid is None:
        parents.wait(SOON_S)
    inherited = [parents.fileno(), worker.sentinel]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert worker.sentinel is None
            assert not any(Path(f"/dev/fd/{fd}").exists() for fd in inherited)
            worker.kill()
            worker.release()
            parents.close()
            with pytest.raises(RuntimeError, match="not "):
                parents.start(f"{ENTRIES}:end", [], b"")
            assert launcher() is not parents
            assert run(launcher(), "end", b"return 3")[1].code == 3
            launcher().close()
            code = 0
        finally:
            os._exit(code)

    assert os.waitpid(pid, 0)[1] == 0
    assert worker.exit is None
    assert psutil.Process(worker.pid).status() == psutil.STATUS_SLEEPING
    assert launcher() is parents
    worker.kill()
    assert worker.wait_exit(SOON_S) == Exit(-9, "SIGKILL (9)", "")
    worker.release()


@pytest.mark.parametrize("kind", ["zygote", "spawn"])
def test_a_zygote_that_cannot_start_is_an_error_with_its_stderr(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In both kinds the zygote imports this; the consumer has done so already.
    (tmp_path / "ctypes.py").write_text("raise OSError('nothing works here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Launcher(kind)
    worker = made.start(f"{ENTRIES}:end", [], b"")

    with pytest.raises(RuntimeError, match=r"(?s)did not start: exit status 1.*nothing works here"):
        worker.wait_exit(SOON_S)
    assert worker.exit is not None
    with pytest.raises(RuntimeError, match="nothing works here"):
        made.start(f"{ENTRIES}:end", [], b"")
    made.close()
    worker.release()


def test_an_interrupt_while_news_are_taken_in_starts_over(
    made: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(message: object) -> None:
        raise KeyboardInterrupt

    run(made, "end", b"return")
    worker = sleeper(made)  # the next news are that it is there
    with monkeypatch.context() as patch:
        patch.setattr(made, "_take_in", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.wait(SOON_S)

    made.pump()

    assert worker.exit is not None  # what was lost may have been its pid
    assert not made.alive
    assert readable(
        made._control.fileno(), SOON_S
    )  # and stays open: somebody may be waiting for it
    worker.release()


def test_without_a_descriptor_to_watch_it_a_worker_has_not_begun(made: Launcher) -> None:
    if made.kind == "spawn":
        pytest.skip("it has its sentinel from the start")
    run(made, "end", b"return")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    worker = sleeper(made)
    in_use = max(int(path.name) for path in FDS.iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use, limits[1]))
    with contextlib.ExitStack() as taken:
        try:
            while True:
                taken.callback(os.close, os.dup(0))
        except OSError:
            pass
        end = worker.wait_exit(SOON_S)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert end == Exit(
        os.EX_OSERR, "it could not be started: no descriptor is left to watch it (ulimit -n)", ""
    )
    assert made.wait(SOON_S)  # it is killed, and that is told
    assert run(made, "end", b"return 3")[1].code == 3
    worker.release()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "zygote"),
        ({"TUNDISH_PORTABLE": "1"}, "spawn"),
        ({"TUNDISH_PORTABLE": "1", "TUNDISH_START": "zygote"}, "zygote"),
        ({"TUNDISH_START": "spawn"}, "spawn"),
        ({"TUNDISH_START": "fork"}, "fork"),
    ],
)
def test_how_workers_begin(
    environ: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TUNDISH_PORTABLE", "TUNDISH_START"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert module.start_method() == expected


def test_a_start_method_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_START", "forkserver")

    with pytest.raises(ValueError, match="it must be 'zygote', 'spawn' or 'fork'"):
        module.start_method()


def test_a_program_without_an_interpreter_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    beside = Path(sys.exec_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    for named in ("", None, "/usr/bin/env"):
        monkeypatch.setattr(sys, "executable", named)
        assert interpreter() == str(beside)
    monkeypatch.setattr(sys, "exec_prefix", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"set sys\.executable to one, or use workers=0"):
        interpreter()
    monkeypatch.undo()
    monkeypatch.setattr(sys, "frozen", True, raising=False)  # it would run the program again
    with pytest.raises(RuntimeError, match="workers=0"):
        interpreter()


# -------------------------------------------------------------------------------- real programs

PROGRAM = """
import json, os, pickle, sys
with open(os.environ["RUNS"], "a") as file:
    file.write("ran ")
from tundish.loader.run.starting.launcher import launcher
from tundish.loader.run.starting.payload import pack

class Thing:
    def __init__(self, value): self.value = value

def double(value): return Thing(2 * value)

def main():
    payload = pack([("map(double)", lambda value: double(value))])
    read, write = os.pipe()
    worker = launcher().start("tests.loader.run.entries:apply", [payload.fd, write], b"[21]")
    os.close(write)
    with os.fdopen(read, "rb") as file:
        thing = pickle.loads(file.read())
    print(type(thing) is Thing, thing.value, worker.wait_exit(10).code)
    worker.release()
    payload.close()

main()
"""


@pytest.fixture(params=["zygote", "spawn"])
def surroundings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "program.py").write_text(PROGRAM)
    paths = f"{ROOT}{os.pathsep}{tmp_path}"
    environ = {"TUNDISH_START": request.param, "RUNS": str(tmp_path / "runs"), "PYTHONPATH": paths}
    return {"cwd": tmp_path, "env": {**os.environ, **environ}, "capture_output": True}


@pytest.mark.parametrize(
    "way", ["script", "-c", "-m", "stdin", "-i", "-W error -X dev", "-I", "zip", "IPython"]
)
def test_main_runs_once_however_it_was_started(
    way: str, surroundings: dict[str, Any], tmp_path: Path
) -> None:
    arguments, stdin = {
        "script": (["program.py"], b""),
        "-c": (["-c", PROGRAM], b""),
        "-m": (["-m", "program"], b""),
        "stdin": (["-"], PROGRAM.encode()),
        "-i": (["-i", "program.py"], b"main()\n"),
        "-W error -X dev": (["-W", "error", "-X", "dev", "program.py"], b""),
        "-I": (["-I", "-c", f"import sys; sys.path.append({str(ROOT)!r})\n{PROGRAM}"], b""),
        "zip": (["program.zip"], b""),
        "IPython": (["-m", "IPython", "--quick", "program.py"], b""),
    }[way]
    if way == "IPython" and importlib.util.find_spec("IPython") is None:
        pytest.skip("IPython is not installed")
    if way == "zip":
        with zipfile.ZipFile(tmp_path / "program.zip", "w") as file:
            file.writestr("__main__.py", PROGRAM)

    done = subprocess.run([sys.executable, *arguments], input=stdin, check=False, **surroundings)

    answer = b"True 42 0\n"
    assert done.stdout == (2 * answer if way == "-i" else answer), done.stderr.decode()
    assert way == "-i" or not done.stderr, done.stderr.decode()
    assert done.returncode == 0
    assert (tmp_path / "runs").read_text() == "ran "


@pytest.mark.parametrize("kind", ["zygote", "spawn"])
def test_sixteen_workers_with_256_descriptors(kind: str) -> None:
    script = f"""
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from tundish.loader.run.starting.launcher import Launcher
launcher = Launcher({kind!r})
ways = [(os.pipe(), os.pipe()) for _ in range(16)]
workers = [launcher.start("tests.loader.run.entries:echo", [a[0], b[1]], b"") for a, b in ways]
for a, b in ways:
    os.write(a[1], b"x")
    assert os.read(b[0], 1) == b"x"
    for fd in (*a, *b): os.close(fd)
print([worker.wait_exit({SOON_S}).code for worker in workers] == [0] * 16)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == (b"True\n", b"")


@pytest.mark.parametrize("kind", ["zygote", "spawn"])
def test_the_end_of_the_interpreter_is_silent_and_ends_all(kind: str) -> None:
    script = f"""
import os
from tundish.loader.run.starting.launcher import Launcher
launcher = Launcher({kind!r})
read, write = os.pipe()
worker = launcher.start("tests.loader.run.entries:sleep", [write], b"")
print(launcher._process.pid, os.read(read, 100).decode())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    zygote, worker = map(int, done.stdout.split())
    assert not psutil.pid_exists(zygote)
    assert not psutil.pid_exists(worker) or psutil.Process(worker).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("kind", ["zygote", "spawn"])
def test_a_forked_child_ends_in_silence(kind: str) -> None:
    script = f"""
import gc, os, sys
from tundish.loader.run.starting.launcher import Launcher
launcher = Launcher({kind!r})
worker = launcher.start("tests.loader.run.entries:end", [], b"return")
worker.wait_exit({SOON_S})
pid = os.fork()
if pid:
    print(os.waitpid(pid, 0)[1])
else:
    del worker, launcher
    gc.collect()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == (b"0\n", b"last words\n")


THREAD_AT_IMPORT = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@pytest.mark.skipif(module.start_method() != "zygote", reason="only a zygote imports for others")
@pytest.mark.parametrize("starts_a_thread", [False, True])
def test_modules_are_imported_once_for_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, starts_a_thread: bool
) -> None:
    """If importing a module starts a thread, nobody is forked from there any more."""
    text = f"import os\nWHO = os.getpid()\n{THREAD_AT_IMPORT if starts_a_thread else ''}"
    (tmp_path / "shared_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    own = Launcher("zygote")
    own.preload(["shared_module", "no_such_module"])
    told = []
    for _ in range(2):
        read, write = os.pipe()
        worker = own.start("tests.loader.run.entries:tell_who_imported", [write], b"")
        os.close(write)
        with open(read, "rb") as answer:  # noqa: PTH123 - a descriptor
            told.append(answer.read().split())
        assert worker.wait_exit(10.0) is not None
        worker.release()
    own.close()
    importers, workers = {pair[0] for pair in told}, {pair[1] for pair in told}

    assert len(workers) == 2
    if starts_a_thread:
        assert importers == workers, "each has imported it for itself"
    else:
        assert len(importers) == 1
        assert not importers & workers


@pytest.mark.skipif(module.start_method() != "zygote", reason="only a zygote imports for others")
@pytest.mark.parametrize(("modules", "found"), [(["pyarrow"], b"1\n"), (["numpy"], b"0\n")])
def test_what_pyarrow_imports_later_is_imported_once_as_well(
    modules: list[str], found: bytes
) -> None:
    """As it first makes or reads an array, it imports pandas."""
    pytest.importorskip("pandas")
    own = Launcher("zygote")
    own.preload(modules)
    read, write = os.pipe()
    worker = own.start("tests.loader.run.entries:tell_whether_imported", [write], b"pandas")
    os.close(write)
    with open(read, "rb") as answer:  # noqa: PTH123 - a descriptor
        assert answer.read() == found
    assert worker.wait_exit(10.0) is not None
    worker.release()
    own.close()
