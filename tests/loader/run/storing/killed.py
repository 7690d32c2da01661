"""A run that writes a snapshot, to be killed: ``python killed.py FOLDER WORKERS``."""

from __future__ import annotations

import sys
import time

import numpy as np

import tundish as td

COUNT = 600


def make(x: np.int64, rng: np.random.Generator) -> dict[str, object]:
    time.sleep(0.0005)  # so that it can be hit anywhere
    return {"x": x, "noise": rng.integers(0, 1000, 250), "text": "t" * int(x % 7)}


def keep(element: dict[str, int]) -> bool:
    return int(element["x"]) % 10 != 3


def pipeline(folder: str) -> td.Dataset:
    ds = td.Dataset.range(COUNT).shuffle(50, seed=3).map(make, seed=5).filter(keep)
    return ds.snapshot(folder, batch_bytes=20_000, shard_bytes=200_000)


def main() -> None:
    folder, workers = sys.argv[1], int(sys.argv[2])
    seen = 0
    with pipeline(folder).iterator(workers=workers) as it:
        print("begun", flush=True)  # noqa: T201 - what it is for
        for at, _ in enumerate(it):
            if at % 50 == 49:
                it.save(f"{folder}.state.json")
            seen += 1
    print("done", seen, flush=True)  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
