"""Law 7: memory is bounded in bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws import functions

from tundish import Dataset, Options
from tundish.errors import SharedMemoryError


@pytest.mark.parametrize("budget", ["8MB", "16MB"])
def test_a_small_budget_is_enough(budget: str) -> None:
    ds = (
        Dataset.range(64)
        .map(functions.megabyte)
        .batch(2)
        .with_options(Options(memory_budget=budget))
    )
    with ds.iterator(workers=2) as it:
        count = sum(int((batch[:, 0] >= 0).all()) for batch in it)

    assert count == 32


HOLDING = """
import os, sys
from tests.laws.functions import megabyte
from tundish import Dataset, Options

def shared_bytes():
    sizes = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
            if "memfd:" in name or "(deleted)" in name:
                status = os.fstat(int(fd))
                sizes[status.st_ino] = 512 * status.st_blocks
        except OSError:  # the folder's own descriptor
            pass
    return sum(sizes.values())

held, most, reported = [], 0, 0
ds = Dataset.range(int(sys.argv[1])).map(megabyte).with_options(Options(memory_budget="16MB"))
with ds.iterator(workers=2) as it:
    for element in it:
        if sys.argv[2] == "hold":
            held.append(element)
        most = max(most, shared_bytes())
        reported = max(reported, it.stats.used_bytes)
    assert it.stats.budget_bytes == 16_000_000, it.stats
    print(most, reported, it.stats.copies)
assert all((x == i % 251).all() for i, x in enumerate(held))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("what", ["drop", "hold"])
def test_what_is_shared_stays_within_the_budget(what: str) -> None:
    """Holding 200 MB with a budget of 16 MB finishes: the rest are private copies."""
    most, reported, copies = map(int, run(HOLDING, "200", what).split())

    assert 1 << 20 <= reported <= most <= 16_000_000
    assert copies or what == "drop"


def test_what_cannot_fit_is_an_error_with_numbers() -> None:
    """Or it is delivered all the same; never a signal, never a hang."""
    ds = Dataset.range(4).map(functions.megabyte).batch(4).with_options(Options(memory_budget=4096))
    outcomes: list[Any] = []
    with ds.iterator(workers=2) as it:
        try:
            outcomes.append(next(it).shape)
        except SharedMemoryError as error:
            outcomes.append(error)

    short = [x for x in outcomes if isinstance(x, SharedMemoryError)]
    assert short or outcomes == [(4, 1 << 20)]
    assert all(x.needed > x.available and f"{x.needed:,}" in str(x) for x in short)


SCRIPT = """
import resource, sys
import numpy as np
from tundish import Dataset
big = np.zeros(64 << 20, np.uint8); big[:] = 7
def use(i): return int(big[int(i)])
with Dataset.range(200).map(use).iterator(workers=4) as it:
    next(it)
    import psutil
    def pss(p):
        return int(next(l.split()[1] for l in open(f"/proc/{p}/smaps_rollup") if l.startswith("Pss:")))
    base = sum(pss(pid) for pid in it.worker_pids()) // 1024
    assert all(int(x) == 7 for x in it)
    print(base)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's smaps")
def test_a_captured_array_is_there_once() -> None:
    """Four workers do not have four copies of 64 MB."""
    assert int(run(SCRIPT)) < 64 * 2.2


def test_a_source_s_array_is_not_copied_by_the_plan() -> None:
    array = np.zeros(1 << 20)
    ds = Dataset.from_tensor_slices(array).batch(2)

    assert np.shares_memory(ds._node.inputs[0].arrays, array)  # type: ignore[attr-defined]


def run(script: str, *arguments: str) -> str:
    """Return what a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
