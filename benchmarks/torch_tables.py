"""Epochs over tables that torch and Hugging Face hold, in one process: our loader and pipelines against their own reading.

A table of 336,776 rows and three columns in batches of 1,024: torch's `TensorDataset`, and a Hugging Face dataset in
numpy's format. All take turns; what is compared is CPU.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Report, arguments, installed

import tundish as td

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROWS, BATCH = 336_776, 1_024


def main() -> int:
    given = arguments(str(__doc__))
    report = Report(
        "torch_tables", f"Epochs over {ROWS:,} rows of three columns", given, timed=False
    )
    rows = [["table", "read by", "CPU s", "theirs", "theirs / ours"]]
    for contest in (of_torch, of_hugging_face):
        for name, least, ours, theirs in contest():
            mine, other = by_turns(ours, theirs, given.rounds)
            ratio = statistics.median(b / a for a, b in zip(mine, other, strict=True))
            rows.append(
                [
                    *name,
                    *(f"{statistics.median(each):.3f}" for each in (mine, other)),
                    f"{ratio:.1f}",
                ]
            )
            report.claim(", ".join(name), least, ratio, least=True)
    report.table("CPU seconds an epoch", rows, right=range(2, 5))
    return report.finish()


Contest = list[
    tuple[tuple[str, str], float, "Callable[[], Iterable[Any]]", "Callable[[], Iterable[Any]]"]
]


def of_torch() -> Contest:
    """A `TensorDataset`, shuffled, against torch's loader."""
    if not installed("torch"):
        return []
    import torch
    from torch.utils.data import DataLoader, StackDataset, Subset, TensorDataset

    import tundish.torch

    torch.set_num_threads(1)
    table = TensorDataset(*map(torch.from_numpy, columns().values()))
    tables = {
        "TensorDataset": table,
        "Subset of it": Subset(table, list(range(ROWS))),
        "StackDataset of it": StackDataset(x=table, y=torch.arange(ROWS)),
    }

    def loader(face: Any, dataset: Any) -> Any:
        return lambda: face(dataset, batch_size=BATCH, shuffle=True)

    return [
        (
            (name, "DataLoader, shuffled"),
            20,
            loader(tundish.torch.DataLoader, each),
            loader(DataLoader, each),
        )
        for name, each in tables.items()
    ]


def of_hugging_face() -> Contest:
    """A dataset in numpy's format, against its own iteration: in batches, and row by row."""
    if not installed("datasets") or not installed("torch"):
        return []
    import datasets

    import tundish.torch

    table = datasets.Dataset.from_dict(columns()).with_format("numpy")
    mixed = table.shuffle(seed=1)
    source = td.Dataset.from_source
    return [
        (
            ("Hugging Face, numpy", "DataLoader"),
            5,
            lambda: tundish.torch.DataLoader(table, BATCH),
            lambda: table.iter(BATCH),
        ),
        (
            ("the same, shuffled", "DataLoader"),
            5,
            lambda: tundish.torch.DataLoader(mixed, BATCH),
            lambda: mixed.iter(BATCH),
        ),
        (
            ("the same", "from_source.batch"),
            5,
            lambda: source(table).batch(BATCH),
            lambda: table.iter(BATCH),
        ),
        (
            ("the same", "from_source.shuffle(None).batch"),
            5,
            lambda: source(table).shuffle(None, seed=1).batch(BATCH),
            lambda: mixed.iter(BATCH),
        ),
    ]


def columns() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "distance": random.integers(0, 5_000, ROWS),
        "delay": random.random(ROWS),
        "hour": random.integers(0, 24, ROWS).astype(np.int32),
    }


def by_turns(ours: Any, theirs: Any, rounds: int) -> tuple[list[float], list[float]]:
    """CPU seconds of an epoch of each, one a round."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for make, found in zip((ours, theirs), times, strict=True):
            began, rows = time.process_time(), 0
            for batch in make():
                leaf = batch
                while isinstance(leaf, (dict, list, tuple)):
                    leaf = next(iter(leaf.values() if isinstance(leaf, dict) else leaf))
                rows += len(leaf)
            found.append(time.process_time() - began)
            if rows != ROWS:
                raise AssertionError(f"{rows} rows, not {ROWS}")
    return times


if __name__ == "__main__":
    sys.exit(main())
