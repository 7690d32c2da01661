"""Workers forked from the consumer: what they have, what they leave alone, and what becomes of them."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tundish import DataLoader, Dataset, Options
from tundish.errors import StalledError
from tundish.loader.run.starting import hazards

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or "TUNDISH_PORTABLE" in os.environ,
    reason="a process is forked on Linux only",
)

CONFIG = {"scale": 1}
HELD = threading.Lock()
SOON_S = 10.0


@pytest.fixture(autouse=True)
def as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNDISH_START", raising=False)


@pytest.fixture
def scale() -> Iterator[None]:
    yield
    CONFIG["scale"] = 1


def forked(function: Callable[[Any], Any], n: int = 8, workers: int = 2, **options: Any) -> Dataset:
    asked = Options(start="fork", workers=workers, **options)
    return Dataset.range(n).map(function).with_options(asked)


def loader(function: Callable[[Any], Any], n: int = 8, **arguments: Any) -> DataLoader:
    return DataLoader(
        Called(function, n),
        num_workers=2,
        multiprocessing_context="fork",
        batch_size=None,
        **arguments,
    )


class Called:
    """A dataset of what a function returns."""

    def __init__(self, function: Callable[[Any], Any], n: int) -> None:
        self.function, self.n = function, n
        self.unpicklable = threading.Lock()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        if index >= self.n:
            raise IndexError(index)
        with self.unpicklable:
            return self.function(index)


BOTH = pytest.mark.parametrize("made", [forked, loader])
Made = Callable[..., Any]


@BOTH
def test_workers_have_what_the_consumer_has(made: Made, scale: None, tmp_path: Path) -> None:
    before = sys.getrecursionlimit()
    lock, (here, there) = threading.Lock(), socket.socketpair()
    CONFIG["scale"] = 7

    def everything(x: int) -> int:
        with lock:
            there.send(b"x")
            return int(x) * CONFIG["scale"] + sys.getrecursionlimit()

    sys.setrecursionlimit(4321)
    try:
        with contextlib.closing(iter(made(everything))) as it:
            assert [int(each) for each in it] == [4321 + 7 * x for x in range(8)]
        assert here.recv(100) == b"x" * 8
    finally:
        sys.setrecursionlimit(before)
        here.close()
        there.close()


def test_the_state_and_its_fingerprint_are_those_of_any_start() -> None:
    states = []
    for start in ("zygote", "fork"):
        with iter(Dataset.range(8).map(abs).with_options(Options(start=start, workers=1))) as it:
            next(it)
            states.append(it.state_dict())

    assert states[0] == states[1]


def scaled(x: int) -> tuple[int, int]:
    return int(x) * CONFIG["scale"], os.getpid()


def test_a_worker_in_the_place_of_one_that_died_has_what_the_first_ones_had(scale: None) -> None:
    CONFIG["scale"] = 2
    with iter(forked(scaled, 400, workers=1)) as it:
        CONFIG["scale"] = 3
        first = next(it)
        os.kill(int(first[1]), signal.SIGKILL)
        rest = list(it)

    assert [int(value) for value, _ in [first, *rest]] == [2 * x for x in range(400)]
    assert len({int(pid) for _, pid in rest} - {int(first[1])}) == 1


def test_more_workers_are_forked_with_what_the_first_ones_had(scale: None) -> None:
    CONFIG["scale"] = 2
    with iter(forked(scaled, 400, workers=1)) as it:
        CONFIG["scale"] = 3
        next(it)
        it._engine._resize(3)
        values = [int(value) for value, _ in it]

    assert values == [2 * x for x in range(1, 400)]


@pytest.mark.filterwarnings("ignore:(?s).*was changed at run time:UserWarning")  # and they follow
def test_each_iterator_has_what_there_is_when_it_is_made(scale: None) -> None:
    persistent = loader(scaled, 4, persistent_workers=True)
    anew = forked(scaled, 4)
    found = []
    for scale_ in (2, 3):
        CONFIG["scale"] = scale_
        found.append([[int(value) for value, _ in each] for each in (persistent, anew)])
    iter(persistent).close()

    assert found == [[[0, 2, 4, 6], [0, 2, 4, 6]], [[0, 3, 6, 9], [0, 3, 6, 9]]]


def test_a_template_that_is_killed_is_forked_anew() -> None:
    with iter(forked(scaled, 400)) as it:
        first = next(it)
        template = psutil.Process(int(first[1])).parent()
        assert template is not None
        assert template.ppid() == os.getpid()
        template.kill()
        values = [int(first[0]), *(int(value) for value, _ in it)]

    assert values == list(range(400))


@BOTH
def test_generators_differ_from_worker_to_worker(made: Made) -> None:
    np.random.seed(1)  # noqa: NPY002 - the global one is meant
    random.seed(1)
    drawn = made(lambda _: (np.random.random(), random.random()), 40)  # noqa: NPY002
    pairs = [(float(a), float(b)) for a, b in drawn]

    assert len(set(pairs)) == 40
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == 40


ENDS = """
import atexit, os, signal, sys, threading, weakref
import tundish as td

def told(what): os.write(1, f"{what} in {'consumer' if os.getpid() == me else 'a child'}\\n".encode())
class Thing:
    def __del__(self): told("del")
me = os.getpid()
thing, other = Thing(), Thing()
atexit.register(told, "atexit")
weakref.finalize(other, told, "finalize")
for number in (signal.SIGTERM, signal.SIGUSR1): signal.signal(number, lambda *_: told("handler"))
print("held", end="")
stdout = sys.stdout  # as a handler of logging holds it

def function(x):
    stdout.flush()
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert sys.stdin.read() == "" and thing is not None and other is not None
    return x
ds = td.Dataset.range(6).map(function).with_options(td.Options(start="fork", workers=2))
assert [int(x) for x in ds] == list(range(6))
print(" out", flush=True)
"""


def test_nothing_of_the_consumer_s_ends_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what is written is held for a while
    done = subprocess.run(
        [sys.executable, "-c", ENDS], input="typed", capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == [
        "atexit in consumer",
        "del in consumer",
        "del in consumer",
        "finalize in consumer",
        "held out",
    ]


def test_descriptors_of_other_iterators_are_closed_and_the_user_s_are_not(tmp_path: Path) -> None:
    mine = (tmp_path / "mine").open("wb")

    def sockets(_: int) -> tuple[int, bool]:
        links = [
            str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()
        ]
        return sum(link.startswith("socket:") for link in links), str(tmp_path / "mine") in links

    before = sum(
        str(each.readlink()).startswith("socket:")
        for each in Path("/proc/self/fd").iterdir()
        if each.is_symlink()
    )
    with mine, iter(Dataset.range(9).map(scaled).with_options(Options(workers=2))) as other:
        next(other)
        with iter(forked(sockets, 1, workers=1)) as it:
            count, there = next(it)

    assert there
    assert count <= before + 1  # its own channel


def nested(x: int) -> int:
    """Iterate and fork in a worker."""
    pid = os.fork()
    if not pid:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    return int(x) + sum(int(y) for y in forked(abs, 3)) + sum(map(int, loader(abs, 3)))


@BOTH
def test_forks_within_forks(made: Made) -> None:
    assert [int(x) for x in made(nested, 3)] == [6, 7, 8]


def test_a_fork_of_the_user_s_leaves_iterators_alone_and_makes_its_own() -> None:
    with iter(forked(scaled, 50)) as first, iter(forked(scaled, 50)) as second:
        next(first)
        pid = os.fork()
        if not pid:
            found = [int(value) for value, _ in forked(scaled, 4)]
            first.close()
            os._exit(0 if found == [0, 1, 2, 3] else 1)

        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert (len(list(first)), len(list(second))) == (49, 50)


# -- locks ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def held_elsewhere(lock: Any) -> Iterator[None]:
    """Another thread holds it."""
    held, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            enough.wait()

    thread = threading.Thread(target=hold, name="the holder")
    thread.start()
    held.wait()
    try:
        hazards._told.clear()
        with pytest.warns(RuntimeWarning, match="the holder"):
            yield
    finally:
        enough.set()
        thread.join()


def waits(x: int) -> int:
    if x == 2:
        HELD.acquire()
    return int(x)


@BOTH
def test_a_lock_that_was_held_is_an_error_and_no_hang(made: Made) -> None:
    found: list[Any] = []
    with held_elsewhere(HELD), contextlib.closing(iter(made(waits, 5))) as it:
        while len(found) < 5:
            try:
                found.append(int(next(it)))
            except StalledError as error:
                found.append(error)
    stalled = found[2]

    assert [each for each in found if each is not stalled] == [0, 1, 3, 4]
    assert "waits for a lock that no thread will release" in str(stalled)
    assert "in waits" in stalled.detail
    assert "pytest" not in stalled.detail  # the consumer's frames, which a fork has too


def test_a_worker_that_is_stuck_as_it_begins_is_an_error() -> None:
    with (
        held_elsewhere(HELD),
        iter(forked(abs, worker_init=HELD.acquire)) as it,
        pytest.raises(StalledError, match="the start of a worker waits for a lock"),
    ):
        next(it)


def logs(x: int) -> int:
    logging.getLogger("tundish.tests").warning("%d", x)
    return int(x)


@BOTH
def test_logging_s_locks_are_free(made: Made, tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "log")
    logger = logging.getLogger("tundish.tests")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with held_elsewhere(handler.lock), contextlib.closing(iter(made(logs))) as it:
            assert [int(x) for x in it] == list(range(8))
    finally:
        logger.removeHandler(handler)
        handler.close()

    assert sorted((tmp_path / "log").read_text().split()) == [str(x) for x in range(8)]


def test_a_deadline_holds_though_the_consumer_has_one_of_faulthandler_s() -> None:
    """Whose thread is not there in a fork: to set or to cancel one would wait for it for ever."""

    def slow(x: int) -> int:
        if x == 1:
            time.sleep(60)
        return int(x)

    faulthandler.dump_traceback_later(100, exit=True)
    try:
        with iter(forked(slow, 3, deadline=0.5)) as it:
            assert int(next(it)) == 0
            with pytest.raises(StalledError, match=r"(?s)within 0\.5 s.* in slow"):
                next(it)
            assert int(next(it)) == 2
    finally:
        faulthandler.cancel_dump_traceback_later()


# -- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "stub", "told"),
    [
        (
            "torch",
            types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: True)),
            "torch.cuda is initialized",
        ),
        ("jax._src.xla_bridge", types.SimpleNamespace(_backends={"cpu": 1, "tpu": 2}), "tpu"),
    ],
)
@BOTH
def test_not_while_an_accelerator_is_in_use(
    made: Made, module: str, stub: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made(abs)
    monkeypatch.setitem(sys.modules, module, stub)

    with pytest.raises(RuntimeError, match=told) as caught:
        iter(source)

    monkeypatch.undo()
    assert "before the accelerator is first used" in str(caught.value)


def test_not_where_there_is_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_PORTABLE", "1")

    with pytest.raises(RuntimeError, match="on Linux only"):
        iter(forked(abs))


def test_the_environment_overrules_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_START", "fork")
    lock = threading.Lock()

    def function(x: int) -> int:
        with lock:  # cannot be pickled
            return int(x)

    ds = Dataset.range(3).map(function).with_options(Options(workers=1, start="zygote"))
    assert [int(x) for x in ds] == [0, 1, 2]


def test_it_is_about_processes() -> None:
    with pytest.raises(ValueError, match="start='fork' contradict"):
        forked(abs, executor="thread")
