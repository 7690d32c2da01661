"""Traces that no test may leave, checked after each: `leaves_nothing`."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import psutil
import pyarrow as pa
import pytest
from pyarrow import csv

from tundish.loader.run.coordinating import store
from tundish.loader.run.starting.launcher import _current
from tundish.loader.run.storing import live
from tundish.loader.run.wire import marks
from tundish.testing import poison

if TYPE_CHECKING:
    from collections.abc import Iterator

# The same examples every time; new ones are looked for by `python -m tundish.testing.fuzz`.
hypothesis.settings.register_profile("tundish", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("tundish")

DESCRIPTORS = Path("/proc/self/fd" if Path("/proc/self/fd").exists() else "/dev/fd")
NAMED_MEMORY = "/dev/shm"
HAS_LISTS = Path("/proc/thread-self/children").exists()  # of children, of each thread
COLLECTING_S = 0.02
ENDING_S = 2.0  # a killed process may take this long to be gone from the table


def pytest_configure() -> None:
    """Hear Ctrl-C, though a shell that started this in the background has it ignored."""
    if poison.wanted():
        poison.install()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Set aside what is there now: `leaves_nothing` need not look through it after every test."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class Holdings:
    """The resources of the machine that this process has at one moment."""

    zygotes: frozenset[psutil.Process]
    workers: frozenset[psutil.Process]
    children: frozenset[psutil.Process]
    descriptors: frozenset[tuple[str, str]]
    names: frozenset[str]
    threads: frozenset[threading.Thread]
    arenas: int


def holdings() -> Holdings:
    """Look, without keeping anything open."""
    children = frozenset(children_of(os.getpid()))
    zygotes = frozenset(child for child in children if is_zygote(child))
    return Holdings(
        zygotes=zygotes,
        workers=frozenset(worker for zygote in zygotes for worker in offspring(zygote.pid)),
        children=children - zygotes,
        descriptors=frozenset(descriptors()),
        names=frozenset(names()),
        threads=frozenset(threading.enumerate()),
        arenas=len(store._current) + len(marks._current),
    )


def is_zygote(process: psutil.Process) -> bool:
    """Return True if a child is the interpreter that forks workers: a process has one, and keeps it."""
    try:
        return any("zygote" in part for part in process.cmdline())
    except psutil.Error:  # ended meanwhile: it is a child that nobody waited for
        return False


def offspring(pid: int) -> Iterator[psutil.Process]:
    """A process's children and theirs; none when it ended meanwhile."""
    for child in children_of(pid):
        yield child
        yield from offspring(child.pid)


def children_of(pid: int) -> Iterator[psutil.Process]:
    """A process's children; none when it ended meanwhile."""
    with suppress(psutil.Error):
        if not HAS_LISTS:  # all processes of the machine are looked through: milliseconds
            yield from psutil.Process(pid).children()
    for child in listed(pid):
        with suppress(psutil.Error):
            yield psutil.Process(child)


def listed(pid: int) -> list[int]:
    """The children of a process, as Linux lists them.

    Behind one that ends meanwhile another may be left out, so they are read until they are the same.
    """
    last, found = None, sorted(read_lists(pid))
    while found != last:
        last, found = found, sorted(read_lists(pid))
    return found


def read_lists(pid: int) -> Iterator[int]:
    """Each thread has its own."""
    with suppress(OSError):  # it ended meanwhile, and its children are another's
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - this runs before and after each test
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as lists:  # noqa: PTH123 - likewise
                yield from map(int, lists.read().split())


def descriptors() -> Iterator[tuple[str, str]]:
    """Every open file with what it is open on, where the system shows that.

    But for the board that a process has once and keeps.
    """
    for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 - this runs before and after each test
        path = f"{DESCRIPTORS}/{name}"
        try:
            target = os.readlink(path)  # noqa: PTH115 - likewise
        except OSError:
            if os.path.exists(path):  # noqa: PTH110 - not so what listed the folder: it is closed by now
                yield name, ""
        else:
            if not target.startswith("/memfd:tundish-board"):
                yield name, target


def names() -> Iterator[str]:
    """Yield the names of ours in shared memory."""
    with suppress(FileNotFoundError):
        yield from (name for name in os.listdir(NAMED_MEMORY) if "tundish" in name)  # noqa: PTH208


def collect() -> bool:
    """Collect garbage; return True if that took long: thousands of tests leave much with pytest."""
    began = time.perf_counter()
    gc.collect()
    return time.perf_counter() - began > COLLECTING_S


def collect_all() -> None:
    """Collect what finalizers let go of too, generators in generators, until nothing is found; and what was frozen."""
    gc.unfreeze()
    while gc.collect():
        pass


def bury_the_dead() -> None:
    """Wait for workers that were killed and have not yet been told of as ended.

    On a busy machine that takes longer than closing waits; until then their slots are kept from
    use, and their sentinels are open.
    """
    deadline = time.monotonic() + ENDING_S
    while store._graves and time.monotonic() < deadline:
        store.release_quarantined()
    for path, key, _ in list(live._lingering):  # writers that a busy machine has not let finish yet
        live.wait_for(path, key)


def await_ending(before: Holdings) -> None:
    """Wait for threads that end: a worker that is a thread may on a busy machine take longer than closing waits."""
    deadline = time.monotonic() + ENDING_S
    for thread in set(threading.enumerate()) - before.threads:
        thread.join(max(0.0, deadline - time.monotonic()))


@pytest.fixture(scope="session", autouse=True)
def a_cache_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes of files that tests read are kept apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNDISH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def nothing_unwritten(request: pytest.FixtureRequest) -> Iterator[None]:
    """No element and no file of a test holds memory that nobody wrote: `tundish.testing.poison`."""
    yield
    if poison.wanted():
        folder = request.node.funcargs.get("tmp_path")
        if folder is not None:
            poison.look_through_files(folder)
        poison.assert_clean(files=True)


@pytest.fixture(scope="session", autouse=True)
def pyarrow_listens() -> None:
    """As it first reads CSV, pyarrow listens for Ctrl-C: a pipe, which the process keeps."""
    csv.read_csv(pa.py_buffer(b"a\n1\n"), read_options=csv.ReadOptions(use_threads=False))


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """No process, descriptor, thread or name that was not there before the test.

    Allowed is what a process has once and keeps: its zygote (one for each way of starting), its
    arena, and the table of what was verified. A test in which they appear is not asked about
    descriptors. One that runs another library's processes (`untidy`) is not asked at all.
    """
    if request.node.get_closest_marker("untidy"):
        yield
        return
    before = holdings()
    yield
    await_ending(before)
    long = collect()
    bury_the_dead()
    after = holdings()
    if after.descriptors - before.descriptors:  # of what a generator let go as it was collected
        collect_all()
        after = holdings()
    if long:
        gc.freeze()  # what is there now is not looked through after each test
    if (before.zygotes, before.arenas) != (after.zygotes, after.arenas):
        after = replace(after, descriptors=before.descriptors)
    _, workers = psutil.wait_procs(after.workers - before.workers, timeout=ENDING_S)
    left = {
        "zygotes": after.zygotes if len(after.zygotes) > max(1, len(_current)) else set(),
        "workers": workers,
        "children": after.children - before.children,
        "descriptors": after.descriptors - before.descriptors,
        "names": after.names - before.names,
        "threads": after.threads - before.threads,
    }

    assert not {what: found for what, found in left.items() if found}
