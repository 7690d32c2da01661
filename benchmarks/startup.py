"""From nothing to the first batch, from one iterator to the next, and to the end.

The parts of a first batch are what the process that starts workers imports, one after the other as it does; then a
worker is forked, which takes what a next iterator's first batch takes.

Each round is a fresh Python process that nobody has warmed. It tells when it had its first batch, by
the clock that all processes share, and then what later iterators with new workers took.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import Report, arguments, installed

WORKERS = 2
LATER = 5
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
IMPORT = """
import sys, time
start = time.perf_counter()
import tundish
print(time.perf_counter() - start, *(name for name in ("numpy", "pyarrow") if name in sys.modules))
"""
PIPELINE = """
import sys, time
import numpy, numpy.random
begin = time.thread_time()
import tundish as td
td.Dataset
named = time.thread_time()
batches = list(td.Dataset.range(100).map(abs).batch(10))
ran = time.thread_time()
print(named - begin, ran - begin, sum(name.partition(".")[0] == "tundish" for name in sys.modules))
"""
"""Of a process that has imported numpy, whose threads spin for a while: they do not count."""
PARTS = {
    "our code that starts workers": ("tundish.loader.run.starting.zygote",),
    "numpy": ("numpy",),
    "cloudpickle": ("cloudpickle",),
    "our code in a worker of a DataLoader": ("tundish.loader.dataloader.worker",),
    "torch, if the dataset needs it": ("torch.utils.data.dataset",),
    "and our code in a worker of a pipeline": ("tundish.loader.run.working.worker",),
}
"""The modules that are imported before the first worker is forked, in this order."""
IMPORTING = """
import gc, importlib, json, sys, time
gc.disable()
at = [0.0, time.process_time()]
for modules in json.loads(sys.argv[1]):
    for name in modules:
        importlib.import_module(name)
    at.append(time.process_time())
print(json.dumps([later - earlier for earlier, later in zip(at, at[1:])]))
"""


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("startup", f"Start and end, {WORKERS} workers", given, timed=False)
    imports = [run("-c", IMPORT).split() for _ in range(given.rounds)]
    pipelines = [tuple(map(float, run("-c", PIPELINE).split())) for _ in range(given.rounds)]
    rounds = [one_round() for _ in range(given.rounds)]

    def ms(name: str) -> float:
        return statistics.median(each[name] for each in rounds) * 1e3

    import_ms = statistics.median(float(seconds) for seconds, *_ in imports) * 1e3
    loaded = sorted({name for _, *names in imports for name in names})
    named_ms, ran_ms, modules = (
        statistics.median(column) for column in zip(*pipelines, strict=True)
    )
    named_ms, ran_ms = named_ms * 1e3, ran_ms * 1e3
    times = {
        "import tundish": import_ms,
        "the first td.Dataset, beyond numpy's import (CPU)": named_ms,
        "and range, map and batch in this process (CPU)": ran_ms,
        "python -c pass": bare() * 1e3,
        "a fresh process, to its first batch": ms("cold"),
        "the next iterator, new workers, to its first batch of 4 KB": ms("small"),
        "the same of 38.5 MB": ms("large"),
        "close() while every worker sleeps": ms("close"),
        "close() in the middle of an epoch": ms("close_busy"),
    }
    report.table("times", [["", "ms"], *([name, f"{took:.1f}"] for name, took in times.items())])

    named = {
        name: each for name, each in PARTS.items() if name[:5] != "torch" or installed("torch")
    }
    told = [imported(list(named.values())) for _ in range(given.rounds)]
    parts = zip(["a bare interpreter", *named], zip(*told, strict=True), strict=True)
    body = [[name, f"{statistics.median(took) * 1e3:.1f}"] for name, took in parts]
    report.table("the process that starts workers, part by part", [["", "CPU ms"], *body])

    show = "{:.0f} ms".format
    report.claim("import tundish", 30, import_ms, show=show)
    report.fact(
        "import tundish loads neither numpy nor pyarrow",
        "neither",
        " and ".join(loaded) or "neither",
        holds=not loaded,
    )
    report.claim("the first td.Dataset, beyond numpy's import", 60, named_ms, show=show)
    report.claim(
        "modules of ours that range, map and batch load", 90, modules, show="{:.0f}".format
    )
    unused = [name for name in ("torch", "pandas") if installed(name)]
    beside = f"; {' and '.join(unused)} installed, not used" if unused else ""
    report.claim(f"first batch of a fresh process{beside}", 300, ms("cold"), show=show)
    report.claim("first batch of the next iterator, 4 KB", 100, ms("small"), show=show)
    report.claim("first batch of the next iterator, 38.5 MB", 250, ms("large"), show=show)
    report.claim("close() while every worker sleeps", 300, ms("close"), show=show)
    return report.finish()


def imported(parts: list[tuple[str, ...]]) -> list[float]:
    """CPU seconds of a fresh interpreter until it runs, and then of each part."""
    told: list[float] = json.loads(run("-c", IMPORTING, json.dumps(parts)))
    return told


def one_round() -> dict[str, float]:
    """Start a process and let it tell."""
    start = time.monotonic()
    told: dict[str, Any] = json.loads(run(str(Path(__file__)), "tell"))
    told["cold"] = told.pop("first") - start
    return told


def run(*words: str) -> str:
    """Return the output of a Python process; it keeps compiled modules, as users' processes do."""
    environ = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    return subprocess.run(
        [sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True, env=environ
    ).stdout


def bare() -> float:
    """The seconds that an interpreter takes to start and end."""
    start = time.monotonic()
    run("-c", "pass")
    return time.monotonic() - start


def tell() -> None:
    """Be the fresh process."""
    import tundish as td

    small = td.Dataset.range(10_000).map(make_small).batch(64)
    with small.iterator(workers=WORKERS) as batches:
        next(batches)
        told = {"first": time.monotonic()}
    large = td.Dataset.range(64 * 100).map(make_large).batch(64)
    told["small"] = statistics.median(to_first_batch(small) for _ in range(LATER))
    told["large"] = statistics.median(to_first_batch(large) for _ in range(LATER))

    batches = large.iterator(workers=WORKERS)
    next(batches)
    told["close_busy"] = to_close(batches)
    batches = td.Dataset.range(100).map(sleep_but_first).iterator(workers=WORKERS)
    next(batches)
    time.sleep(0.3)  # so that each of them has something to sleep over
    told["close"] = to_close(batches)
    print(json.dumps(told))


def to_first_batch(dataset: Any) -> float:
    """Seconds from `iterator` to the first batch."""
    start = time.perf_counter()
    with dataset.iterator(workers=WORKERS) as batches:
        next(batches)
        return time.perf_counter() - start


def to_close(batches: Any) -> float:
    """Seconds that `close` takes."""
    start = time.perf_counter()
    batches.close()
    return time.perf_counter() - start


def make_small(index: Any) -> Any:
    import numpy as np

    return np.full(16, index, np.float32)


def make_large(index: Any) -> Any:
    import numpy as np

    return np.full((3, 224, 224), index, np.float32)


def sleep_but_first(index: Any) -> Any:
    if index > 0:
        time.sleep(1000)
    return index


if __name__ == "__main__":
    if sys.argv[1:] == ["tell"]:
        tell()
    else:
        sys.exit(main())
