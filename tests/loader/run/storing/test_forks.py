"""Iterators that write, in a process that is forked, and in several threads."""

from __future__ import annotations

import atexit
import gc
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.snapshot.catalog import Catalog

COUNT = 60


def make(folder: Path) -> td.Dataset:
    return td.Dataset.range(COUNT).map(lambda x: np.full(50, x)).snapshot(folder, batch_bytes=2000)


def values(ds: Iterable[Any]) -> list[int]:
    return [int(x[0]) for x in ds]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("how", ["close", "drop", "exit", "use"])
def test_a_child_leaves_what_its_parent_writes_alone(
    tmp_path: Path, workers: int, how: str
) -> None:
    it = make(tmp_path).iterator(workers=workers)
    first = [int(next(it)[0]) for _ in range(COUNT // 3)]
    child = os.fork()
    if child == 0:
        good = False
        try:
            if how == "close":
                it.close()
            elif how == "drop":
                del it
                gc.collect()
            elif how == "exit":
                atexit._run_exitfuncs()
            else:
                good = workers > 0 or values(it) == list(range(COUNT // 3, COUNT))
                good = good and values(make(tmp_path)) == list(range(COUNT))
            good = good or how != "use"
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert first + values(it) == list(range(COUNT))
    with make(tmp_path).iterator() as it:
        assert it.stats.snapshots[0].doing == "read"
        assert values(it) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 1])
def test_of_several_threads_one_writes(tmp_path: Path, workers: int) -> None:
    found: list[list[int]] = []
    together = threading.Barrier(4)

    def run() -> None:
        together.wait()
        with make(tmp_path).iterator(workers=workers) as it:
            together.wait()
            found.append(values(it))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(COUNT))] * 4
    catalog = Catalog(tmp_path)
    (key,) = catalog.keys()
    assert len(catalog.runs(key)) == 1
