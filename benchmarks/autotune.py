"""AUTOTUNE against the best fixed number of workers, on work that is really different.

For each workload a sweep of fixed numbers of workers, 0 (the consumer's process) among them, and of look-ahead
(`prefetch`) at the best one, by turns. Then the best fixed setting and AUTOTUNE take turns: the best of many is
that which had most luck, too, so it is measured again. AUTOTUNE begins with as many workers as there are cores,
and is measured from its start, then once more when it has settled. All iterators are new ones.

Claims: when settled, AUTOTUNE is within 5 % of the best fixed setting, and it changes its mind a few times at most.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from common import Report, arguments, say_over

import tundish as td
from tundish.cli.terminal import live
from tundish.loader.watch.tuner import most_changes

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = (0, 1, 2, 3, 4, 6, 8, 16, 32)
AHEAD = (8, 64, 256)
WITHIN = 0.95
WARM_S = 0.3
STARTING_S = 5.0  # at most
SWEEPS = 2
ENDLESS = 1 << 40


def photograph() -> bytes:
    """A picture with some noise, packed."""
    x, y = np.arange(300)[:, None], np.arange(400)
    noise = np.random.default_rng(0).integers(0, 8, (300, 400, 3))
    return zlib.compress(((x + y)[:, :, None] + noise).astype(np.uint8).tobytes(), 1)


PACKED = photograph()
WAITS = np.random.default_rng(1).lognormal(-0.5, 1.0, 4096) * 0.002
WAITS[::100] *= 20  # one of a hundred hangs


def decode(i: Any) -> Any:
    """2 ms that keep a core busy, partly with the GIL released: unpack, cut, convert."""
    picture = np.frombuffer(zlib.decompress(PACKED), np.uint8).reshape(300, 400, 3)
    at = int(i) % 64
    return (picture[at : at + 224, at : at + 224].astype(np.float32) - 127) / 64


def fetch(i: Any) -> Any:
    """5 ms of waiting: a disk behind a network."""
    time.sleep(0.005)
    return i


def fetch_unevenly(i: Any) -> Any:
    """Waiting with a heavy tail."""
    time.sleep(WAITS[int(i) * 7919 % 4096])
    return i


def fetch_and_decode(i: Any) -> Any:
    """As much waiting as computing."""
    time.sleep(0.002)
    return decode(i)


def plus_one(x: Any) -> Any:
    return x + 1


def is_tenth(x: Any) -> Any:
    return x % 10 == 0


def light(i: Any) -> Any:
    return np.sqrt(np.full(20_000, i, np.float32)).sum()


def words_of(line: Any) -> Any:
    return len(line.split()), sum(map(len, line.split()))


class Workload(NamedTuple):
    """A pipeline, and what the consumer does with each element."""

    make: Callable[[], td.Dataset]
    computes_s: float = 0.0


def counted() -> td.Dataset:
    return td.Dataset.range(ENDLESS)


def lines(folder: Path) -> td.Dataset:
    files = sorted(map(str, folder.glob("*.txt")))
    return (
        td.Dataset.from_tensor_slices(files)
        .repeat()
        .interleave(td.TextLineDataset, cycle_length=4, num_parallel_calls=td.AUTOTUNE)
        .map(words_of)
        .batch(256)
    )


def workloads(folder: Path) -> dict[str, Workload]:
    """All of them, by name."""
    return {
        "decoding pictures": Workload(lambda: counted().map(decode).batch(8)),
        "waiting 5 ms": Workload(lambda: counted().map(fetch).batch(8)),
        "waiting, heavy-tailed": Workload(lambda: counted().map(fetch_unevenly).batch(8)),
        "waiting and decoding": Workload(lambda: counted().map(fetch_and_decode).batch(8)),
        "x + 1, 1,024 a batch": Workload(lambda: counted().map(plus_one).batch(1024)),
        "x + 1, a tenth kept": Workload(lambda: counted().map(plus_one).filter(is_tenth).batch(32)),
        "a consumer of 5 ms": Workload(lambda: counted().map(light).batch(16), 0.005),
        "lines of 32 files": Workload(lambda: lines(folder)),
    }


def write_lines(folder: Path) -> None:
    """Text to be read."""
    text = "\n".join(f"{i} {'tundish ' * (i % 9)}" for i in range(20_000)) + "\n"
    for number in range(32):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")


def compute(seconds: float) -> None:
    """Keep a core busy."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def taken(it: Any, seconds: float, computes_s: float) -> float:
    """Elements a second, taken for so long."""
    count, began = 0, time.perf_counter()
    while True:
        next(it)
        count += 1
        if computes_s:
            compute(computes_s)
        passed = time.perf_counter() - began
        if passed >= seconds:
            return count / passed


def fixed(workload: Workload, workers: int, ahead: int, seconds: float) -> float:
    """With a fixed setting, when all workers are there and it is warm."""
    ds = workload.make()
    if ahead:
        ds = ds.prefetch(ahead)
    with ds.with_options(td.Options(workers=workers)).iterator() as it:
        began = time.perf_counter()
        while time.perf_counter() - began < STARTING_S:
            taken(it, WARM_S, workload.computes_s)
            if all(worker.pid for worker in it.stats.pool):
                break
        return taken(it, seconds, workload.computes_s)


class Tuned(NamedTuple):
    """The number of workers that AUTOTUNE chose, and its rate."""

    start: float
    settled: float
    workers: int
    changes: int


def tuned(workload: Workload, starting_s: float, seconds: float) -> Tuned:
    """With AUTOTUNE, from the start and then."""
    with workload.make().with_options(td.Options(workers=td.AUTOTUNE)).iterator() as it:
        start = taken(it, starting_s, workload.computes_s)
        settled = taken(it, seconds, workload.computes_s)
        stats = it.stats
        return Tuned(start, settled, stats.workers, len(stats.tuned))


class Found(NamedTuple):
    """Measurements of a workload: the sweep, and rounds of its best and AUTOTUNE."""

    sweep: dict[tuple[int, int], float]
    best: tuple[int, int]
    pairs: list[tuple[float, Tuned]]


def found(name: str, workload: Workload, rounds: int, seconds: float, starting_s: float) -> Found:
    """Measure all settings, then the best and AUTOTUNE."""
    rates: dict[tuple[int, int], list[float]] = {}

    def show(text: str) -> None:
        if live():
            say_over(f"{name}: {text}")

    def measure(settings: list[tuple[int, int]]) -> tuple[int, int]:
        for number in range(min(SWEEPS, rounds)):
            for workers, ahead in settings:
                show(f"sweep {number + 1}, {workers} workers, ahead {ahead}")
                rate = fixed(workload, workers, ahead, seconds / 2)
                rates.setdefault((workers, ahead), []).append(rate)
        return max(rates, key=lambda setting: statistics.median(rates[setting]))

    best = measure([(workers, 0) for workers in WORKERS])
    if best[0]:
        best = measure([(best[0], ahead) for ahead in AHEAD])
    pairs = []
    for number in range(rounds):
        show(f"round {number + 1} of {rounds}")
        rate = fixed(workload, *best, seconds)
        pairs.append((rate, tuned(workload, starting_s, seconds)))
    show("")
    return Found({s: statistics.median(each) for s, each in rates.items()}, best, pairs)


def main(argv: list[str] | None = None) -> int:
    numbers = {
        "starting": (8, "seconds that AUTOTUNE is measured from its start"),
        "quick": (0, "1: one round, for a look"),
        "only": (0, "the number of one workload, from 1"),
    }
    given = arguments(__doc__ or "", argv, numbers)
    if given.quick:
        given.rounds, given.seconds = 1, min(given.seconds, 0.5)
    report = Report("autotune", "AUTOTUNE against the best fixed setting", given)
    rows = [
        ["workload", "best fixed", "elements/s", "AUTOTUNE", "ratio", "from start", "W", "changes"]
    ]
    claims = []
    with tempfile.TemporaryDirectory() as folder:
        write_lines(Path(folder))
        every = list(workloads(Path(folder)).items())
        for name, workload in every[given.only - 1 : given.only] if given.only else every:
            seen = found(name, workload, given.rounds, given.seconds, given.starting)
            settled = statistics.median(t.settled / rate for rate, t in seen.pairs)
            start = statistics.median(t.start / rate for rate, t in seen.pairs)
            workers, ahead = seen.best
            rows.append(
                [
                    name,
                    f"{workers}, ahead {ahead}" if ahead else str(workers),
                    f"{statistics.median(rate for rate, _ in seen.pairs):,.0f}",
                    f"{statistics.median(t.settled for _, t in seen.pairs):,.0f}",
                    f"{settled:.2f}",
                    f"{start:.2f}",
                    " ".join(str(t.workers) for _, t in seen.pairs),
                    " ".join(str(t.changes) for _, t in seen.pairs),
                ]
            )
            claims.append((name, settled, max(t.changes for _, t in seen.pairs)))
            report.table(
                f"sweep: {name}",
                [
                    ["workers", *map(str, WORKERS)],
                    ["elements/s", *(f"{seen.sweep[w, 0]:,.0f}" for w in WORKERS)],
                ],
            )
    report.table("autotune", rows)
    for name, settled, _ in claims:
        report.claim(
            f"{name}: AUTOTUNE, settled / the best fixed setting", WITHIN, settled, least=True
        )
    worst = max(changes for _, _, changes in claims)
    report.claim("changes of the number of workers", most_changes(32), worst, show="{:.0f}".format)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
