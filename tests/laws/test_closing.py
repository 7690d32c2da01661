"""Law 5: closing is bounded and silent, though every worker sleeps in the user's code."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import psutil
import pytest
from tests.laws.functions import pure, sleep_for_ever

from tundish import Dataset
from tundish import Iterator as Elements
from tundish.loader.run.pool.pool import Pool

BOUND_S = 2.0


def stuck(workers: int = 2) -> Any:
    """An iterator all of whose workers sleep."""
    return Dataset.range(100).map(sleep_for_ever).batch(2).iterator(workers=workers)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Assert that the body is done soon, whether it raises an error or not."""
    since = time.monotonic()
    try:
        yield
    finally:
        assert time.monotonic() - since < BOUND_S


def by_close() -> None:
    it = stuck()
    with bounded():
        it.close()
        it.close()


def by_with() -> None:
    with contextlib.ExitStack() as leaving, stuck():
        leaving.enter_context(bounded())


def by_an_error_in_the_block() -> None:
    with contextlib.suppress(ZeroDivisionError), contextlib.ExitStack() as leaving, stuck():
        leaving.enter_context(bounded())
        raise ZeroDivisionError


def by_dropping_it() -> None:
    it = stuck()
    with bounded():
        del it
        gc.collect()


def by_dropping_a_cycle() -> None:
    cycle = [stuck()]
    cycle.append(cycle)
    with bounded():
        del cycle
        gc.collect()


def by_break() -> None:
    with contextlib.ExitStack() as leaving:
        for _ in Dataset.range(10_000).map(pure).iterator(workers=2):
            leaving.enter_context(bounded())
            break
        gc.collect()


WAYS = (by_close, by_with, by_an_error_in_the_block, by_dropping_it, by_dropping_a_cycle, by_break)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_closing_is_bounded(way: Callable[[], None], capfd: pytest.CaptureFixture[str]) -> None:
    way()

    assert capfd.readouterr() == ("", "")


def test_after_closing_next_says_so() -> None:
    it = Dataset.range(5).map(pure).iterator(workers=2)
    next(it)
    it.close()

    with pytest.raises((StopIteration, ValueError, RuntimeError)):
        next(it)


def close(held: list[Elements]) -> None:
    held[0].close()


@pytest.mark.parametrize("end", [close, list.clear], ids=["close", "drop"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_generator_is_closed_with_its_iterator(workers: int, end: Any) -> None:
    ended = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            ended.append(True)

    held = [Dataset.from_generator(numbers).map(pure).iterator(workers=workers)]
    next(held[0])
    gc.disable()
    try:
        end(held)
    finally:
        gc.enable()

    assert ended


@pytest.mark.parametrize("workers", [1, 2])
def test_closing_from_another_thread_ends_what_waits(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterator = Dataset.range(9).map(sleep_for_ever).iterator(workers=workers)
    closing = threading.Thread(target=iterator.close)
    pump = Pool.pump

    def pumped(pool: Pool, timeout_s: float | None = 0.0) -> None:
        if timeout_s is None and not closing.ident:
            closing.start()
        pump(pool, timeout_s)

    monkeypatch.setattr(Pool, "pump", pumped)

    assert list(iterator) == []
    closing.join()
    assert iterator.stats.elements == 0


# What is interrupted may be a function of a library between opening a file and its ``with``.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
# Or one that Python calls as something is let go, where it only reports what is raised.
@pytest.mark.filterwarnings(
    "ignore:(?s)Exception ignored in.*KeyboardInterrupt:pytest.PytestUnraisableExceptionWarning"
)
def test_an_interrupt_leaves_the_iterator_usable() -> None:
    """An interrupt that arrives while waiting is raised, and nothing is lost."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not Elements.__next__.__code__:
            frame = frame.f_back
        if frame is not None:  # what comes between two calls is not the iterator's to keep
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Dataset.range(60).map(slow).batch(2).iterator(workers=2) as it:
            found: list[list[int]] = []
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.013)
            interrupts = 0
            while interrupts < 10 and len(found) < 25:
                try:
                    found.append(next(it).tolist())
                except KeyboardInterrupt:
                    interrupts += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            found += [batch.tolist() for batch in it]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert interrupts
    assert found == [[2 * i, 2 * i + 1] for i in range(30)]


def slow(element: Any) -> Any:
    time.sleep(0.004)
    return element


BEGUN = {  # and then the interpreter ends
    "at exit": "next(it)",
    "in a thread": "t = threading.Thread(target=lambda: next(it)); t.start(); t.join()",
}
ENDINGS = {
    "without a next": "pass",
    "in a cycle": "cycle = [it]; cycle.append(cycle)",
    "by sys.exit": "sys.exit(0)",
    "by Ctrl-C": "os.kill(os.getpid(), signal.SIGINT); next(it)",
}
SCRIPT = """
import os, signal, sys, threading
from tests.laws.functions import pure, sleep_for_ever
from tundish import Dataset
from tundish import Iterator as Elements
it = Dataset.range(100).map({function}).iterator(workers=2)
{begun}
print("ready", flush=True)
{ending}
"""


@pytest.mark.parametrize("ending", [*BEGUN, *ENDINGS])
def test_the_interpreter_ends(ending: str) -> None:
    script = SCRIPT.format(
        begun=BEGUN.get(ending, ""),
        ending=ENDINGS.get(ending, ""),
        function="pure" if ending in BEGUN else "sleep_for_ever",
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        with bounded():
            errors = process.stderr.read()
            process.wait()

    if ending == "by Ctrl-C":
        assert errors.count("Traceback") == 1
        assert "KeyboardInterrupt" in errors
    else:
        assert (process.returncode, errors) == (0, "")


IN_A_DAEMON = """
import sys, threading
from tests.laws.functions import pure, sleep_for_ever
from tundish import DataLoader, Dataset
begun = threading.Event()
def consume():
    for _ in {elements}: begun.set()
    print("the elements have ended")
iterator = {made}
threading.Thread(target=consume, daemon=True).start()
begun.wait()
"""
DAEMONS = {
    "in this process": "Dataset.range(10**9).map(pure).iterator(workers=0)",
    "with workers": "Dataset.range(10**9).map(pure).iterator(workers=2)",
    "with threads": "Dataset.range(10**9).map(pure).iterator(workers=2, executor='thread')",
    "that sleep": "Dataset.range(9).map(sleep_for_ever).iterator(workers=2)",
    "a loader": "iter(DataLoader(range(10**9), batch_size=2, shuffle=False, num_workers=2))",
}


@pytest.mark.parametrize("made", DAEMONS)
def test_the_interpreter_ends_while_a_daemon_thread_is_in_next(made: str) -> None:
    """The thread is told neither an error nor that the elements have ended."""
    sleeps = made == "that sleep"
    elements = "(begun.set(), iterator)[1]" if sleeps else "iterator"
    script = IN_A_DAEMON.format(elements=elements, made=DAEMONS[made])
    told = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )

    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_ctrl_c_while_waiting_is_heard() -> None:
    script = SCRIPT.format(function="sleep_for_ever", begun="", ending="next(it)")
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        with bounded():
            errors = process.stderr.read()
            process.wait()

    assert errors.strip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Dataset.range(9).map(failing),
        lambda: Dataset.range(9).flat_map(failing),
        lambda: Dataset.range(9).interleave(failing),
        lambda: Dataset.range(9).map(failing).batch(2),
        lambda: Dataset.range(9).group_by_window(failing, failing, 2),
    ],
    ids=["map", "flat_map", "interleave", "batch", "group"],
)
def test_one_that_raised_an_error_is_closed_when_it_is_dropped(workers: int, make: Any) -> None:
    iterator = make().iterator(workers=workers)
    with pytest.raises(ValueError, match="no"):
        next(iterator)
    processes = [psutil.Process(pid) for pid in iterator.worker_pids()]
    dropped = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert dropped() is None
    _, alive = psutil.wait_procs(processes, timeout=2)
    assert not alive


def failing(*_: Any) -> Any:
    raise ValueError("no")
