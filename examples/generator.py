"""A cheap generator, an expensive function: all cores work although the function holds the GIL.

The generator runs here, one index after another; what is done with each index runs in workers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np

import tundish as td


def indices() -> Iterator[int]:
    """Whatever decides what comes next: a queue, a sampler, a curriculum."""
    yield from range(400)


def expensive(index: int) -> dict[str, object]:
    """Some milliseconds of pure Python."""
    total = sum(number * number % 7 for number in range(150_000))
    return {"x": np.float32(index + total), "pid": os.getpid()}


def main() -> None:
    """Run it in this process, then in workers."""
    signature = td.ArraySpec((), "int64")
    ds = td.Dataset.from_generator(indices, output_signature=signature).map(expensive).batch(20)
    for workers in (0, os.cpu_count() or 1):
        start = time.perf_counter()
        batches = list(ds.iterator(workers=workers))
        wall = time.perf_counter() - start
        processes = len({int(pid) for batch in batches for pid in batch["pid"]})
        print(f"{workers} workers: {wall:.2f} s, computed by {processes} processes")


if __name__ == "__main__":
    main()
