"""The DataLoader against torch's, on the same torch datasets: large batches, small ones, photographs.

torch's workers are forked, its quickest way. Both get the same dataset object, batch size and
number of workers, and no setting beyond. "Parent CPU" is what a training process pays for a batch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from common import (
    AS_USERS_HAVE_IT,
    Contestant,
    Report,
    arguments,
    contest,
    installed,
    medians,
    ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.cli.independent import Measured

WORKERS = 2
ENDLESS = 1 << 40
HELD_BYTES = 2 << 30


class Large:
    """64 of them are a batch of 38.5 MB, as of images that are floats."""

    def __init__(self) -> None:
        import torch

        self.image = torch.rand(3, 224, 224)

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Any:
        return self.image.clone(), index


class Small:
    """One small tensor a sample, next to no work."""

    def __init__(self) -> None:
        import torch

        self.rows = torch.arange(1024 * 8.0).reshape(1024, 8)

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Any:
        return self.rows[index % 1024]


class Photographs:
    """Real photographs, decoded, cut and flipped by Pillow and numpy."""

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Any:
        import torch

        from tundish.cli.photographs import PATHS, load

        element = load(PATHS[index % len(PATHS)], np.random.default_rng(index))
        return torch.from_numpy(np.ascontiguousarray(element["image"])), index


class Here:
    """Keys 0, 1, 2, ... without a list of them."""

    def __iter__(self) -> Any:
        index = 0
        while True:
            yield index
            index += 1


KINDS: dict[str, tuple[Callable[[], Any], int]] = {
    "large": (Large, 64),
    "small": (Small, 1),
    "small16": (Small, 16),
    "photographs": (Photographs, 64),
}


def batches(make: Any, kind: str) -> Callable[[], int]:
    """Pull batches; each step counts one."""
    dataset, size = KINDS[kind]
    sampler: Any = Here()
    iterator = iter(make(dataset(), size, sampler=sampler, num_workers=WORKERS))

    def step() -> int:
        next(iterator)
        return 1

    return step


def ours(kind: str) -> Callable[[int], Callable[[], int]]:
    """Through our class."""

    def run(_: int) -> Callable[[], int]:
        from tundish.torch import DataLoader

        return batches(DataLoader, kind)

    return run


def torchs(kind: str) -> Callable[[int], Callable[[], int]]:
    """Through torch's class."""

    def run(_: int) -> Callable[[], int]:
        from torch.utils.data import DataLoader

        return batches(DataLoader, kind)

    return run


ours_large, torchs_large = ours("large"), torchs("large")
ours_small, torchs_small = ours("small"), torchs("small")
ours_small16, torchs_small16 = ours("small16"), torchs("small16")
ours_photographs, torchs_photographs = ours("photographs"), torchs("photographs")


def parent(measured: Measured) -> float:
    """CPU seconds of the training process a batch."""
    return measured.cpu


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("loading", f"DataLoader: ours and torch's, {WORKERS} workers", given)
    targets = {"large": 5.0, "small": 5.0, "photographs": 1.1}
    rows = [
        ["", "ours batches/s", "torch's", "ratio", "parent ms/batch", "torch's", "workers", "t."]
    ]
    found: dict[str, tuple[float | None, float | None]] = {}
    for kind in KINDS:
        contestants = {
            "ours": Contestant(f"loading:ours_{kind}", needs="torch", environ=AS_USERS_HAVE_IT),
            "torch": Contestant(f"loading:torchs_{kind}", needs="torch", environ=AS_USERS_HAVE_IT),
        }
        measured = contest(contestants, given.rounds, given.seconds)
        if "torch" not in measured:
            continue
        mine, other = measured["ours"], measured["torch"]
        times, cpu = ratio(mine, other), ratio(mine, other, parent)
        found[kind] = (times, cpu)
        rows.append(
            [
                kind,
                f"{medians(mine):,.0f}",
                f"{medians(other):,.0f}",
                f"{times:.2f}",
                *(f"{medians(each, parent) * 1e3:.3f}" for each in (mine, other)),
                *(f"{medians(each, lambda m: m.cpu_below) * 1e3:.2f}" for each in (mine, other)),
            ]
        )
    report.table("batches", rows)
    for kind, target in targets.items():
        times, cpu = found.get(kind, (None, None))
        report.claim(f"{kind}: batches/s / torch's", target, times, least=True)
        if kind == "large":
            report.claim("large: parent CPU a batch / torch's", 0.1, cpu)
    first_batches(report)
    kept(report)
    captured(report)
    broken(report)
    return report.finish()


def first_batches(report: Report) -> None:
    """Measure the time to the first batch, in fresh processes."""
    if not installed("torch"):
        return
    ours_cold, later = _seconds("ours", 4)
    spawned, _ = _seconds("spawn", 1)
    report.claim("first batch, 4 workers / torch's spawn with 1", 1.2, ours_cold / spawned)
    report.claim("seconds to a later iterator's first batch", 0.1, later)
    if sys.platform.startswith("linux"):
        forked, _ = _seconds("ours", WORKERS, "fork")
        report.claim(
            "seconds to the first batch ever, workers forked from the consumer", 0.1, forked
        )


def _seconds(which: str, workers: int, *start: str) -> tuple[float, float]:
    firsts = str(Path(__file__).with_name("firsts.py"))
    command = [sys.executable, firsts, which, str(workers), *start]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cold, later = map(float, done.stdout.split())
    return cold, later


def kept(report: Report) -> None:
    """Keep a thousand batches: no descriptor more, and nothing stalls."""
    if not installed("torch"):
        return
    import torch

    from tundish.torch import DataLoader

    class Kept:
        def __len__(self) -> int:
            return 8000

        def __getitem__(self, index: int) -> Any:
            return torch.full((64, 1024), float(index))

    loader = iter(DataLoader(Kept(), 8, num_workers=WORKERS))
    held = [next(loader)]
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    start = time.perf_counter()
    held += list(loader)
    seconds = time.perf_counter() - start
    more = sum(1 for _ in Path("/proc/self/fd").iterdir()) - before
    right = all(float(batch[3, 0, 0]) == 8 * at + 3 for at, batch in enumerate(held))
    told = f"{more:+d} descriptors, {len(held)} batches of 2 MB in {seconds:.1f} s"
    report.fact(
        "1,000 batches kept", "no new descriptor, all right", told, holds=right and more <= 0
    )


class Holding:
    """A dataset that holds 2 GB, and reads all of it for each sample."""

    def __init__(self) -> None:
        self.values = np.ones(HELD_BYTES // 8)

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> float:
        return float(self.values.sum()) + index


def captured(report: Report) -> None:
    """Measure the memory that a loader's workers hold of a large dataset, when each has read it."""
    from tundish import DataLoader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than cores, perhaps
        loader = iter(DataLoader(Holding(), num_workers=4, prefetch_factor=1))
    for _ in range(12):
        next(loader)
    held = sum(int(psutil.Process(pid).memory_full_info().pss) for pid in loader.worker_pids())
    report.claim("PSS of 4 workers / one copy of the 2 GB they share", 1.15, held / HELD_BYTES)


class Broken:
    """One sample does something that no sample should."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        if index != 17:
            return np.zeros(4)
        if self.what == "cannot be pickled":
            return (part for part in [index])
        if self.what == "StopIteration":
            raise StopIteration
        if self.what == "os._exit(0)":
            os._exit(0)
        return np.zeros(5)


def broken(report: Report) -> None:
    """Measure the time from a bad sample to an error that names it."""
    from tundish import DataLoader

    for what in ("cannot be pickled", "StopIteration", "os._exit(0)", "another shape"):
        collate: Any = list if what == "cannot be pickled" else None
        loader = iter(DataLoader(Broken(what), 4, num_workers=WORKERS, collate_fn=collate))
        told, slowest = "", 0.0
        for _ in range(8):
            start = time.perf_counter()
            try:
                next(loader)
            except Exception as error:  # noqa: BLE001 - any
                told = "; ".join([str(error), *getattr(error, "__notes__", ())])
                slowest = time.perf_counter() - start
        expected = "an error within 0.5 s that names index 17"
        found = f"{slowest * 1e3:.0f} ms: {told[:60]}"
        report.fact(what, expected, found, holds=slowest < 0.5 and "index 17" in told)


if __name__ == "__main__":
    sys.exit(main())
