"""Count the Python calls that the consumer makes in one ``next``.

    python benchmarks/calls.py --before c902f9b

A count is the same on a busy machine and on a quiet one. With a cheap function a batch is one task
for a worker; with one that takes `ROW_S` it is cut into eight, and the consumer waits for it.

Claims: `next` of two workers makes at most 200 calls, and without workers no more than before.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from against import ROOT, checked_out
from common import AS_USERS_HAVE_IT, Contestant, Report, arguments, contest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tundish.cli.independent import Measured

ENDLESS = 1 << 40
BATCH = 4000
SOME = 9  # calls of `next` a step, of which the median is taken
ROW_S = 10e-6
MOST = 200


def cheap(index: int) -> int:
    return index * 2


def slow(index: int) -> int:
    until = time.perf_counter() + ROW_S
    while time.perf_counter() < until:
        pass
    return index * 2


WORKLOADS = {
    "two workers, batches of one task": (2, "cheap"),
    "two workers, batches of eight tasks": (2, "slow"),
    "no workers": (0, "cheap"),
}


def counted(_: int, what: str) -> Callable[[], int]:
    """Deliver batches; count calls of Python functions in this process's main thread."""
    from tundish import Dataset

    workers, function = what.split("-")
    rows = Dataset.range(ENDLESS).map({"cheap": cheap, "slow": slow}[function])
    batches = rows.batch(BATCH).iterator(workers=int(workers))
    total = {"median": 0.0, "mean": 0.0}

    def step() -> int:
        found = [calls_of(batches) for _ in range(SOME)]
        total["median"] += statistics.median(found) * SOME
        total["mean"] += sum(found)
        return SOME

    step.counts = total.copy  # type: ignore[attr-defined]  # as `Independent` asks
    return step


def calls_of(batches: Any) -> int:
    """Count the calls of one ``next``, itself among them."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        next(batches)
    finally:
        sys.setprofile(None)
    return calls


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(str(__doc__), argv, words={"before": "an earlier commit, to compare with"})
    report = Report("calls", f"Python calls in `next`, batches of {BATCH:,} rows", given)
    with tempfile.TemporaryDirectory() as folder:
        trees = {"now": ROOT / "src"}
        if given.before:
            trees["before"] = checked_out(given.before, Path(folder))
        found = {
            (name, tree): contestant(workers, function, package)
            for name, (workers, function) in WORKLOADS.items()
            for tree, package in trees.items()
        }
        measured = contest(
            {" ".join(key): each for key, each in found.items()}, given.rounds, given.seconds
        )
    table = [
        ["calls in `next`", *(f"{tree}, {kind}" for tree in trees for kind in ("median", "mean"))]
    ]
    for name in WORKLOADS:
        rounds = [measured[f"{name} {tree}"] for tree in trees]
        table.append(
            [name, *(f"{calls(each, kind):.0f}" for each in rounds for kind in ("median", "mean"))]
        )
    report.table("workloads", table)
    for name, (workers, _) in WORKLOADS.items():
        now = calls(measured[f"{name} now"], "median")
        if workers:
            report.claim(f"{name}: calls", MOST, now)
        elif given.before:
            report.claim(
                f"{name}: now / before", 1.0, now / calls(measured[f"{name} before"], "median")
            )
    return report.finish()


def contestant(workers: int, function: str, package: Path) -> Contestant:
    return Contestant(
        f"calls:counted:{workers}-{function}", environ=AS_USERS_HAVE_IT, package=package
    )


def calls(rounds: Sequence[Measured], kind: str) -> float:
    """Calls in one ``next``, as the median of the rounds."""
    return statistics.median(each.extra[kind] for each in rounds)


if __name__ == "__main__":
    sys.exit(main())
