"""Compare the price of this tree with that of an earlier commit.

    python benchmarks/against.py --before 20e83ad

The commit is checked out into a temporary folder. Each workload runs in three processes that take
turns: the earlier commit, this tree, and the earlier commit once more. The ratio of the two equal
ones says how far to trust the other.

Claim: no workload takes more than 3 % more CPU than before.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import AS_USERS_HAVE_IT, Contestant, Report, contest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tundish.cli.independent import Measured

ROOT = Path(__file__).resolve().parent.parent
COUNT = 20_000
MOST = 1.03
ROW = np.zeros(16, np.float32)


def same(element: Any) -> Any:
    return element


def true(_: Any) -> bool:
    return True


def row(_: Any) -> Any:
    return ROW + 1


def view(_: Any) -> Any:
    return (ROW + 1)[::2]


def fields(_: Any) -> Any:
    return {"a": ROW + 1, "b": ROW + 2, "label": 3}


def image(index: Any) -> Any:
    return np.full((64, 64, 3), index % 256, np.uint8)


def pipelines() -> dict[str, tuple[int, Callable[[], Any]]]:
    """Pipelines for one process: elements that are delivered, held, or written into a row."""
    from tundish import Dataset

    def numbers() -> Any:
        return Dataset.range(COUNT)

    return {
        "numbers": (COUNT, numbers),
        "numbers mapped": (COUNT, lambda: numbers().map(same)),
        "numbers in batches": (COUNT, lambda: numbers().map(same).batch(64)),
        "filter": (COUNT, lambda: numbers().filter(true)),
        "enumerate": (COUNT, lambda: numbers().enumerate()),
        "shuffle(1000) of mapped": (COUNT, lambda: numbers().map(same).shuffle(1000, seed=1)),
        "rows in batches": (COUNT, lambda: numbers().map(row).batch(64)),
        "dicts in batches": (COUNT, lambda: numbers().map(fields).batch(64)),
        "images in batches": (COUNT // 4, lambda: Dataset.range(COUNT // 4).map(image).batch(32)),
        "rows delivered": (COUNT, lambda: numbers().map(row)),
        "views delivered": (COUNT, lambda: numbers().map(view)),
        "dicts delivered": (COUNT, lambda: numbers().map(fields)),
        "rows mapped again": (COUNT, lambda: numbers().map(row).map(same)),
        "views mapped again": (COUNT, lambda: numbers().map(view).map(same)),
        "rows zipped": (COUNT, lambda: Dataset.zip((numbers().map(row), numbers()))),
        "rows in windows": (COUNT, lambda: numbers().map(row).window(64).flat_map(same)),
        "rows padded": (COUNT, lambda: numbers().map(row).padded_batch(64)),
        "rows shuffled": (COUNT, lambda: numbers().map(row).shuffle(64, seed=1)),
        "rows cached, two passes": (COUNT, lambda: numbers().map(row).cache().repeat(2)),
    }


def in_process(_: int, name: str) -> Callable[[], int]:
    """Whole passes of one of `pipelines`."""
    count, make = pipelines()[name]
    dataset = make()

    def work() -> int:
        deque(dataset.iterator(workers=0), maxlen=0)
        return count

    return work


TRANSPORT = {
    "two workers: 4 KB elements": "transport_small:through_tundish:one",
    "two workers: 64 rows": "transport_small:through_tundish:rows",
    "two workers: 64 dicts": "transport_small:through_tundish:fields",
    "two workers: 64 random rows": "transport_small:through_tundish:drawn",
    "two workers: numbers": "transport_small:through_tundish:scalar",
    "two workers: streams, mapped": "transport_small:through_streams:stream",
    "two workers: streams in turn, mapped": "transport_small:through_streams:turns",
    "two workers: streams, mapped, in batches": "transport_small:through_streams:batches",
    "two workers: 38.5 MB": "transport_large:through_tundish",
}
"""Workloads of other programs; several processes, so noisier."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--before", default="HEAD~1", help="the commit to compare with (HEAD~1)")
    parser.add_argument("--rounds", type=int, default=9, help="of which medians are taken (9)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each measurement (0.4)")
    parser.add_argument("--only", default="", help="run the workloads whose name has this in it")
    parser.add_argument("--json", type=Path, help="where the results go (benchmarks/results/)")
    parser.add_argument("--check", action="store_true", help="fail when a claim is missed")
    given = parser.parse_args(argv)
    report = Report("against", f"This tree against {given.before}", given)
    works = {name: f"against:in_process:{name}" for name in pipelines()} | TRANSPORT
    rows = [["CPU an item", "before, µs", "now / before", "before / before"]]
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        earlier = checked_out(given.before, Path(folder))
        for name, work in works.items():
            if given.only in name:
                cpu, now, again = compared(work, earlier, given.rounds, given.seconds)
                rows.append([name, f"{cpu * 1e6:.3f}", f"{now:.3f}", f"{again:.3f}"])
                ratios.append(now)
    report.table("workloads", rows)
    report.claim("now / before, the dearest workload", MOST, max(ratios))
    report.claim("the same, the median workload", MOST, statistics.median(ratios))
    return report.finish()


def checked_out(commit: str, folder: Path) -> Path:
    """Extract the package of a commit; return the folder to import it from."""
    archive = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "src"


def compared(work: str, earlier: Path, rounds: int, seconds: float) -> tuple[float, float, float]:
    """Measure a workload by turns: CPU seconds an item before, now / before, before / before."""
    contestants = {
        "before": Contestant(work, environ=AS_USERS_HAVE_IT, package=earlier),
        "now": Contestant(work, environ=AS_USERS_HAVE_IT, package=ROOT / "src"),
        "again": Contestant(work, environ=AS_USERS_HAVE_IT, package=earlier),
    }
    found = contest(contestants, rounds, seconds)
    before, now, again = (found[name] for name in contestants)
    return statistics.median(map(cpu_of, before)), over(now, before), over(again, before)


def cpu_of(measured: Measured) -> float:
    """CPU seconds an item took, in the consumer and its workers."""
    return measured.cpu + measured.cpu_below


def over(ones: Sequence[Measured], others: Sequence[Measured]) -> float:
    """The median of the ratios of CPU within each round."""
    pairs = zip(ones, others, strict=True)
    return statistics.median(cpu_of(one) / cpu_of(other) for one, other in pairs)


if __name__ == "__main__":
    sys.exit(main())
