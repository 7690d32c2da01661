"""One pipeline for several consumers of a host: what eight cost beyond one, and how fast each is.

Batches of 38.5 MB are made of JPEGs by workers of the host process; each consumer touches a byte of every page. Runs with
one and with several consumers take turns. What is compared is the CPU time of the whole tree (host process, its workers,
consumers) for a batch, and the rate of the slowest consumer. Several consumers touch several times as many pages, whatever
carries the batches to them, so the CPU time that is not their own touching is compared, too. In a third run one consumer changes every batch in place;
what the others see must stay the same.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import numpy as np

SIDE, BATCH, PAGE = 224, 64, 4096
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def photograph() -> bytes:
    """Return a JPEG of some size and detail."""
    from PIL import Image

    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (48, 64, 3), np.uint8))
    file = io.BytesIO()
    coarse.resize((500, 375)).save(file, "JPEG", quality=90)
    return file.getvalue()


def dataset(workers: int) -> Any:
    """Return endless batches of decoded photographs."""
    from PIL import Image

    import tundish as td

    data = photograph()

    def decode(i: Any) -> Any:
        image = Image.open(io.BytesIO(data)).convert("RGB").resize((SIDE, SIDE))
        return np.asarray(image, np.float32) + np.float32(i % 7)

    options = td.Options()
    options.workers = workers
    return td.Dataset.range(1 << 40).map(decode).batch(BATCH).with_options(options)


def consume(settings: dict[str, Any]) -> None:
    """Be a consumer: read some batches, then as many as are measured, when told to."""
    from tundish.loader.service.host.host import host

    ds = dataset(settings["workers"])
    if settings["shared"]:
        ds = host(ds, "benchmark", linger=1.0, window="400 MB", consumers=settings["consumers"])
    with iter(ds) as batches:
        for _ in range(settings["warm"]):
            touch(next(batches))
        print("ready", flush=True)
        sys.stdin.readline()
        began, total, touching_s = time.perf_counter(), 0, 0.0
        for _ in range(settings["batches"]):
            batch = next(batches)
            before = time.thread_time()
            total += touch(batch)
            touching_s += time.thread_time() - before
            if settings["writes"]:
                batch.reshape(-1).view(np.uint8)[::PAGE] = 0
        told = {"s": time.perf_counter() - began, "total": total, "touching_s": touching_s}
        print(json.dumps(told), flush=True)
        sys.stdin.readline()


def touch(batch: np.ndarray[Any, Any]) -> int:
    """Read a byte of every page."""
    return int(batch.reshape(-1).view(np.uint8)[::PAGE].sum(dtype=np.int64))


def cpu_s(folder: str) -> float:
    """Return the CPU seconds of all processes that have this runtime folder."""
    mark, ticks = f"TUNDISH_RUNTIME_DIR={folder}".encode(), 0
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                    ticks += sum(map(int, fields[11:15]))
    return ticks / TICK


def measure(
    consumers: int, given: argparse.Namespace, *, shared: bool, writes: bool = False
) -> dict[str, Any]:
    """Run some consumers; return what a batch cost the whole tree, and the rate of the slowest."""
    folder = tempfile.mkdtemp(prefix="td-bench-")
    settings = {
        "workers": given.workers,
        "batches": given.batches,
        "warm": given.warm,
        "shared": shared,
        "consumers": consumers,
    }
    processes = []
    try:
        for number in range(consumers):
            told = json.dumps({**settings, "writes": writes and number == 0})
            processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, "--consumer", told],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, "TUNDISH_RUNTIME_DIR": folder},
                )
            )
        for process in processes:
            assert line(process.stdout).strip() == "ready"
        before = cpu_s(folder)
        for process in processes:
            say(process.stdin)
        found = [json.loads(line(process.stdout)) for process in processes]
        spent = cpu_s(folder) - before
        for process in processes:
            say(process.stdin)
            process.wait(timeout=60)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "cpu_s": spent / given.batches,
        "touching_s": sum(each["touching_s"] for each in found) / given.batches,
        "rate": given.batches / max(each["s"] for each in found),
        "totals": sorted({each["total"] for each in found}),
    }


def line(file: IO[str] | None) -> str:
    """Return a line of a process's output."""
    assert file is not None
    return file.readline()


def say(file: IO[str] | None) -> None:
    """Send a process a line."""
    assert file is not None
    print(file=file, flush=True)


def main() -> None:
    """Run the rounds, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consumer", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--consumers", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    # The host makes about ten batches ahead. Runs are long enough for these to weigh little.
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--warm", type=int, default=20)
    given = parser.parse_args()
    if given.consumer:
        consume(json.loads(given.consumer))
        return
    rows = []
    for number in range(given.rounds):
        alone = measure(1, given, shared=False)
        one = measure(1, given, shared=True)
        several = measure(given.consumers, given, shared=True)
        writing = measure(given.consumers, given, shared=True, writes=True)
        assert several["totals"] == one["totals"] == alone["totals"] == writing["totals"], (
            "elements differ"
        )
        rows.append(
            (
                several["cpu_s"] / one["cpu_s"],
                several["rate"] / one["rate"],
                one["cpu_s"] / alone["cpu_s"],
                (several["cpu_s"] - several["touching_s"]) / (one["cpu_s"] - one["touching_s"]),
            )
        )
        print(
            f"round {number}: CPU s a batch: alone {alone['cpu_s']:.4f}, one {one['cpu_s']:.4f}, "
            f"{given.consumers} {several['cpu_s']:.4f}, one of them writing {writing['cpu_s']:.4f}; batches/s: "
            f"{alone['rate']:.2f}, {one['rate']:.2f}, {several['rate']:.2f}, {writing['rate']:.2f}; of the CPU touching: "
            f"{one['touching_s']:.4f}, {several['touching_s']:.4f}",
            flush=True,
        )
    cpu, rate, shared, untouched = (statistics.median(column) for column in zip(*rows, strict=True))
    print(
        f"median of {given.rounds}: {given.consumers} consumers cost {cpu:.3f} x the CPU of one (at most 1.05)"
    )
    print(f"without what consumers spend on touching pages: {untouched:.3f} x")
    print(f"the slowest of them has {rate:.3f} x the rate of one (at least 0.95)")
    print(
        f"one through the host process costs {shared:.3f} x the CPU of the dataset's own iterator"
    )


if __name__ == "__main__":
    main()
