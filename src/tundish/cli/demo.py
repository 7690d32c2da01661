"""``tundish demo``: real photographs through worker processes, and the promises shown."""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tundish
from tundish.cli.independent import Independent
from tundish.cli.kept import show_kept
from tundish.cli.photographs import BATCH, PATTERN, digest, load
from tundish.cli.terminal import ProgressLine, bold, dim, good, say, table, warn
from tundish.loader.dataset import Dataset
from tundish.shm.budget import usable_cores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WORKERS = 2
BATCHES = 24
KILL_AT, SAVE_AT = 8, 12
SEEDS = (1, 2)  # one for the order, one for cutting and flipping

ROUNDS = 3
ROUND_S = 1.2
WARM_UP = 8  # batches: what workers have made ahead by then is made ahead at the end, too


def run() -> int:
    """Run the demo.

    Returns
    -------
    int
        The exit status: 1 when two runs that must be the same are not.
    """
    say(bold(f"tundish {tundish.__version__}"))
    say(dim(f"Python {platform.python_version()}, {usable_cores()} cores"))
    say()
    say("Photographs: decoded, cut and flipped at random, in batches of 64, by two workers.")
    with photographs().iterator(workers=WORKERS) as batches:
        progress = ProgressLine(BATCHES * BATCH, "images")
        for batch in batches:
            progress.advance(len(batch["image"]))
        progress.finish()

    say()
    say("The same run again, and every byte of what it delivers hashed.")
    hashes = [show(title, digests) for title, digests in runs()]
    same = len(set(hashes)) == 1
    say()
    say(good("The same bytes in the same order, each time.") if same else warn("They differ."))

    say()
    same = show_kept() and same

    say()
    say(f"How fast, while nobody hashes (median of {ROUNDS} rounds):")
    say()
    table(speeds(), right=(1, 2))
    return 0 if same else 1


def photographs(batches: int | None = None) -> Dataset:
    """Many passes over a few files, in an order that mixes them all."""
    order, augmentation = SEEDS
    files = Dataset.list_files(PATTERN, shuffle=False)
    return (
        files.repeat((batches or BATCHES) * BATCH // len(files))
        .shuffle(None, seed=order)
        .map(load, num_parallel_calls=WORKERS, seed=augmentation)
        .batch(BATCH)
    )


def runs() -> Iterator[tuple[str, Iterator[bytes]]]:
    """The same run four ways: what to call it, and the digests of its batches."""
    yield "In this process, without workers", hashed(photographs().iterator(workers=0))
    yield f"With {WORKERS} workers", hashed(photographs().iterator(workers=WORKERS))
    yield f"With {WORKERS} workers, one killed after batch {KILL_AT}", with_a_kill()
    yield f"Stopped after batch {SAVE_AT}; a new process with 1 worker continues", resumed()


def hashed(batches: Any) -> Iterator[bytes]:
    """The digest of each batch."""
    with batches:
        yield from map(digest, batches)


def with_a_kill() -> Iterator[bytes]:
    """Yield digests as `hashed` does; midway a worker gets a SIGKILL."""
    with photographs().iterator(workers=WORKERS) as batches:
        for _ in range(KILL_AT):
            yield digest(next(batches))
        killed = batches.worker_pids()[0]
        os.kill(killed, signal.SIGKILL)
        yield from map(digest, batches)
        say(dim(f"process {killed} killed; workers replaced: {batches.stats.restarts}"))


def resumed() -> Iterator[bytes]:
    """Yield digests as `hashed` does; the second half comes from a process that was given the state alone."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state.json")
        with photographs().iterator(workers=WORKERS) as batches:
            for _ in range(SAVE_AT):
                yield digest(next(batches))
            batches.save(state)
        command = [sys.executable, "-m", "tundish.cli.demo", str(state), str(BATCHES)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        yield from map(bytes.fromhex, done.stdout.split())
        say(dim(f"all it was given: {state.stat().st_size:,} bytes of JSON"))


def go_on(state: str, batches: int) -> None:
    """Do what the new process does: print the digests of the rest."""
    with photographs(batches).iterator(workers=1) as rest:
        rest.restore(state)
        for batch in rest:
            print(digest(batch).hex())  # noqa: T201 - read by the process that started this one


def show(title: str, digests: Iterable[bytes]) -> str:
    """Run to the end and print one hash of everything."""
    say()
    say(title)
    content = hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()
    say(f"content hash: {content}")
    return content


def speeds() -> list[list[str]]:
    """Measure, the three by turns, and return a table."""
    endless = Dataset.list_files(PATTERN, shuffle=False).repeat().map(load, seed=0).batch(BATCH)
    work = "tundish.cli.photographs:without_transport"
    measured: list[tuple[float, float, float]] = []
    with (
        endless.iterator(workers=0) as alone,
        endless.iterator(workers=WORKERS) as together,
        Independent(work, WORKERS) as independent,
    ):
        for _ in range(ROUNDS):
            bound = independent.run(ROUND_S).rate
            measured.append((rate(alone, 1), rate(together, WARM_UP), bound))
    by_kind = list(zip(*measured, strict=True))
    names = (
        "in one process",
        f"{WORKERS} workers",
        f"compute bound: {WORKERS} processes that hand over nothing",
    )
    rows = [["", "images/s", "share of the bound"]]
    for name, rates in zip(names, by_kind, strict=True):
        median = statistics.median(rates)
        share = median / statistics.median(by_kind[-1])
        rows.append([name, f"{median:,.0f}", f"{share:.0%}"])
    return rows


def rate(batches: Iterator[Any], warm_up: int) -> float:
    """Images per second, from one delivery to another."""
    for _ in range(warm_up):
        next(batches)
    count, start = 0, time.perf_counter()
    while (now := time.perf_counter()) < start + ROUND_S:
        next(batches)
        count += BATCH
    return count / (now - start)


if __name__ == "__main__":
    go_on(sys.argv[1], int(sys.argv[2]))
