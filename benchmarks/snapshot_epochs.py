"""The price of keeping elements in the first epoch, and the time it saves in the second.

Photographs are decoded, cut and flipped in two workers. An epoch without a snapshot, a first one
that writes it (uncompressed, each time into a new folder), and a second one that reads it take
turns; each begins with ``iter(ds)`` and ends with the end of the dataset, what is written being
durable by then.

What a disk and a kernel take for the bytes alone is measured beside them: an epoch without a snapshot, while
another process writes as many bytes and waits for them to be on the disk.

Claims: the first epoch takes at most 1.10 times as long as one without, the second is at least ten
times faster than the first.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from common import Report, arguments

WORKERS = 2
BYTES = 224 * 224 * 3
IMAGES_A_SECOND = 250  # about what two cores decode: an epoch is to last as long as is asked for


class Epoch(NamedTuple):
    wall: float
    consumer: float  # CPU seconds, of this process
    workers: float  # of theirs, up to the last batch
    writer: float


def pipeline(images: int) -> Any:
    from tundish import Dataset
    from tundish.cli.photographs import PATTERN, load

    paths = Dataset.list_files(PATTERN, shuffle=False).repeat().take(images)
    return paths.map(load, seed=0, num_parallel_calls=WORKERS)


def epoch(ds: Any, images: int) -> Epoch:
    """Run one epoch in batches, every byte of which is read."""
    from tundish.cli.photographs import BATCH

    before, cpu, seen = time.perf_counter(), time.process_time(), 0
    theirs: list[float] = []
    batches = iter(ds.batch(BATCH))
    for batch in batches:
        seen += len(batch["image"])
        if images - BATCH <= seen < images:
            theirs = [cpu_seconds(pid) for pid in batches.worker_pids()]
        np.add.reduce(batch["image"].reshape(-1).view(np.uint64))
    if seen != images:
        raise AssertionError(f"{seen} images of {images}")
    wall, consumer = time.perf_counter() - before, time.process_time() - cpu
    return Epoch(wall, consumer, sum(theirs[:WORKERS]), sum(theirs[WORKERS:]))


def beside_a_writer(images: int, size: int, folder: Path) -> Epoch:
    """Run one epoch without a snapshot while another process writes as many bytes, durably."""
    script = (
        "import os, sys; buffer = os.urandom(4 << 20); left = int(sys.argv[2])\n"
        "fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n"
        "for k in range(-(-left // len(buffer))):\n"
        "    os.write(fd, buffer)\n"
        "    if k % 8 == 7: os.fdatasync(fd)\n"
        "os.fdatasync(fd)"
    )
    path = folder / "bytes"
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", script, str(path), str(size)]):
        found = epoch(pipeline(images), images)
    path.unlink()
    return found._replace(wall=time.perf_counter() - start)


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def main() -> int:
    given = arguments(str(__doc__))
    images = max(256, int(IMAGES_A_SECOND * 4 * given.seconds))
    report = Report("snapshot_epochs", f"Epochs of {images} photographs", given, timed=False)
    folder = Path(tempfile.mkdtemp(prefix="tundish-bench-"))
    epoch(pipeline(64), 64)  # what a process starts once
    plain, first, second, bound = [], [], [], []
    size = 0
    try:
        for turn in range(given.rounds):
            path = folder / str(turn)
            # Memory that was just given back is quicker to write to: nobody is to have it always.
            if turn % 2:
                bound.append(beside_a_writer(images, BYTES * images, folder))
            plain.append(epoch(pipeline(images), images))
            first.append(epoch(pipeline(images).snapshot(path), images))
            second.append(epoch(pipeline(images).snapshot(path), images))
            size = sum(file.stat().st_size for file in path.rglob("*.arrow"))
            shutil.rmtree(path)
            if not turn % 2:
                bound.append(beside_a_writer(images, BYTES * images, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [["epoch", "seconds", "images/s", "CPU s: consumer", "workers", "writer"]]
    for name, found in (
        ("without a snapshot", plain),
        ("the same, beside a process that writes as many bytes", bound),
        ("first: writes it", first),
        ("second: reads it", second),
    ):
        wall, *cpu = [statistics.median(column) for column in zip(*found, strict=True)]
        rows.append(
            [name, f"{wall:.3f}", f"{images / wall:,.0f}", *(f"{seconds:.2f}" for seconds in cpu)]
        )
    report.table("epochs", rows)
    print(f"{size / images / 1e3:,.0f} kB an image\n")
    report.claim("first epoch / without a snapshot", 1.10, ratio(first, plain))
    report.claim("first epoch / without, beside a process that writes", 1.10, ratio(first, bound))
    report.claim("first epoch / second", 10.0, ratio(first, second), least=True)
    return report.finish()


def ratio(ones: list[Epoch], others: list[Epoch]) -> float:
    """The median of the ratios within each round."""
    return statistics.median(one.wall / other.wall for one, other in zip(ones, others, strict=True))


if __name__ == "__main__":
    sys.exit(main())
