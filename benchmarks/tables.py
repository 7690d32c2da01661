"""Epochs over a table: what a batch of columns costs against taking the rows with numpy.

A table of 336,776 rows and three columns, in batches of 1,024, in one process. Each row is the CPU of an epoch; the
bound is a permutation and taking the rows by it, in numpy. Where tensorflow is importable its `tf.data` is measured,
too; CPU is that of all threads. All of them take turns.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Report, arguments, installed

import tundish as td

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, BATCH, WINDOW = 336_776, 1_024, 10_000

_rng = np.random.default_rng(0)
TABLE: dict[str, np.ndarray] = {
    "distance": _rng.integers(0, 5_000, ROWS),
    "delay": _rng.random(ROWS),
    "hour": _rng.integers(0, 24, ROWS).astype(np.int32),
}


def gathered() -> None:
    """The bound: a permutation, and each batch's rows."""
    order = np.random.default_rng(1).permutation(ROWS)
    for first in range(0, ROWS, BATCH):
        rows = order[first : first + BATCH]
        _ = {name: column[rows] for name, column in TABLE.items()}


def read_and_gathered(path: Path) -> None:
    """The bound of a Parquet file: read it, and take rows."""
    table = pq.read_table(path)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    order = np.random.default_rng(1).permutation(ROWS)
    for first in range(0, ROWS, BATCH):
        rows = order[first : first + BATCH]
        _ = {name: column[rows] for name, column in columns.items()}


def pipelines(folder: Path) -> dict[str, tuple[Any, str, float]]:
    """Name, pipeline, which bound, and how many times as much it may cost."""
    arrays, numbers = td.Dataset.from_tensor_slices(TABLE), td.Dataset.range(ROWS)
    parquet = td.ParquetDataset(str(folder / "rows.parquet"))
    stored = arrays.snapshot(str(folder / "snapshot"))
    for _ in stored.iterator(workers=0):  # write it
        pass
    rows: dict[str, tuple[Any, str, float]] = {
        "from_tensor_slices": (arrays, "numpy", 2),
        ".shuffle(None)": (arrays.shuffle(None, seed=1), "numpy", 4),
        f".shuffle({WINDOW})": (arrays.shuffle(WINDOW, seed=1), "tf.data", 0.1),
        ".shuffle(None).repeat(2).take(n)": (
            arrays.shuffle(None, seed=1).repeat(2).take(ROWS),
            "numpy",
            4,
        ),
        ".enumerate()": (arrays.enumerate(), "numpy", 4),
        "zip of two": (td.Dataset.zip(arrays, numbers), "numpy", 4),
        ".batch(256).unbatch()": (arrays.batch(256).unbatch(), "numpy", 4),
        ".map_batches(f, 1024)": (arrays.map_batches(dict, 1024), "numpy", 4),
        "range(n).shuffle(None)": (numbers.shuffle(None, seed=1), "numpy", 4),
        "Parquet": (parquet, "read_table", 3),
        "Parquet.shuffle(None)": (parquet.shuffle(None, seed=1), "read_table", 3),
        "Parquet.shuffle(None, units=4)": (parquet.shuffle(None, seed=1, units=4), "Parquet", 2),
        "snapshot": (stored, "numpy", 4),
        "snapshot.shuffle(None)": (stored.shuffle(None, seed=1), "numpy", 4),
    }
    return {name: (ds.batch(BATCH), bound, most) for name, (ds, bound, most) in rows.items()}


def tensorflow_shuffled() -> Callable[[], None]:
    """tf.data's `shuffle(10000)` of the same table."""
    import tensorflow as tf

    ds = tf.data.Dataset.from_tensor_slices(TABLE).shuffle(WINDOW, seed=1).batch(BATCH)

    def epoch() -> None:
        for _ in ds.as_numpy_iterator():
            pass

    return epoch


def epoch_of(ds: Any) -> Callable[[], None]:
    def epoch() -> None:
        for _ in ds.iterator(workers=0):
            pass

    return epoch


def main() -> int:
    given = arguments(str(__doc__))
    report = Report(
        "tables", f"An epoch of {ROWS:,} rows in batches of {BATCH:,}", given, timed=False
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        pq.write_table(pa.table(TABLE), path, row_group_size=16_384)
        rows = pipelines(Path(folder))
        bounds: dict[str, Callable[[], None]] = {
            "numpy": gathered,
            "read_table": lambda: read_and_gathered(path),
        }
        if installed("tensorflow"):
            bounds["tf.data"] = tensorflow_shuffled()
        took = measured(
            given.rounds, {**bounds, **{name: epoch_of(x) for name, (x, _, _) in rows.items()}}
        )
    times: dict[str, float | None] = {
        name: ratio(took[name], took[bound]) if bound in took else None
        for name, (_, bound, _) in rows.items()
    }
    shown = [["an epoch of", "CPU s", "µs a row", "times its bound", "bound"]]
    for name, seconds in took.items():
        cpu, bound = statistics.median(seconds), rows[name][1] if name in rows else ""
        share = f"{times[name]:.2f}" if times.get(name) is not None else ""
        shown.append([name, f"{cpu:.4f}", f"{cpu / ROWS * 1e6:.3f}", share, bound])
    report.table("epochs", shown, right=(1, 2, 3))
    for name, (_, bound, most) in rows.items():
        report.claim(f"{name}.batch({BATCH}) / {bound}", most, times[name])
    return report.finish()


def measured(rounds: int, works: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    """The CPU seconds of calls that take turns; the first of each imports, and fills caches."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            began = time.process_time()
            work()
            if turn:
                took[name].append(time.process_time() - began)
    return took


def ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    sys.exit(main())
