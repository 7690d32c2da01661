"""Pipelines whose bottleneck is known: whether the verdict names it.

Each is slow for one reason that was put there: functions that compute or sleep, a consumer that
does, elements that are small, a few slow ones among many, little memory, a generator, one file. It
runs for a while, and what `Iterator.explain` says is compared with the reason.

Claim: all of them are named. ``--keep FOLDER`` writes what was measured, for the tests and pictures.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Report, arguments
from watch import burn

import tundish as td
from tundish.loader.run.watching.viewing import view_of
from tundish.loader.watch.verdict import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tundish.loader.watch.verdict import Verdict

MANY = 1 << 40
WARM_UP = 0.25


def decode(x: Any) -> Any:
    burn(0.002)
    return np.full(64, x, np.float32)


def fetch(x: Any) -> Any:
    time.sleep(0.01)
    return np.full(64, x, np.float32)


def stumble(x: Any) -> Any:
    time.sleep(0.2 if x % 50 == 49 else 0.004)
    return np.full(64, x, np.float32)


def enlarge(x: Any) -> Any:
    burn(0.001)
    return np.full(1 << 19, x, np.float32)


def small(x: Any) -> Any:
    return (np.full(4, x), {"index": x})


def augment(x: Any, rng: Any) -> Any:
    burn(0.0005)
    return x + rng.random()


def wanted(x: Any) -> bool:
    return int(x[0]) % 4 == 0


def every(x: Any) -> bool:
    return bool(x[0] >= 0)


def rows() -> Iterator[int]:
    for number in range(MANY):
        time.sleep(0.001)
        yield number


def generated() -> td.Dataset:
    signature = td.ArraySpec((), np.int64)
    return td.Dataset.from_generator(rows, output_signature=signature).map(small)


@dataclass(frozen=True)
class Known:
    """A pipeline with its bottleneck.

    Attributes
    ----------
    limits : tuple of str
        The words of `Verdict.limit` that are right.
    make : callable
        The dataset.
    workers : int
        How many.
    name : str
        The operator that has to be named; "" where it is none.
    offered : str
        What one of the predictions has to be about.
    busy_s, idle_s : float
        What the consumer does with each element: it computes, or waits for a device.
    """

    limits: tuple[str, ...]
    make: Callable[[], td.Dataset]
    workers: int
    name: str = ""
    offered: str = ""
    busy_s: float = 0.0
    idle_s: float = 0.0


def read(x: Any) -> Any:
    time.sleep(0.002)
    return np.full(16, x, np.float32)


def records(_: Any) -> td.Dataset:
    """Read each record of the one file that there is."""
    return td.Dataset.range(MANY).map(read)


def ranged() -> td.Dataset:
    return td.Dataset.range(MANY)


KNOWN = {
    "computing": Known(("workers",), lambda: ranged().map(decode).batch(8), 1, "map#1", "one more"),
    "training": Known(
        ("workers", "cores"),
        lambda: (
            td.Dataset.range(50_000)
            .shuffle(None, seed=1)
            .map(decode)
            .map(augment, seed=1)
            .batch(32)
        ),
        2,
        "map#2",
        "snapshot after map#2",
        idle_s=0.01,
    ),
    "sleeping": Known(("workers",), lambda: ranged().map(fetch).batch(8), 2, "map#1", "one more"),
    "here": Known(("process",), lambda: ranged().map(decode).batch(8), 0, "map#1", "workers"),
    "consumer": Known(
        ("consumer",), lambda: ranged().map(fetch).batch(8), 4, "", "enough", idle_s=0.05
    ),
    "small": Known(("coordinator", "consumer"), lambda: ranged().map(small), 2),
    "stragglers": Known(("order",), lambda: ranged().map(stumble), 4, "map#1", "as they are"),
    "memory": Known(
        ("memory",),
        lambda: ranged().map(enlarge).batch(4).with_options(td.Options(memory_budget="24MB")),
        2,
        "",
        "memory budget",
    ),
    "generator": Known(("generator",), generated, 2, "from_generator#0"),
    "file": Known(
        ("reader",), lambda: td.Dataset.range(1).flat_map(records).batch(8), 3, "flat_map#1"
    ),
    "late": Known(
        ("workers", "cores"),
        lambda: ranged().map(decode).filter(wanted).batch(8),
        1,
        "map#1",
        "filter#2 (wanted) before map#1 (decode)",
    ),
    "window": Known(
        ("workers", "cores"),
        lambda: ranged().map(decode).filter(every).shuffle(2000, seed=1).batch(8),
        1,
        "map#1",
        "shuffle#3 before map#1",
    ),
}


def run(known: Known, seconds: float) -> tuple[Verdict, dict[str, Any]]:
    """Take elements for a while; the verdict is of the time behind the warm-up."""
    warm = None
    with known.make().iterator(workers=known.workers) as it:
        begun = time.perf_counter()
        next(it)
        begun = max(begun, time.perf_counter() - WARM_UP * seconds)
        while (now := time.perf_counter()) < begun + seconds:
            if warm is None and now > begun + WARM_UP * seconds:
                warm = it.stats
            next(it)
            if known.busy_s:
                burn(known.busy_s)
            if known.idle_s:
                time.sleep(known.idle_s)
        stats, view = it.stats, view_of(it._engine.context)  # noqa: SLF001 - to be kept for the tests
    kept = {
        "limits": known.limits,
        "name": known.name,
        "offered": known.offered,
        "plan": asdict(view),
        "stats": stats.to_dict(),
        "since": None if warm is None else warm.to_dict(),
    }
    return explain(stats, view, warm), kept


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    keep = None
    if "--keep" in words:
        at = words.index("--keep")
        keep = Path(words[at + 1])
        del words[at : at + 2]
    given = arguments(str(__doc__), words)
    report = Report("bottlenecks", "Known bottlenecks", given, timed=False)
    rows = [["pipeline", "workers", "is", "named", "operator", "offered"]]
    right = 0
    for name, known in KNOWN.items():
        verdict, kept = run(known, 4 * given.seconds)
        offered = [each.what for each in verdict.predictions if known.offered in each.what]
        holds = verdict.limit in known.limits and known.name in ("", verdict.name)
        right += holds and (bool(offered) or not known.offered)
        is_ = " or ".join(known.limits)
        rows.append(
            [
                name,
                str(known.workers),
                is_,
                verdict.limit,
                verdict.name,
                *(offered[:1] or ["-"]),
            ]
        )
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            told = json.dumps(kept, separators=(",", ":"))
            (keep / f"{name}.json").write_text(told + "\n", encoding="utf-8")
    report.table("bottlenecks", rows, right=())
    report.fact(
        "bottlenecks named, and what would help",
        f"{len(KNOWN)}",
        f"{right}",
        holds=right == len(KNOWN),
    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
