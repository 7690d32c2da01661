"""A function over batches of a shuffled table, in two workers: what gathering rows and the transport cost.

The bound is two processes that call the same function on batches that lie ready, and give the results to
nobody. The function takes about `WORK_S`, as a small augmentation of 1,024 rows does.

Claim: at least 0.8 of the bound.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from common import AS_USERS_HAVE_IT, Contestant, Report, arguments, contest, medians, ratio

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, BATCH, WORKERS, WORK_S = 336_776, 1_024, 2, 2e-3

CONTESTANTS = {
    "the function alone, two processes": Contestant("table_workers:alone", WORKERS),
    "map_batches, two workers": Contestant("table_workers:in_workers", environ=AS_USERS_HAVE_IT),
    "map_batches, no workers": Contestant("table_workers:in_process", environ=AS_USERS_HAVE_IT),
}


def table() -> dict[str, np.ndarray]:
    """The columns of the table."""
    rng = np.random.default_rng(0)
    return {
        "distance": rng.integers(0, 5_000, ROWS),
        "delay": rng.random(ROWS),
        "hour": rng.integers(0, 24, ROWS).astype(np.int32),
    }


def work(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Compute for `WORK_S` of this process's CPU time, and add a column."""
    until = time.process_time() + WORK_S
    speed = batch["distance"] / (batch["delay"] + 1.0)
    while time.process_time() < until:
        speed = np.sqrt(speed * speed + 1.0)
    return {**batch, "speed": speed}


def alone(_: int) -> Callable[[], int]:
    """Call the function on batches that lie ready."""
    columns = table()
    order = np.random.default_rng(1).permutation(ROWS)[: 64 * BATCH].reshape(64, BATCH)
    batches = [{name: column[rows] for name, column in columns.items()} for rows in order]
    at = 0

    def step() -> int:
        nonlocal at
        at = (at + 1) % len(batches)
        return len(work(batches[at])["speed"])

    return step


def in_workers(_: int) -> Callable[[], int]:
    """Deliver batches through two workers."""
    return pull(WORKERS)


def in_process(_: int) -> Callable[[], int]:
    """Make batches in this process."""
    return pull(0)


def pull(workers: int) -> Callable[[], int]:
    """Take one batch a step; count its rows."""
    from tundish import Dataset

    rows = Dataset.from_tensor_slices(table()).shuffle(None, seed=1).repeat()
    batches: Any = rows.map_batches(work, BATCH).batch(BATCH).iterator(workers=workers)
    return lambda: len(next(batches)["speed"])


def main() -> int:
    given = arguments(str(__doc__))
    report = Report(
        "table_workers", f"Batches of {BATCH:,} rows of a shuffled table, {WORKERS} workers", given
    )
    measured = contest(CONTESTANTS, given.rounds, 2 * given.seconds)
    bound = measured["the function alone, two processes"]
    rows = [["", "rows/s", "of the bound", "consumer ms/batch", "workers ms/batch"]]
    for name, rounds in measured.items():
        consumer, below = (medians(rounds, lambda m: m.cpu), medians(rounds, lambda m: m.cpu_below))
        rows.append(
            [
                name,
                f"{medians(rounds):,.0f}",
                f"{ratio(rounds, bound):.2f}",
                f"{consumer * 1e3 * BATCH:.3f}",
                f"{below * 1e3 * BATCH:.3f}",
            ]
        )
    report.table("rows", rows)
    share = ratio(measured["map_batches, two workers"], bound)
    report.claim("rows/s / the function alone in two processes", 0.8, share, least=True)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
