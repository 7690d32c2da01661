"""Scaling curves: workers, indices, files, rows of a batch, bytes of an element.

Each point runs in a process of its own. ``--json`` writes `curves/results.json`, the page and its plots;
``--only batch`` measures one curve; ``--page`` makes page and plots from the JSON alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

import tundish as td

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "curves" / "results.json"
DOCS = HERE.parent / "docs" / "benchmarks"
MB = 1e6
WAIT_S, LINES, BOUND_S = 0.02, 4, 120


# ------------------------------------------------------------------------------- what is measured


def wait(index: Any) -> Any:
    time.sleep(WAIT_S)
    return index


def row(index: Any) -> Any:
    return np.full(16, index, np.int64)


def workers(count: int) -> dict[str, float]:
    """Work that waits 20 ms an element, in 1 to 16 workers."""
    data = td.Dataset.range(10**6).map(wait).with_options(td.Options(workers=count))
    return _measured(data, warm=4 * count, number=25 * count)


def indices(count: int) -> dict[str, float]:
    """A shuffle of 10^3 to 10^9 indices, without workers: the first batch, then the others."""
    data = td.Dataset.range(count).shuffle(None, seed=1).batch(64)
    return _measured(data, warm=0, number=min(count // 64, 500))


def files(count: int) -> dict[str, float]:
    """Batches of 8 lines from 10 to 10^5 files of 4 lines, in order, without workers."""
    folder = Path(tempfile.mkdtemp(prefix="tundish-curves-"))
    names = []
    for number in range(count):
        within = folder / str(number // 1000)
        within.mkdir(exist_ok=True)
        names.append(str(within / f"{number}.txt"))
        Path(names[-1]).write_text(f"line of file {number}\n" * LINES, encoding="ascii")
    try:
        data = td.TextLineDataset(names).batch(8)
        return _measured(data, warm=0, number=min(count * LINES // 8, 2_000))
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def batch(rows: int) -> dict[str, float]:
    """Elements of 128 bytes from 2 workers, in batches of 1 to 4,096."""
    data = td.Dataset.range(10**8).map(row).batch(rows).with_options(td.Options(workers=2))
    return _measured(data, warm=4, number=max(8, min(4_000, 60_000 // rows)))


def element(nbytes: int) -> dict[str, float]:
    """Elements of 10 bytes to 300 MB from 2 workers."""

    def made(index: Any) -> Any:
        return np.full(nbytes, index % 256, np.uint8)

    data = td.Dataset.range(10**8).map(made).with_options(td.Options(workers=2))
    return _measured(data, warm=4, number=max(6, min(4_000, int(2e9 / nbytes))))


CURVES: dict[str, tuple[Callable[[int], dict[str, float]], tuple[int, ...], str]] = {
    "workers": (workers, (1, 2, 4, 8, 16), "workers"),
    "indices": (indices, (10**3, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9), "indices"),
    "files": (files, (10, 100, 1_000, 10_000, 100_000), "files"),
    "batch": (batch, (1, 4, 16, 64, 256, 1_024, 4_096), "rows of a batch"),
    "element": (
        element,
        (10, 1_000, 30_000, 1_000_000, 30_000_000, 300_000_000),
        "bytes of an element",
    ),
}
REASONS = {
    "workers": "A slope of -1 is straight scaling: with n workers an element takes an n-th of the time. Memory is a fixed part and one for each worker.",
    "indices": "A permutation is arithmetic: neither its first batch nor its memory nor its state depends on the number of indices. With 10^3 indices an epoch has only 15 batches, so the start-up time dominates the time for each batch.",
    "files": "Files are opened as they are reached. Memory is a fixed part and the list of names. With 10 files an epoch has only 5 batches, so the start-up time dominates the time for each batch.",
    "batch": "A batch costs a fixed time and a time for each row; from the rows where the second is larger the line rises.",
    "element": "Up to some kilobytes an element costs a fixed time; from there its bytes are written once and take their time. Memory is a fixed part and the elements that are in flight.",
}


def _measured(data: Any, *, warm: int, number: int) -> dict[str, float]:
    start = time.perf_counter()
    with iter(data) as it:
        next(it)
        first = time.perf_counter() - start
        for _ in range(warm):
            next(it)
        start, cpu = time.perf_counter(), time.process_time()
        done = 0
        for done, _ in enumerate(it, 1):
            if done >= number:
                break
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        state = len(json.dumps(it.state_dict()))
        pss = _pss()
    each = max(1, done)
    return {"first": first, "wall": wall / each, "cpu": cpu / each, "state": state, "pss": pss}


def _pss() -> float:
    here = psutil.Process()
    return float(sum(p.memory_full_info().pss for p in (here, *here.children(recursive=True))))


# ------------------------------------------------------------------------------------------ page

QUANTITIES = {
    "first": ("time to the first element or batch", 1e3, "ms"),
    "wall": ("time for each element or batch", 1e6, "µs"),
    "pss": ("memory of all processes (PSS)", 1e-6, "MB"),
    "state": ("size of a state", 1, "bytes"),
}


def slope(points: list[tuple[float, float]]) -> float:
    """The exponent of a power law through the points."""
    x, y = (np.log([point[axis] for point in points]) for axis in (0, 1))
    return float(np.polyfit(x, y, 1)[0])


def drawn(title: str, unit: str, along: str, points: list[tuple[float, float]]) -> str:
    """A plot with logarithmic axes, in greys and one blue that read on light and on dark."""
    wide, high, left, low = 420, 240, 70, 44
    xs, ys = zip(*points, strict=True)
    right, top = math.log10(max(xs) / min(xs)), math.log10(max(ys)) + 0.3
    floor = min(math.log10(min(ys)) - 0.3, top - 1)

    def at(x: float, y: float) -> tuple[float, float]:
        across = math.log10(x / min(xs)) / right
        up = (math.log10(y) - floor) / (top - floor)
        return left + across * (wide - left - 20), high - low - up * (high - low - 30)

    grey = 'fill="#808080" font-family="sans-serif" font-size="11"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">',
        f"<title>{title} over {along}</title>",
        f'<text x="{left}" y="16" {grey}>{title}, {unit}</text>',
        f'<text x="{wide / 2}" y="{high - 6}" text-anchor="middle" {grey}>{along}</text>',
    ]
    for power in range(math.ceil(floor), math.floor(top) + 1):
        y = at(min(xs), 10.0**power)[1]
        lines.append(f'<path d="M{left} {y:.1f}H{wide - 20}" stroke="#808080" stroke-opacity="0.35"/>')  # fmt: skip
        lines.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" {grey}>{10.0**power:g}</text>')  # fmt: skip
    foot = f'y="{high - low + 16}" text-anchor="middle" {grey}'
    lines += [f'<text x="{at(x, ys[0])[0]:.1f}" {foot}>{_short(x)}</text>' for x in xs]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(*point) for point in points))
    lines.append(f'<polyline points="{path}" fill="none" stroke="#3b82f6" stroke-width="2"/>')
    lines += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="#3b82f6"/>' for a, b in (at(*point) for point in points)]  # fmt: skip
    return "\n".join([*lines, "</svg>"]) + "\n"


def _short(x: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if x >= size:
            return f"{x / size:.3g}{unit}"
    return f"{x:g}"


def pages(results: dict[str, Any]) -> dict[str, str]:
    """The page and its plots, by file name."""
    made: dict[str, str] = {}
    when = f"Measured {results['at']} on {results['machine']}"
    lines = [
        "# Scaling curves",
        "",
        "Time, memory and the size of a state, over orders of magnitude. Both axes are logarithmic: a flat line does not",
        "depend on the number, and a straight line of slope 1 is proportional to it. Below each plot is the slope over all points.",
        "",
        f"{when}; `python benchmarks/curves.py --json` measures them again.",
    ]
    for name, points in results["curves"].items():
        function, _, along = CURVES[name]
        lines += ["", f"## {name}", "", str(function.__doc__), "", REASONS[name], ""]
        for quantity, (title, scale, unit) in QUANTITIES.items():
            pairs = [(float(x), point[quantity] * scale) for x, point in points.items()]
            file = f"curves-{name}-{quantity}.svg"
            made[file] = drawn(title, unit, along, pairs)
            said = ", ".join(f"{_short(x)}: {y:.4g}" for x, y in pairs)
            lines += [f"![{title} over {along}: {said} {unit}]({file})", "", f"{title[0].upper()}{title[1:]}: slope {slope(pairs):+.2f} ({said} {unit}).", ""]  # fmt: skip
    made["curves.md"] = "\n".join(lines).rstrip() + "\n"
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(CURVES), action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.point:
        print(json.dumps(CURVES[given.point[0]][0](int(given.point[1]))))
        return 0
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"curves": {}}  # fmt: skip
    if not given.page:
        results["at"] = time.strftime("%Y-%m-%d")
        results["machine"] = f"Linux, {os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} at the start"  # fmt: skip
        for name in given.only or CURVES:
            results["curves"][name] = {}
            for x in CURVES[name][1]:
                command = [sys.executable, __file__, "--point", name, str(x)]
                answer = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True)  # fmt: skip
                point = json.loads(answer.stdout.splitlines()[-1])
                results["curves"][name][str(x)] = point
                print(f"{name:8} {x:>11,} " + "  ".join(f"{key} {value:.4g}" for key, value in point.items()), flush=True)  # fmt: skip
    if given.json:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if given.json or given.page:
        for file, text in pages(results).items():
            (DOCS / file).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
