"""AUTOTUNE and the verdict on a machine whose cores other programs use as well.

As many busy programs as there are cores run beside each pipeline, whatever else the machine does. A function that computes
waits for a core there as long as it computes, and looks from outside as if it slept.

Claims: functions that compute get at most as many workers as there are cores, functions that sleep still get many, and
the verdict on functions that compute names the cores. ``--seconds`` is how long each runs, ``--beside 0`` leaves out the busy programs.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from autotune import decode
from common import Report, arguments
from watch import burn

import tundish as td
from tundish.shm.budget import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tundish.loader.watch.verdict import Verdict

MANY = 1 << 40
SLEEPERS = 16
"""So many workers at least where functions only sleep."""


def count(i: Any) -> Any:
    """16 ms of Python that keep a core busy."""
    burn(0.016)
    return i


def doze(i: Any) -> Any:
    time.sleep(0.01)
    return i


def half(i: Any) -> Any:
    """As much sleep as computing."""
    time.sleep(0.008)
    burn(0.008)
    return i


WORK: dict[str, tuple[Callable[[Any], Any], str]] = {
    "computing, 16 ms": (count, "computes"),
    "decoding, 2 ms": (decode, "computes"),
    "half of it sleep": (half, "both"),
    "sleeping, 10 ms": (doze, "sleeps"),
}


class Seen(NamedTuple):
    """The choices of AUTOTUNE: every number of workers, the last one, elements a second, and the verdict."""

    chosen: list[int]
    workers: int
    rate: float
    verdict: Verdict


@contextlib.contextmanager
def beside(programs: int) -> Iterator[None]:
    """Programs that keep a core busy each."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def tuned(function: Callable[[Any], Any], seconds: float) -> Seen:
    """Run a function under AUTOTUNE."""
    ds = td.Dataset.range(MANY).map(function, num_parallel_calls=td.AUTOTUNE).batch(8)
    with iter(ds) as it:
        until, taken = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            next(it)
            taken += 1
        stats = it.stats
        chosen = [workers for _, workers in stats.tuned]
        return Seen(chosen, stats.workers, taken / seconds, it.explain())


def main(argv: Sequence[str] | None = None) -> int:
    cores = usable_cores()
    given = arguments(str(__doc__), argv, {"beside": (cores, "busy programs")})
    report = Report("crowded", "AUTOTUNE beside busy programs", given, timed=False)
    rows = [["work", "batches/s", "W, by round", "most at any time", "limit"]]
    found: dict[str, list[Seen]] = {}
    with beside(given.beside):
        for number in range(given.rounds):
            for name, (function, _) in WORK.items():
                found.setdefault(name, []).append(tuned(function, 8 * given.seconds))
                if not number:
                    sys.stdout.write(f"{name}\n{found[name][-1].verdict}\n\n")
    for name, (_, kind) in WORK.items():
        seen = found[name]
        most = max(max(each.chosen, default=cores) for each in seen)
        rates = ", ".join(f"{each.rate:.1f}" for each in seen)
        limits = " ".join(each.verdict.limit for each in seen)
        rows.append([name, rates, " ".join(str(each.workers) for each in seen), str(most), limits])
        if kind == "computes":
            report.claim(
                f"{name}: most workers, of {cores} cores", cores, most, show="{:.0f}".format
            )
        if kind == "sleeps":
            least = min(each.workers for each in seen)
            report.claim(f"{name}: workers", SLEEPERS, least, least=True, show="{:.0f}".format)
        if kind == "computes" and given.beside:
            named = sum(each.verdict.limit == "cores" for each in seen)
            report.fact(f"{name}: limit", "cores", limits, holds=named == len(seen))
    report.table("crowded", rows)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
