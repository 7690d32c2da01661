"""Attempts at what must not happen: workers killed again and again, batches kept, memory shared.

These are promises with numbers rather than speeds; each is tried once, at its full size.
"""

from __future__ import annotations

import gc
import hashlib
import mmap
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from common import Report, arguments

from tundish import Dataset, Options
from tundish.errors import WorkerDiedError

MB = 1_000_000

STORM_BATCHES, STORM_ROWS, STORM_TASK_S, STORM_EVERY_S = 300, 1, 0.030, 0.050
GIANT_BYTES, GIANT_WORKERS = 1 << 30, 4
KEPT_BATCHES, KEPT_BUDGET = 2_000, 64 * MB
LABEL_BATCHES, LABEL_ROWS = 10_000, 64


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("robustness", "What must not happen", given, timed=False)
    for trial in (kill_storm, always_dies, giant_capture, all_kept, labels_kept, closed_asleep):
        trial(report)
    return report.finish()


# ----------------------------------------------------------------------------------- dying workers


def wait_and_draw(index: Any, rng: np.random.Generator) -> Any:
    time.sleep(STORM_TASK_S / STORM_ROWS)
    return rng.integers(0, 1 << 40, 4096) + index


def kill_storm(report: Report) -> None:
    """A SIGKILL every 50 ms: the same bytes, and nothing left behind."""
    pipeline = (
        Dataset.range(STORM_BATCHES * STORM_ROWS).map(wait_and_draw, seed=3).batch(STORM_ROWS)
    )
    pipeline = pipeline.with_options(Options(max_deaths=0))
    with pipeline.iterator(workers=4) as batches:
        expected = digest(batches)
    gc.collect()
    before = left_behind()
    start = time.perf_counter()
    with pipeline.iterator(workers=4) as batches:
        over = threading.Event()
        killed: list[int] = []
        storm = threading.Thread(target=kill_on_and_on, args=(batches, over, killed))
        storm.start()
        try:
            got = digest(batches)
            restarts = batches.stats.restarts
        finally:
            over.set()
            storm.join()
    wall = time.perf_counter() - start
    gc.collect()
    more = wait_until_gone(before)
    report.fact(
        f"{STORM_BATCHES} batches of {STORM_TASK_S * 1e3:.0f} ms, a SIGKILL every "
        f"{STORM_EVERY_S * 1e3:.0f} ms",
        "the same hash",
        f"{'the same' if got == expected else 'another'}: {len(killed)} kills, {restarts} restarts,"
        f" {wall:.1f} s",
        holds=got == expected and len(killed) > 0,
    )
    told = ", ".join(f"{count:+} {what}" for what, count in more.items() if count > 0)
    report.fact("left behind by the storm", "nothing", told or "nothing", holds=not told)


def kill_on_and_on(batches: Any, over: threading.Event, killed: list[int]) -> None:
    """End a random worker, wait, and again."""
    chance = random.Random(5)
    while not over.wait(STORM_EVERY_S):
        pids = batches.worker_pids()
        if pids:
            pid = chance.choice(pids)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(pid)


def die_at_seven(index: Any) -> Any:
    if index == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return index


def always_dies(report: Report) -> None:
    """An element that kills whoever computes it is named, and the others are delivered."""
    start = time.perf_counter()
    got, error = [], None
    with Dataset.range(20).map(die_at_seven).iterator(workers=2) as elements:
        while True:
            try:
                got.append(int(next(elements)))
            except StopIteration:
                break
            except WorkerDiedError as died:
                error = died
    wall = time.perf_counter() - start
    others = got == [index for index in range(20) if index != 7]
    report.fact(
        "one element that always kills its worker",
        "an error naming it",
        f"{type(error).__name__ if error else 'no error'} after {wall:.2f} s, "
        f"{'all others delivered' if others else 'others missing'}",
        holds=error is not None and "7" in str(error) and others,
    )


# ---------------------------------------------------------------------------------- shared memory


def giant_capture(report: Report) -> None:
    """A function that captures 1 GB: it is there once, whatever the number of workers."""
    giant = np.random.default_rng(0).integers(0, 256, GIANT_BYTES, np.uint8)
    start = time.perf_counter()
    written = mmap.mmap(-1, GIANT_BYTES)
    np.frombuffer(written, np.uint8)[:] = giant
    writing = time.perf_counter() - start
    del written
    step = GIANT_BYTES // 4096

    def touch_all(index: Any) -> Any:
        time.sleep(0.01)
        return int(giant[index % step :: 512].sum(dtype=np.int64))

    elements = Dataset.range(400).map(touch_all).iterator(workers=GIANT_WORKERS)
    del touch_all
    start = time.perf_counter()
    with elements:
        next(elements)
        first = time.perf_counter() - start
        for _ in range(200):
            next(elements)
        pss = sum(pss_bytes(pid) for pid in elements.worker_pids())
        mine = pss_bytes(os.getpid())
    report.claim(
        f"PSS of {GIANT_WORKERS} workers / one copy of the 1 GB they share",
        1.2,
        pss / GIANT_BYTES,
    )
    report.claim(
        "PSS of everybody / one copy, beside the caller's own array",
        1.2,
        (pss + mine - GIANT_BYTES) / GIANT_BYTES,
    )
    report.claim(
        f"first element with 1 GB captured, beyond writing it once ({writing:.2f} s)",
        1.0,
        max(0.0, first - writing),
        show="{:.2f} s".format,
    )


def pss_bytes(pid: int) -> int:
    """A process's memory, what it shares divided by the number of those who share it."""
    return int(psutil.Process(pid).memory_full_info().pss)


def megabyte(index: Any) -> Any:
    return np.full(MB // 8, index, np.int64)


def all_kept(report: Report) -> None:
    """All batches held at once, far beyond the budget."""
    options = Options(memory_budget=KEPT_BUDGET)
    kept_data = Dataset.range(KEPT_BATCHES).map(megabyte).batch(1).with_options(options)
    with kept_data.iterator(workers=2) as batches:
        start = time.perf_counter()
        kept = list(batches)
        wall = time.perf_counter() - start
        stats = batches.stats
    right = len(kept) == KEPT_BATCHES and all(
        int(batch[0, 0]) == index == int(batch[0, -1]) for index, batch in enumerate(kept)
    )
    report.fact(
        f"list(ds) of {KEPT_BATCHES:,} x 1 MB with a budget of {KEPT_BUDGET // MB} MB",
        "all equal",
        f"{'all equal' if right else 'wrong'} in {wall:.1f} s, {stats.copies:,} private copies",
        holds=right,
    )
    used = stats.used_bytes / MB
    report.claim("shared memory used by it, MB", KEPT_BUDGET / MB, used, show="{:.0f}".format)


def labelled(index: Any) -> Any:
    return {"image": np.full(4096, index, np.uint8), "label": np.int64(index)}


def labels_kept(report: Report) -> None:
    """A 512-byte label of each batch kept: no slot stays pinned for it."""
    data = Dataset.range(LABEL_BATCHES * LABEL_ROWS).map(labelled).batch(LABEL_ROWS)
    with data.iterator(workers=2) as batches:
        start = time.perf_counter()
        kept = [batch["label"] for batch in batches]
        wall = time.perf_counter() - start
        stats = batches.stats
    right = np.array_equal(np.concatenate(kept), np.arange(LABEL_BATCHES * LABEL_ROWS))
    report.fact(
        f"{LABEL_BATCHES:,} labels of {kept[0].nbytes} B kept",
        "all equal, 0 slots held",
        f"{'all equal' if right else 'wrong'} in {wall:.1f} s, {stats.leased} slots held,"
        f" {stats.copies:,} copies",
        holds=right and stats.leased <= 1 and stats.copies == 0,
    )


# ----------------------------------------------------------------------------------------- closing


def sleep_for_ever(index: Any) -> Any:
    if index:
        time.sleep(10_000)
    return index


def closed_asleep(report: Report) -> None:
    """Closing while every worker sleeps in the user's function."""
    elements = Dataset.range(100).map(sleep_for_ever).iterator(workers=4)
    next(elements)
    time.sleep(0.3)  # so that each of them has something to sleep over
    pids = elements.worker_pids()
    start = time.perf_counter()
    elements.close()
    took = time.perf_counter() - start
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], 1)
    report.claim("close() while every worker sleeps", 0.3, took, show="{:.3f} s".format)
    report.fact("workers alive after it", "none", str(len(alive) or "none"), holds=not alive)


# ---------------------------------------------------------------------------------------- counting


def digest(batches: Any) -> str:
    """A hash of everything."""
    whole = hashlib.blake2b(digest_size=16)
    for batch in batches:
        whole.update(batch.tobytes())
    return whole.hexdigest()


def left_behind() -> dict[str, int]:
    """Count the processes, descriptors and memory that this process holds."""
    here = psutil.Process()
    return {
        "processes": len(here.children(recursive=True)),
        "descriptors": here.num_fds(),
        "names in /dev/shm": sum(1 for _ in Path("/dev/shm").glob("*tundish*")),
        "threads": threading.active_count(),
        "MB of shared memory": shared_bytes() // MB,
    }


def shared_bytes() -> int:
    """Add up what is allocated in the nameless files that this process has open."""
    files = {}
    for link in Path("/proc/self/fd").iterdir():
        if link.is_symlink() and link.readlink().name.startswith("memfd:tundish"):
            status = link.stat()
            files[status.st_ino] = status.st_blocks * 512
    return sum(files.values())


def wait_until_gone(before: dict[str, int]) -> dict[str, int]:
    """Wait up to two seconds until no more is held than before; return what is."""
    deadline = time.monotonic() + 2
    while True:
        more = {what: count - before[what] for what, count in left_behind().items()}
        if time.monotonic() > deadline or not any(count > 0 for count in more.values()):
            return more
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
