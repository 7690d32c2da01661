"""Batches of 4 KB: what a batch costs when there is nothing to copy.

Claims: tens of thousands of batches a second through two workers, eight times what torch's
DataLoader delivers; and millions of elements a second that are not batched at all.
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from common import AS_USERS_HAVE_IT, Contestant, Report, arguments, contest, medians, ratio

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 2
ENDLESS = 1 << 40
SOME = 64  # batches a step: the loop around them costs nothing

ONE = np.zeros(1024, np.float32)
ROW = np.zeros(16, np.float32)
HALF = np.zeros(8, np.float32)

TARGETS = {
    "one element of 4 KB": 35_000,
    "64 rows of 64 B": 18_000,
    "64 rows, a dict of two fields": 13_000,
    "64 rows, a number drawn for each": 5_000,
}
SCALARS = 3_000_000
STREAMS = {
    "stream": "numbers of flat_map, mapped",
    "turns": "numbers of interleave, mapped",
    "batches": "numbers of flat_map, mapped, in batches",
}
STREAM_US = 1.0
"""What a row of a stream may take of the consumer's time."""


def one(_: int) -> Any:
    return ONE


def row(_: int) -> Any:
    return ROW


def fields(_: int) -> Any:
    return {"a": HALF, "b": HALF}


def drawn(_: int, rng: np.random.Generator) -> Any:
    return ROW + np.float32(rng.random())


def scalar(index: int) -> int:
    return index


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "one": one,
    "rows": row,
    "fields": fields,
    "drawn": drawn,
    "scalar": scalar,
}
SHAPES = ("one", "rows", "fields", "drawn")


def through_tundish(_: int, shape: str) -> Callable[[], int]:
    """Deliver batches of a shape, or with ``scalar`` single elements."""
    from tundish import Dataset

    function = FUNCTIONS[shape]
    elements = Dataset.range(ENDLESS).map(function, seed=0 if shape == "drawn" else None)
    if shape == "scalar":
        return steps(elements.iterator(workers=WORKERS), 100 * SOME)
    size = 1 if shape == "one" else 64
    return steps(elements.batch(size).iterator(workers=WORKERS), SOME)


def through_streams(_: int, shape: str) -> Callable[[], int]:
    """Deliver numbers of inner datasets that a map has read: of one after another, of four in turn, or in batches."""
    from tundish import Dataset

    numbers = Dataset.range(ENDLESS)
    inner = (
        numbers.interleave(ten_thousand, 4) if shape == "turns" else numbers.flat_map(ten_thousand)
    )
    if shape != "batches":
        return steps(inner.map(scalar).iterator(workers=WORKERS), 100 * SOME)
    batches = inner.map(scalar).batch(1000).iterator(workers=WORKERS)

    def step() -> int:
        next(batches)
        return 1000

    return step


def ten_thousand(number: int) -> Any:
    from tundish import Dataset

    return Dataset.range(number, number + 10_000)


def through_torch(_: int, shape: str) -> Callable[[], int]:
    """Deliver the same through torch's DataLoader."""
    import torch
    from torch.utils.data import DataLoader

    function = FUNCTIONS[shape]

    class Elements:
        def __len__(self) -> int:
            return ENDLESS

        def __getitem__(self, index: int) -> Any:
            if shape == "drawn":  # a number that no worker and no order changes, as here
                keyed = np.random.Philox(key=0, counter=[0, 0, index, 0])
                return torch.from_numpy(function(index, np.random.Generator(keyed)))
            element = function(index)
            if isinstance(element, dict):
                return {name: torch.from_numpy(value) for name, value in element.items()}
            return torch.from_numpy(element)

    elements: Any = Elements()
    size = 1 if shape == "one" else 64
    return steps(iter(DataLoader(elements, batch_size=size, num_workers=WORKERS)), SOME)


def steps(batches: Any, count: int) -> Callable[[], int]:
    """Take so many at a time."""

    def step() -> int:
        deque(islice(batches, count), maxlen=0)
        return count

    return step


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("transport_small", f"4 KB batches, {WORKERS} workers", given)
    contestants = {}
    for shape in SHAPES:
        contestants[shape] = Contestant(
            f"transport_small:through_tundish:{shape}", environ=AS_USERS_HAVE_IT
        )
        contestants[f"torch {shape}"] = Contestant(
            f"transport_small:through_torch:{shape}", needs="torch"
        )
    contestants["scalar"] = Contestant(
        "transport_small:through_tundish:scalar", environ=AS_USERS_HAVE_IT
    )
    for shape in STREAMS:
        contestants[shape] = Contestant(
            f"transport_small:through_streams:{shape}", environ=AS_USERS_HAVE_IT
        )
    measured = contest(contestants, given.rounds, given.seconds)

    micro = "{:.1f}".format
    rows = [["", "batches/s", "torch", "times torch", "consumer µs/batch", "workers µs/batch"]]
    times = {}
    for name, shape in zip(TARGETS, SHAPES, strict=True):
        ours, theirs = measured[shape], measured.get(f"torch {shape}")
        times[name] = ratio(ours, theirs)
        rows.append(
            [
                name,
                f"{medians(ours):,.0f}",
                f"{medians(theirs):,.0f}" if theirs else "not installed",
                f"{times[name]:.1f}" if times[name] is not None else "",
                micro(medians(ours, lambda m: m.cpu) * 1e6),
                micro(medians(ours, lambda m: m.cpu_below) * 1e6),
            ]
        )
    report.table("batches", rows)
    scalars = measured["scalar"]
    report.table(
        "elements",
        [
            ["", "million/s", "consumer µs/element", "workers µs/element"],
            [
                "numbers, not batched",
                f"{medians(scalars) / 1e6:.2f}",
                f"{medians(scalars, lambda m: m.cpu) * 1e6:.3f}",
                f"{medians(scalars, lambda m: m.cpu_below) * 1e6:.3f}",
            ],
            *[
                [
                    name,
                    f"{medians(measured[shape]) / 1e6:.2f}",
                    f"{medians(measured[shape], lambda m: m.cpu) * 1e6:.3f}",
                    f"{medians(measured[shape], lambda m: m.cpu_below) * 1e6:.3f}",
                ]
                for shape, name in STREAMS.items()
            ],
        ],
    )

    whole = "{:,.0f}".format
    for (name, target), shape in zip(TARGETS.items(), SHAPES, strict=True):
        text = f"batches/s, {name}"
        report.claim(text, target, medians(measured[shape]), least=True, show=whole)
    for name in TARGETS:
        report.claim(f"times torch, {name}", 8, times[name], least=True, show="{:.1f}".format)
    report.claim("numbers/s, not batched", SCALARS, medians(scalars), least=True, show=whole)
    for shape, name in STREAMS.items():
        consumer = medians(measured[shape], lambda m: m.cpu) * 1e6
        report.claim(f"consumer µs, {name}", STREAM_US, consumer, show="{:.2f}".format)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
