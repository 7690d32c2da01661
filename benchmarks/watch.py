"""Watching a pipeline: its price, the exactness of its counts, and predictions against measurements.

1. Overhead: the same pipeline with statistics on and off (``StatsOptions(enabled=False)``): a map
   that computes, a cheap one in batches, rows of 64 bytes; in process and with two workers.
   Claim: on costs less than 1 % of the rate. A second pipeline with statistics off says how much of
   a difference is the machine's.
2. Counts: what each operator gave, left out and failed in is the same with 0, 1, 2 and 3 workers.
3. Predictions: a pipeline is run, its verdict predicts what a change gives, the change is made, and
   the two ratios are compared. Claim: within 15 %.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Contestant, Report, arguments, contest, medians, ratio

import tundish as td
from tundish.loader.run.watching.viewing import view_of
from tundish.loader.watch.prediction import WORTH
from tundish.loader.watch.verdict import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tundish.cli.independent import Measured
    from tundish.loader.watch.verdict import Verdict

OVERHEAD = 0.99
"""The rate with statistics over that without."""

OFF_BY = 0.15
"""The most by which a predicted ratio may differ from the measured one."""

LEAST_S = 1.0
"""Whoever is told is told twice a second: a shorter turn would have all of that, or none."""

TURNS = 2
"""Turns of a round: one percent is less than most rounds differ by."""

COUNT = 1 << 40
PASSED = 3_000
WARM_UP = 0.25


# -- what is computed --------------------------------------------------------------------------


def burn(seconds: float) -> None:
    """Keep a core busy."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def heavy(x: Any) -> Any:
    burn(0.002)
    return np.full(16, x, np.float32)


def waiting(x: Any) -> Any:
    time.sleep(0.005)
    return np.full(16, x, np.float32)


def stumbling(x: Any) -> Any:
    time.sleep(0.1 if x % 40 == 0 else 0.002)
    return np.full(16, x, np.float32)


def cheap(x: Any) -> Any:
    return x + 1


def small(x: Any) -> Any:
    return np.full(16, x, np.float32)


def number(x: Any) -> Any:
    """The first of an array's entries, or a number itself."""
    return int(np.ravel(x)[0])


def wanted(x: Any) -> bool:
    return bool(number(x) % 4 == 0)


def words(line: Any) -> Any:
    return len(line.split()), sum(map(len, line.split()))


def fails(x: Any) -> Any:
    if number(x) % 100 == 99:
        raise ValueError("bad")
    return x


# -- overhead ----------------------------------------------------------------------------------

KINDS: dict[str, Callable[[], td.Dataset]] = {
    "a map of 2 ms, batches of 4": lambda: td.Dataset.range(COUNT).map(heavy).batch(4),
    "x + 1, batches of 1024": lambda: td.Dataset.range(COUNT).map(cheap).batch(1024),
    "x + 1, one by one": lambda: td.Dataset.range(COUNT).map(cheap),
    "rows of 64 B, batches of 64": lambda: td.Dataset.range(COUNT).map(small).batch(64),
}
AT_ONCE = {"x + 1, one by one": 4096}


def watched(_: int, kind: str, workers: str, switch: str) -> Callable[[], int]:
    """Take elements, with statistics or without."""
    options = td.Options()
    options.stats.enabled = switch == "on"  # "off", "again"
    elements = KINDS[kind]().with_options(options).iterator(workers=int(workers))
    many = AT_ONCE.get(kind, 16)

    def work() -> int:
        for _ in range(many):
            next(elements)
        return many

    return work


def cpu_of(measured: Measured) -> float:
    """CPU seconds that an element took, in all processes."""
    return measured.cpu + measured.cpu_below


def overhead(report: Report, rounds: int, seconds: float) -> None:
    """On against off, by turns, each in a process of its own."""
    contestants = {
        f"{kind}|{workers}|{switch}": Contestant(f"watch:watched:{kind}:{workers}:{switch}")
        for kind in KINDS
        for workers in (0, 2)
        for switch in ("off", "on", "again")
    }
    measured = contest(contestants, TURNS * rounds, max(LEAST_S, seconds))
    heads = [f"{what} {pair}" for what in ("rate", "CPU") for pair in ("on / off", "off / off")]
    rows = [["statistics", "workers", "off/s", "on/s", *heads]]
    claims = []
    for kind in KINDS:
        for workers in (0, 2):
            off, on, again = (
                measured[f"{kind}|{workers}|{switch}"] for switch in ("off", "on", "again")
            )
            rates, cpu = ratio(on, off), ratio(on, off, cpu_of)
            rows.append(
                [
                    kind,
                    str(workers),
                    f"{medians(off):,.0f}",
                    f"{medians(on):,.0f}",
                    f"{rates:.3f}",
                    f"{ratio(again, off):.3f}",
                    f"{cpu:.3f}",
                    f"{ratio(again, off, cpu_of):.3f}",
                ]
            )
            claims.append((f"{kind}, {workers} workers", rates, cpu))
    report.table("overhead", rows)
    for text, rates, cpu in claims:
        report.claim(f"{text}: rate on / off", OVERHEAD, rates, least=True, show="{:.3f}".format)
        report.claim(f"{text}: CPU on / off", 2 - OVERHEAD, cpu, show="{:.3f}".format)


# -- counts ------------------------------------------------------------------------------------


def counts(report: Report) -> None:
    """Compare the counts of each operator with any number of workers."""
    ds = td.Dataset.range(PASSED).map(fails, on_error="skip").filter(wanted).map(small).batch(8)
    found = {}
    for workers in (0, 1, 2, 3):
        with ds.iterator(workers=workers) as it:
            for _ in it:
                pass
            found[workers] = {
                node.name: (node.elements, node.dropped, node.errors)
                for stage in it.stats.stages
                for node in stage.nodes
            }
    names = sorted({name for each in found.values() for name in each}, key=lambda n: n[-1])
    rows = [["gave, left out, failed", *(f"{workers} workers" for workers in found)]]
    rows += [[name, *(str(each.get(name, "-")) for each in found.values())] for name in names]
    report.table("counts", rows)
    same = len({tuple(sorted(each.items())) for each in found.values()}) == 1
    report.fact(
        "counts with 0, 1, 2 and 3 workers",
        "the same",
        "the same" if same else "different",
        holds=same,
    )


# -- predictions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A pipeline, the change that is made, and what the verdict calls it.

    Attributes
    ----------
    name : str
        What is tried.
    before, after : callable
        The dataset as it is and as it becomes, in a folder.
    workers : (int, int)
        How many, before and after.
    what : str
        How the prediction begins.
    wanted : bool
        Whether the change is worth making; of one that is not, nothing is to be predicted.
    busy_s, idle_s : float
        What the consumer does with each element: it computes, or waits for a device.
    """

    name: str
    before: Callable[[Path], td.Dataset]
    after: Callable[[Path], td.Dataset]
    workers: tuple[int, int]
    what: str
    busy_s: float = 0.0
    idle_s: float = 0.0
    wanted: bool = True


def plain(function: Callable[[Any], Any]) -> Callable[[Path], td.Dataset]:
    return lambda _: td.Dataset.range(COUNT).map(function).batch(4)


def late(_: Path) -> td.Dataset:
    return td.Dataset.range(COUNT).map(heavy).filter(wanted).batch(4)


def early(_: Path) -> td.Dataset:
    return td.Dataset.range(COUNT).filter(wanted).map(heavy).batch(4)


def short(_: Path) -> td.Dataset:
    return td.Dataset.range(400).map(heavy).repeat().batch(4)


def stored(folder: Path) -> td.Dataset:
    kept = td.Dataset.range(400).map(heavy).snapshot(str(folder / "kept"))
    for _ in kept.iterator(workers=2):
        pass
    return kept.repeat().batch(4)


def lines(folder: Path) -> td.Dataset:
    path = folder / "lines.txt"
    if not path.exists():
        folder.mkdir(exist_ok=True)
        path.write_text("\n".join(f"{i} of many words" for i in range(20_000)), encoding="utf-8")
    return td.TextLineDataset(str(path)).repeat().map(words).batch(256)


def stumbles(*, ordered: bool) -> Callable[[Path], td.Dataset]:
    options = td.Options(deterministic=ordered)
    return lambda _: td.Dataset.range(COUNT).map(stumbling).with_options(options)


CHANGES = (
    Change("one more worker, computing", plain(heavy), plain(heavy), (1, 2), "one more worker"),
    Change("one more worker, waiting", plain(waiting), plain(waiting), (2, 3), "one more worker"),
    Change("a filter before the map", late, early, (1, 1), "filter#2"),
    Change("a snapshot, consumer busy", short, stored, (1, 1), "a snapshot", busy_s=0.002),
    Change("a snapshot, consumer on a device", short, stored, (1, 1), "a snapshot", idle_s=0.002),
    Change("fewer workers", plain(heavy), plain(heavy), (2, 1), "1 worker", idle_s=0.015),
    Change("no workers", plain(heavy), plain(heavy), (1, 0), "no workers"),
    Change("a worker, from none", plain(heavy), plain(heavy), (0, 1), "1 worker", idle_s=0.006),
    Change("workers for lines of a file", lines, lines, (0, 2), "2 workers", wanted=False),
    Change("as they are ready", stumbles(ordered=True), stumbles(ordered=False), (4, 4), "as they"),
)


def run(dataset: td.Dataset, workers: int, change: Change, seconds: float) -> Verdict:
    """Take elements for a while; the verdict is of the time behind the warm-up."""
    warm = None
    with dataset.iterator(workers=workers) as it:
        start = time.perf_counter()
        while (now := time.perf_counter()) < start + seconds:
            if warm is None and now > start + WARM_UP * seconds:
                warm = it.stats
            next(it)
            burn(change.busy_s)
            if change.idle_s:
                time.sleep(change.idle_s)
        return explain(it.stats, view_of(it._engine.context), warm)  # noqa: SLF001 - the warm-up is left out


Turn = tuple[float, float, float]
"""Elements a second before a change, what it made of them (a ratio), and what was predicted (0: nothing)."""


def made(rounds: int, seconds: float) -> dict[str, list[Turn]]:
    """Each change: predicted, and made; all take turns."""
    found: dict[str, list[Turn]] = {change.name: [] for change in CHANGES}
    with tempfile.TemporaryDirectory() as folder:
        for change in CHANGES:
            change.after(Path(folder) / change.name)  # a snapshot is written
        for _ in range(rounds):
            for change in CHANGES:
                here = Path(folder) / change.name
                before = run(change.before(here), change.workers[0], change, seconds)
                after = run(change.after(here), change.workers[1], change, seconds)
                now, then = before.costs.rate, after.costs.rate
                found[change.name].append((now, then / now, predicted(before, change)))
    return found


def predictions(report: Report, rounds: int, seconds: float) -> None:
    """Compare predictions with measurements."""
    found = made(rounds, seconds)
    rows = [["change", "before/s", "predicted", "measured", "predicted / measured"]]
    off: dict[str, float | None] = {}
    unwanted: dict[str, tuple[float, bool]] = {}
    for change in CHANGES:
        offered = [turn for turn in found[change.name] if turn[2]]
        turns = offered or found[change.name]
        now, ratio_, said = (statistics.median(column) for column in zip(*turns, strict=True))
        each = statistics.median(said / made for _, made, said in turns)
        told = (f"x {said:.2f}", f"{each:.2f}") if offered else ("not offered", "")
        rows.append([change.name, f"{now:,.1f}", told[0], f"x {ratio_:.2f}", told[1]])
        if change.wanted:
            off[change.name] = abs(each - 1) if offered else None
        else:
            unwanted[change.name] = ratio_, not offered
    report.table("predictions", rows)
    for name, share in off.items():
        report.claim(f"{name}: predicted ratio off by", OFF_BY, share, show="{:.0%}".format)
    for name, (ratio_, silent) in unwanted.items():
        report.fact(
            f"{name}, which give nothing",
            f"not offered; x <= {WORTH}",
            f"{'not offered' if silent else 'offered'}; x {ratio_:.2f}",
            holds=silent and ratio_ <= WORTH,
        )


def predicted(verdict: Verdict, change: Change) -> float:
    """The ratio that a verdict predicts for a change; 0.0 where it does not."""
    for each in verdict.predictions:
        told = each.what.replace("a cache or snapshot", "a snapshot")
        if told.startswith(change.what) or (not change.wanted and told.endswith(" workers")):
            return each.gain
    return 0.0


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(str(__doc__), argv)
    report = Report("watch", "Watching: overhead, counts, predictions", given)
    counts(report)
    predictions(report, given.rounds, max(2.0, 3 * given.seconds))
    overhead(report, given.rounds, given.seconds)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
