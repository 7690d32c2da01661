"""Files of records read in one process: TFRecord, lines of text, columns of Parquet and CSV.

Every contestant reads the same files again and again, from the page cache, and is asked for their
records, or for batches of them, from Python. Beside them stand the limit (the bytes read and their
checksums computed, with no records made of them; pyarrow alone, for columns), tf.data and Hugging
Face datasets. An index of a large TFRecord file is made anew in each round, and asked at random.

Claims, with the ``fast`` extra: small records and lines faster than a training asks for them, large ones and
columns near the limit, and all of it above tf.data and ``datasets``.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Contestant, Report, arguments, contest, medians, ratio

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from tundish.cli.independent import Measured

SMALL, LARGE, MIDDLE = 100, 100_000, 10_000
LINES = 4096
ROWS = 65_536
SHUFFLED = 1024
COLUMNS = [f"c{k}" for k in range(8)]


def endless(make: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """One epoch after another."""
    while True:
        yield from make()


def pulling(elements: Iterator[Any], at_once: int) -> Callable[[], int]:
    """So many elements a step."""

    def step() -> int:
        deque(islice(elements, at_once), maxlen=0)
        return at_once

    return step


def counting(batches: Iterator[Any]) -> Callable[[], int]:
    """One batch a step: its rows are counted."""

    def step() -> int:
        batch = next(batches)
        return len(batch[COLUMNS[0]]) if isinstance(batch, dict) else len(batch)

    return step


# -- TFRecord ------------------------------------------------------------------------------------


def bare_bytes(_: int, path: str) -> Callable[[], int]:
    """The limit: what stands in the file, read piece by piece, and its checksum; in bytes."""
    import google_crc32c

    fd, size = os.open(path, os.O_RDONLY), Path(path).stat().st_size
    at = 0

    def step() -> int:
        nonlocal at
        piece = os.pread(fd, 1 << 20, at)
        google_crc32c.value(piece)
        at = (at + len(piece)) % size
        return len(piece)

    return step


def records(_: int, path: str) -> Callable[[], int]:
    from tundish import TFRecordDataset

    return pulling(iter(TFRecordDataset(path).repeat()), at_once(path))


def records_batched(_: int, path: str) -> Callable[[], int]:
    from tundish import TFRecordDataset

    return counting(iter(TFRecordDataset(path).batch(LINES).repeat()))


def records_of_reader(_: int, path: str) -> Callable[[], int]:
    """Without a pipeline."""
    from tundish.formats.tfrecord.reader import TFRecordFormat

    return counting(endless(lambda: runs(TFRecordFormat(), path)))


def records_of_tensorflow(_: int, path: str) -> Callable[[], int]:
    import tensorflow as tf

    ds = tf.data.TFRecordDataset(path, buffer_size=8 << 20).repeat()
    return pulling(ds.as_numpy_iterator(), at_once(path))


def runs(form: Any, path: str) -> Iterator[list[Any]]:
    with form.open(path) as reader:
        while found := reader.read(LINES).records():
            yield found


def at_once(path: str) -> int:
    return 64 if "large" in path else 4096


# -- lines ---------------------------------------------------------------------------------------


def bare_lines(_: int, path: str) -> Callable[[], int]:
    """The limit of Python: a file's own iterator."""

    def batches() -> Iterator[list[bytes]]:
        with Path(path).open("rb", buffering=1 << 20) as file:
            while found := list(islice(file, LINES)):
                yield found

    return counting(endless(batches))


def lines(_: int, path: str) -> Callable[[], int]:
    from tundish import TextLineDataset

    return counting(iter(TextLineDataset(path).batch(LINES).repeat()))


def lines_of_reader(_: int, path: str) -> Callable[[], int]:
    """Without a pipeline."""
    from tundish.formats.lines import LinesFormat

    return counting(endless(lambda: runs(LinesFormat(), path)))


def lines_of_tensorflow(_: int, path: str) -> Callable[[], int]:
    import tensorflow as tf

    ds = tf.data.TextLineDataset(path, buffer_size=1 << 20).batch(LINES).repeat()
    return counting(ds.prefetch(2).as_numpy_iterator())


def lines_of_datasets(_: int, path: str) -> Callable[[], int]:
    import datasets

    datasets.disable_progress_bars()
    ds = datasets.load_dataset("text", data_files=path, split="train", streaming=True)
    texts = (batch["text"] for batch in endless(lambda: ds.iter(batch_size=LINES)))
    return counting(texts)


# -- columns -------------------------------------------------------------------------------------


def parquet(_: int, path: str) -> Callable[[], int]:
    from tundish import ParquetDataset

    return counting(iter(ParquetDataset(path, columns=COLUMNS).batch(ROWS).repeat()))


def parquet_of_arrow(_: int, path: str) -> Callable[[], int]:
    """The limit: pyarrow alone."""
    import pyarrow.parquet as pq

    def batches() -> Iterator[dict[str, Any]]:
        with pq.ParquetFile(path) as file:
            yield from map(arrays, file.iter_batches(ROWS, columns=COLUMNS))

    return counting(endless(batches))


def csv(_: int, path: str) -> Callable[[], int]:
    from tundish import CsvDataset

    return counting(iter(CsvDataset(path, columns=COLUMNS).batch(ROWS).repeat()))


def table_shuffled(_: int, path: str) -> Callable[[], int]:
    """The limit of rows in a new order: the file read, a permutation, and rows taken of its columns."""
    import pyarrow.parquet as pq

    def batches() -> Iterator[dict[str, Any]]:
        while True:
            table = pq.read_table(path, columns=COLUMNS, use_threads=False)
            columns = {name: table[name].to_numpy() for name in COLUMNS}
            order = np.random.default_rng(1).permutation(len(table))
            for k in range(0, len(order), SHUFFLED):
                rows = order[k : k + SHUFFLED]
                yield {name: column[rows] for name, column in columns.items()}

    return counting(batches())


def parquet_shuffled(_: int, path: str) -> Callable[[], int]:
    from tundish import ParquetDataset

    ds = ParquetDataset(path, columns=COLUMNS).shuffle(None, seed=1).batch(SHUFFLED)
    return counting(endless(lambda: ds))


def csv_of_arrow(_: int, path: str) -> Callable[[], int]:
    """The limit: pyarrow alone."""
    import pyarrow.csv

    columns = pyarrow.csv.ConvertOptions(include_columns=COLUMNS)

    def batches() -> Iterator[dict[str, Any]]:
        with pyarrow.csv.open_csv(path, convert_options=columns) as reader:
            yield from map(arrays, reader)

    return counting(endless(batches))


def arrays(batch: Any) -> dict[str, Any]:
    return {name: batch[name].to_numpy(zero_copy_only=False) for name in batch.schema.names}


# -- the files -----------------------------------------------------------------------------------


def write_records(path: Path, size: int, total: int) -> None:
    """A TFRecord file of about so many bytes: a few records again and again."""
    from tundish import Dataset, TFRecordWriter

    rng = np.random.default_rng(0)
    some = [rng.bytes(size) for _ in range(max(2, 1_000_000 // size))]
    TFRecordWriter(str(path)).write(Dataset.from_tensor_slices(some))
    block = path.read_bytes()
    with path.open("wb") as file:
        for _ in range(max(1, total // len(block))):
            file.write(block)


def write_lines(path: Path, total: int) -> None:
    """Lines of 20 to 80 letters."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(20, 80, 10_000)
    block = b"".join([b"abcdefghij"[k % 10 :] * 8 for k in range(10)])
    text = b"\n".join([block[: int(n)] for n in lengths]) + b"\n"
    with path.open("wb") as file:
        for _ in range(max(1, total // len(text))):
            file.write(text)


def write_tables(parquet_path: Path, csv_path: Path, total: int) -> None:
    """Columns of int64 and float64 in turn."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    count = total // 8 // len(COLUMNS)
    columns = {
        name: rng.integers(0, 10**6, count) if k % 2 else rng.random(count)
        for k, name in enumerate(COLUMNS)
    }
    table = pa.table(columns)
    pq.write_table(table, parquet_path, row_group_size=1 << 18)
    pyarrow.csv.write_csv(table.slice(0, count // 4), csv_path)


# -- the index -----------------------------------------------------------------------------------


def indexing(path: Path, rounds: int) -> tuple[float, float]:
    """Seconds to find where every record is; microseconds then for a random one."""
    from tundish import TFRecordDataset
    from tundish.formats.tfrecord.reader import TFRecordFormat

    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        TFRecordFormat().places(str(path))
        took.append(time.perf_counter() - begin)
    ds = TFRecordDataset(path, index="beside")
    order = np.random.default_rng(1).integers(0, len(ds), 2000).tolist()
    asked = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for k in order:
            ds[k]
        asked.append((time.perf_counter() - begin) / len(order) * 1e6)
    return statistics.median(took), statistics.median(asked)


# -- all -----------------------------------------------------------------------------------------

Table = dict[str, tuple[str, str]]
TFRECORD: Table = {
    "bytes and checksums (the limit)": ("bare_bytes", "google_crc32c"),
    "tundish": ("records", "tundish"),
    "tundish, in batches": ("records_batched", "tundish"),
    "tundish, the reader alone": ("records_of_reader", "tundish"),
    "tf.data": ("records_of_tensorflow", "tensorflow"),
}
TEXT: Table = {
    "lines of a Python file": ("bare_lines", "numpy"),
    "tundish": ("lines", "tundish"),
    "tundish, the reader alone": ("lines_of_reader", "tundish"),
    "tf.data": ("lines_of_tensorflow", "tensorflow"),
    "datasets, streaming": ("lines_of_datasets", "datasets"),
}
PARQUET: Table = {
    "pyarrow (the limit)": ("parquet_of_arrow", "pyarrow"),
    "tundish": ("parquet", "tundish"),
}
TAKEN: Table = {
    "pyarrow and numpy (the limit)": ("table_shuffled", "pyarrow"),
    "tundish": ("parquet_shuffled", "tundish"),
}
CSV: Table = {"pyarrow (the limit)": ("csv_of_arrow", "pyarrow"), "tundish": ("csv", "tundish")}


def measure(table: Table, path: Path, given: argparse.Namespace) -> dict[str, list[Measured]]:
    """Each in a process of its own, all on one file."""
    found = {
        name: Contestant(f"reading:{function}:{path}", needs=needs)
        for name, (function, needs) in table.items()
    }
    return contest(found, given.rounds, given.seconds)


def show(report: Report, name: str, found: dict[str, list[Measured]], size: float) -> None:
    """A table of rates; `size`: bytes of one item."""
    rows = [[name, "items/s", "GB/s", "CPU µs an item"]]
    for who, rounds in found.items():
        rate, cpu = medians(rounds), medians(rounds, lambda measured: measured.cpu) * 1e6
        if "bytes" in who:
            rows.append([who, "", f"{rate / 1e9:.2f}", ""])
        else:
            rows.append([who, f"{rate:,.0f}", f"{rate * size / 1e9:.2f}", f"{cpu:.3f}"])
    report.table(name, rows)


def main() -> int:
    numbers = {"megabytes": (256, "of each file"), "index": (1024, "megabytes to be indexed")}
    given = arguments(str(__doc__), numbers=numbers)
    report = Report("reading", f"Files of {given.megabytes} MB read in one process", given)
    total = given.megabytes * 1_000_000
    with tempfile.TemporaryDirectory(prefix="reading-") as folder:
        for name, size in (("small", SMALL), ("large", LARGE)):
            path = Path(folder, f"{name}.tfrecord")
            write_records(path, size, total)
            found = measure(TFRECORD, path, given)
            show(report, f"TFRecord of {size:,} B", found, size + 16)
            claim_records(report, size, found)
        path = Path(folder, "lines.txt")
        write_lines(path, total)
        found = measure(TEXT, path, given)
        show(report, "lines", found, 50.5)
        claim_lines(report, found)
        tables = Path(folder, "t.parquet"), Path(folder, "t.csv")
        write_tables(*tables, total)
        for title, table, path in zip(("Parquet", "CSV"), (PARQUET, CSV), tables, strict=True):
            found = measure(table, path, given)
            show(report, f"{title}, rows of {len(COLUMNS)} columns", found, 8 * len(COLUMNS))
            met = ratio(found.get("tundish"), found.get("pyarrow (the limit)"))
            report.claim(f"{title} to batches, rows/s / pyarrow", 0.8, met, least=True)
        found = measure(TAKEN, tables[0], given)
        show(
            report,
            f"Parquet, rows of {len(COLUMNS)} columns in a new order",
            found,
            8 * len(COLUMNS),
        )
        cpu = [medians(rounds, lambda measured: measured.cpu) for rounds in found.values()]
        report.claim("CPU of shuffled Parquet / read, permuted and taken", 3.0, cpu[1] / cpu[0])
        path = Path(folder, "index.tfrecord")
        write_records(path, MIDDLE, given.index * 1_000_000)
        seconds, each = indexing(path, given.rounds)
    report.table(
        "index",
        [
            ["index", "s", "µs a random record"],
            [f"{given.index} MB", f"{seconds:.3f}", f"{each:.1f}"],
        ],
    )
    report.claim("s to index 1 GB of 10 KB records", 1.0, seconds * 1000 / given.index)
    return report.finish()


def claim_records(report: Report, size: int, found: dict[str, list[Measured]]) -> None:
    ours = found["tundish"]
    if size == SMALL:
        report.claim("M records/s of 100 B", 0.8, medians(ours) / 1e6, least=True)
    else:
        report.claim("GB/s of 100 KB records", 3.0, medians(ours) * size / 1e9, least=True)
    met = ratio(ours, found.get("tf.data"))
    report.claim(f"records/s of {size:,} B / tf.data", 1.0, met, least=True)


def claim_lines(report: Report, found: dict[str, list[Measured]]) -> None:
    ours = found["tundish"]
    report.claim("M lines/s in batches", 5.0, medians(ours) / 1e6, least=True)
    for name in ("tf.data", "datasets, streaming"):
        report.claim(f"lines/s / {name}", 1.0, ratio(ours, found.get(name)), least=True)


if __name__ == "__main__":
    sys.exit(main())
