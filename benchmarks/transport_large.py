"""Batches of 38.5 MB: how close to the speed of copying memory they come through two workers.

Each of 64 rows is taken from an array too large for the caches, so making a batch is one copy of
every row into its place. The ceiling is two processes that do only that, each pinned to a core, into
shared memory that has been written before; no transport can be faster.

Claims: the ceiling is nearly reached, torch's DataLoader is left far behind, the consumer pays
microseconds, and a worker little more than the copy.
"""

from __future__ import annotations

import mmap
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from common import (
    AS_USERS_HAVE_IT,
    Contestant,
    Report,
    arguments,
    contest,
    l3_bytes,
    medians,
    ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.cli.independent import Measured

WORKERS = 2
BATCH, ROW = 64, (3, 224, 224)
ROW_BYTES = int(np.prod(ROW)) * 4
BATCH_BYTES = BATCH * ROW_BYTES
ENDLESS = 1 << 40
SLOTS = 4

CONTESTANTS = {
    "ceiling": Contestant("transport_large:shared_copies", WORKERS),
    "ceiling, private memory": Contestant("transport_large:private_copies", WORKERS),
    "tundish": Contestant("transport_large:through_tundish", environ=AS_USERS_HAVE_IT),
    "torch": Contestant("transport_large:through_torch", needs="torch"),
    "grain": Contestant("transport_large:through_grain", needs="grain"),
}


def source() -> np.ndarray:
    """Rows that fill the last cache more than twice."""
    count = max(2 * BATCH, 2 * l3_bytes() // ROW_BYTES + 1)
    return np.random.default_rng(0).random((count, *ROW), np.float32)


def shared_copies(index: int) -> Callable[[], int]:
    """Copy rows into memory of the kind that processes share."""
    slots = [np.frombuffer(mmap.mmap(-1, BATCH_BYTES), np.float32) for _ in range(SLOTS)]
    return copies(index, [slot.reshape(BATCH, *ROW) for slot in slots])


def private_copies(index: int) -> Callable[[], int]:
    """Copy rows into memory of this process, which may have huge pages."""
    return copies(index, [np.empty((BATCH, *ROW), np.float32) for _ in range(SLOTS)])


def copies(index: int, slots: list[np.ndarray]) -> Callable[[], int]:
    """Copy rows on one core, on and on."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[index]})
    rows = source()
    for slot in slots:
        slot[...] = 1
    turn = 0

    def step() -> int:
        nonlocal turn
        slot = slots[turn % SLOTS]
        for row in range(BATCH):
            slot[row] = rows[(turn * BATCH + row) % len(rows)]
        turn += 1
        return 1

    return step


def through_tundish(_: int) -> Callable[[], int]:
    """Deliver batches through two workers."""
    from tundish import Dataset

    rows = source()
    count = len(rows)
    batches = (
        Dataset.range(ENDLESS)
        .map(lambda index: rows[index % count])
        .batch(BATCH)
        .iterator(workers=WORKERS)
    )

    def step() -> int:
        batch = next(batches)
        assert batch.shape == (BATCH, *ROW)
        return 1

    step.counts = lambda: {"tasks": batches.stats.tasks, "copies": batches.stats.copies}  # type: ignore[attr-defined]
    return step


def through_torch(_: int) -> Callable[[], int]:
    """Deliver batches through torch's DataLoader with two workers."""
    import torch
    from torch.utils.data import DataLoader

    rows = source()

    class Rows:
        def __len__(self) -> int:
            return ENDLESS

        def __getitem__(self, index: int) -> Any:
            return torch.from_numpy(rows[index % len(rows)])

    return pull(iter(DataLoader(Rows(), batch_size=BATCH, num_workers=WORKERS)))


def through_grain(_: int) -> Callable[[], int]:
    """Deliver batches through grain with two workers."""
    from peers import grain_workers

    rows = source()
    count = len(rows)
    return pull(grain_workers(ENDLESS, lambda index: rows[index % count], BATCH, WORKERS))


def pull(batches: Any) -> Callable[[], int]:
    """Take one batch a step."""

    def step() -> int:
        assert tuple(next(batches).shape) == (BATCH, *ROW)
        return 1

    return step


def main() -> int:
    given = arguments(str(__doc__))
    report = Report(
        "transport_large", f"{BATCH_BYTES / 1e6:.1f} MB batches, {WORKERS} workers", given
    )
    measured = contest(CONTESTANTS, given.rounds, given.seconds)

    def below(each: Measured) -> float:
        return each.cpu_below or each.cpu  # of a bound: the work is in the process itself

    rows = [["", "GB/s", "of the ceiling", "consumer ms/batch", "workers ms/batch"]]
    for name in CONTESTANTS:
        if name not in measured:
            rows.append([name, "not installed", "", "", ""])
            continue
        rounds = measured[name]
        consumer = (
            "" if name.startswith("ceiling") else f"{medians(rounds, lambda m: m.cpu) * 1e3:.3f}"
        )
        rows.append(
            [
                name,
                f"{medians(rounds) * BATCH_BYTES / 1e9:.1f}",
                f"{ratio(rounds, measured['ceiling']):.2f}",
                consumer,
                f"{medians(rounds, below) * 1e3:.2f}",
            ]
        )
    report.table("throughput", rows)

    ours, ceiling = measured["tundish"], measured["ceiling"]
    micro = "{:,.0f} µs".format
    report.claim("GB/s / two-core memcpy ceiling", 0.90, ratio(ours, ceiling), least=True)
    report.claim("GB/s / torch DataLoader", 8.0, ratio(ours, measured.get("torch")), least=True)
    report.claim("GB/s / grain", 8.0, ratio(ours, measured.get("grain")), least=True)
    report.claim("consumer CPU per batch", 200, medians(ours, lambda m: m.cpu) * 1e6, show=micro)
    report.claim(
        "consumer CPU per task",
        60,
        medians(ours, lambda m: m.cpu / max(m.extra["tasks"], 1e-9)) * 1e6,
        show=micro,
    )
    beyond = ratio(ours, ceiling, below)
    report.claim(
        "worker CPU per batch beyond one memcpy",
        0.10,
        None if beyond is None else beyond - 1,
        show="{:.0%}".format,
    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
