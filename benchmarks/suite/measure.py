"""One peer in this process: ``measure.py JSON`` prints what was measured as JSON, a line for each workload and setting.

``{"mode": "time" | "check" | "bound" | "expected", "work": ..., "peer": ..., "settings": {work: {name: arguments}}, "seconds": ...}``;
"work" for the modes without a peer. "time" measures speed and CPU. "check" runs a whole epoch, hashes it, and samples memory; then it saves a state after half an epoch, and
resumes. "bound" measures without a peer, and
"expected" hashes what every peer must deliver.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pickle
import re
import shutil
import statistics
import sys
import threading
import time
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Self

import psutil
from data import CACHE
from hashing import multiset, size
from packing import LENGTH
from workloads import works

MANY = 1000  # epochs, where as many are read as fit into the time
PATIENCE = 6.0  # seconds after which whole epochs are given up, and what was delivered counts


def main() -> None:
    asked = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    if asked["mode"] == "bound":
        rate = getattr(works()[asked["work"]], asked["of"])
        found = {"rate": bound(rate, asked["index"], asked["seconds"])}
        print(json.dumps(found), file=answers, flush=True)
    elif asked["mode"] == "expected":
        count, number = works()[asked["work"]].expected
        print(json.dumps({"count": count, "hash": f"{number:016x}"}), file=answers, flush=True)
    else:
        peer = importlib.import_module(f"peers.{asked['peer']}")
        run = {"time": timed, "check": checked}[asked["mode"]]
        for name, every in asked["settings"].items():
            work = works()[name]
            for setting, given in every.items():
                try:
                    row = run(peer, work, given, asked["seconds"] or work.seconds)
                except Exception as error:  # noqa: BLE001 - a peer that fails is a result
                    row = {"error": described(error)}
                answer = {"work": name, "setting": setting, "row": row}
                print(json.dumps(answer), file=answers, flush=True)
                shutil.rmtree(CACHE / "snapshot" / str(os.getpid()), ignore_errors=True)
                gc.collect()


def bound(rate: Any, index: int, seconds: float) -> float:
    """Measure a bound when the others are ready, too: a line on stdin says so."""
    rate(index, 0.05)
    print("ready", file=sys.stderr, flush=True)
    sys.stdin.readline()
    return float(rate(index, seconds))


def passes(loader: Any) -> Any:
    """Begin an epoch."""
    return iter(loader() if callable(loader) else loader)


def opened(peer: Any, work: Any, settings: dict[str, Any]) -> Any:
    """Open a peer for all epochs: where it repeats by itself, one iterator, read an epoch at a time if those are counted.

    Others keep their workers from one epoch to the next if a setting says so.
    """
    if not getattr(peer, "REPEATS", False):
        return peer.open(work, **settings)
    loader = peer.open(work, **settings, epochs=work.epochs or MANY)
    every = cache(lambda: passes(loader))  # begins when it is asked for: its start is measured
    return (lambda: islice(every(), -(-work.count // work.batch))) if work.epochs else every


def samples(work: Any, batch: Any) -> int:
    """Count what a batch has: rows, or tokens of text, or one element that is not batched."""
    if work.kind == "lines":
        return size(batch) * LENGTH
    return size(batch) if work.batch else 1


def timed(peer: Any, work: Any, settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Measure whole epochs from the call on, or epoch after epoch for some seconds.

    Without a number of epochs, the first quarter of the time is not counted: it holds the start, and what a loader had
    computed ahead when it delivered its first batch.
    """
    batches = opened(peer, work, settings)
    begun = time.perf_counter()
    first, mark, gaps = None, None, list[float]()
    if work.epochs:
        mark = (begun, 0, time.process_time(), tree_cpu(), 0)
    number, epochs, over = 0, 0, False
    while not over and epochs != work.epochs:
        iterator = passes(batches)
        while not over:
            asked = time.perf_counter()
            batch = next(iterator, None)
            now = time.perf_counter()
            if batch is None:
                break
            number += samples(work, batch)
            gaps.append(now - asked)
            first = first or now - begun
            if mark is None and now - begun - first > seconds / 4:
                mark = (now, number, time.process_time(), tree_cpu(), len(gaps))
            del batch
            over = now - begun - first > (PATIENCE if work.epochs else seconds)
            if work.step and not over:
                time.sleep(work.step)
        epochs += 1
        del iterator
    if mark is None or number == mark[1]:
        raise TimeoutError(f"{number} samples in {seconds:g} s: too slow to be measured")
    end = time.perf_counter()
    made, counted = number - mark[1], gaps[mark[4] :] or gaps
    return {
        "rate": made / (end - mark[0]),
        "first": first,
        "gap_p50": statistics.median(counted),
        "gap_p99": sorted(counted)[min(len(counted) - 1, int(len(counted) * 0.99))],
        "cpu_consumer": (time.process_time() - mark[2]) / made,
        "cpu_tree": max(tree_cpu() - mark[3], time.process_time() - mark[2]) / made,
        "samples": made,
    }


def described(error: Exception) -> str:
    """Return an error's first line, without folders of this machine."""
    first = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    return re.sub(r"(/[\w.-]+){2,}", "<path>", first)


def tree_cpu() -> float:
    """CPU seconds of this process and all below it, those that have ended included."""
    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def checked(peer: Any, work: Any, settings: dict[str, Any], _: float) -> dict[str, Any]:
    """Hash a whole epoch; sample memory meanwhile; then resume from its middle."""
    loader = peer.open(work, **settings)
    with Memory() as memory:
        batches = passes(loader)
        if work.kind == "map" and not work.batch:
            found = multiset(blocks(batches))
        else:
            found = multiset(batches)
    result: dict[str, Any] = {"pss": memory.peak, "count": found[0], "hash": f"{found[1]:016x}"}
    del batches
    if hasattr(peer, "save") and work.kind != "lines":
        try:
            result |= resumed(peer, work, settings)
        except Exception as error:  # noqa: BLE001 - a state that is refused is a result
            result["resume_error"] = described(error)
    return result


def blocks(elements: Any) -> Any:
    """Gather elements into batches of a megabyte, which are hashed at once."""
    import numpy as np

    held: list[Any] = []
    for element in elements:
        held.append(np.asarray(element))
        if len(held) * held[0].nbytes >= 1 << 20:
            yield np.stack(held)
            held.clear()
    if held:
        yield np.stack(held)


def resumed(peer: Any, work: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Measure the state after half an epoch, and the time from it to the next batch."""
    iterator = passes(peer.open(work, **settings))
    for _ in range(max(1, min(work.count // (2 * (work.batch or 1)), 2_000))):
        next(iterator)
    state = peer.save(iterator)
    del iterator
    gc.collect()
    start = time.perf_counter()
    iterator = peer.restore(work, state, **settings)
    next(iterator)
    seconds = time.perf_counter() - start
    saved = state if isinstance(state, (str, bytes)) else pickle.dumps(state)
    return {"state_bytes": len(saved), "resume": seconds}


class Memory:
    """The highest sum of proportional set sizes of this process and all below it."""

    def __init__(self) -> None:
        self.peak, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        me = psutil.Process()
        while True:
            with contextlib.suppress(psutil.Error):
                self.peak = max(self.peak, sum(map(pss, [me, *me.children(recursive=True)])))
            if self._over.wait(0.2):
                return


def pss(process: psutil.Process) -> int:
    """Return a process's proportional set size in bytes."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


if __name__ == "__main__":
    main()
