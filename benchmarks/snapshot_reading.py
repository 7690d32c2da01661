"""Speed of reading a snapshot: large batches against reading memory, small records one by one.

Elements of 38.5 MB (64 images of float32) are stored uncompressed and read again and again from the page
cache; every byte is touched, by one reduction that is the same for all. The limit is that reduction over
arrays that lie in memory. Beside it tf.data's own snapshot, and Hugging Face datasets with numpy's
format, of the same arrays, each by its quickest way. A first pass compares each batch with its checksum:
it is measured by turns with what it is made of, files mapped anew and the checksum alone, with zlib and
with what `[fast]` brings.

Claims: the limit is nearly reached, the others are left far behind, and a random record takes less than
three microseconds.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from contextlib import suppress
from importlib import import_module
from itertools import count, cycle
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Contestant, Report, arguments, contest, l3_bytes, medians, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tundish.cli.independent import Measured

BATCH, IMAGE = 64, (3, 224, 224)
BATCH_BYTES = BATCH * int(np.prod(IMAGE)) * 4
RECORDS = 100_000
AT_ONCE = 2_000


def batches() -> list[np.ndarray]:
    """Batches that fill the last cache several times."""
    count = max(8, 4 * l3_bytes() // BATCH_BYTES)
    rng = np.random.default_rng(0)
    return [rng.random((BATCH, *IMAGE), np.float32) for _ in range(count)]


def touch(batch: np.ndarray) -> int:
    """Read every byte, and write none."""
    return int(np.bitwise_or.reduce(batch.reshape(-1).view(np.uint64)))


def touching(source: Iterator[Any]) -> Callable[[], int]:
    """Touch one batch a step."""

    def step() -> int:
        batch = next(source)
        assert batch.nbytes == BATCH_BYTES
        touch(batch)
        return 1

    return step


# -- large batches -------------------------------------------------------------------------------


def memory(_: int) -> Callable[[], int]:
    """The limit: arrays of this process."""
    return touching(cycle(batches()))


def copied(_: int) -> Callable[[], int]:
    """The same, each copied to an array that is there before it is touched."""
    target = np.empty((BATCH, *IMAGE), np.float32)

    def copies() -> Iterator[np.ndarray]:
        for batch in cycle(batches()):
            np.copyto(target, batch)
            yield target

    return touching(copies())


def page_cache(_: int, folder: str) -> Callable[[], int]:
    """The limit of batches that are put together: bytes of a mapped file copied to new memory, which has to be had first."""
    path = Path(folder, "bytes")
    with path.open("wb") as file:
        for batch in batches():
            batch.tofile(file)
    mapped = np.memmap(path, np.float32, "r").reshape(-1, BATCH, *IMAGE)

    def copies() -> Iterator[np.ndarray]:
        for batch in cycle(mapped):
            yield np.array(batch)

    return touching(copies())


def stored_batches(folder: str) -> Any:
    """A snapshot whose elements are batches, written by its first pass."""
    from tundish import Dataset

    arrays = batches()
    ds = Dataset.range(len(arrays)).map(lambda k: arrays[k])
    ds = ds.snapshot(f"{folder}/tundish", compression=None, version="benchmark")
    for _ in ds:
        pass
    return ds


def epoch_by_epoch(_: int, folder: str) -> Callable[[], int]:
    """As a training does: an iterator for each pass."""
    ds = stored_batches(folder)
    return touching(element for _ in count() for element in ds)


def through_tundish(_: int, folder: str) -> Callable[[], int]:
    return touching(iter(stored_batches(folder).repeat()))


def fresh_mapping(_: int, folder: str) -> Callable[[], int]:
    """The conditions of a first pass: every file is mapped anew."""
    from tundish.snapshot.catalog import Catalog
    from tundish.snapshot.reading.reader import open_reader

    path = f"{folder}/tundish"
    stored_batches(folder)
    key = Catalog(path).newest()
    assert key is not None

    def passes() -> Iterator[np.ndarray]:
        while True:
            reader = open_reader(path, key, verify="size")
            for k in range(len(reader)):
                yield reader[k]
            del reader  # before the next is opened, which else would be the same

    return touching(passes())


def images_batched(_: int, folder: str) -> Callable[[], int]:
    """Single images stored, and batched when they are read: rows of many stored batches, copied once."""
    from tundish import Dataset

    arrays = batches()
    ds = Dataset.range(len(arrays) * BATCH).map(lambda k: arrays[k // BATCH][k % BATCH])
    ds = ds.snapshot(f"{folder}/images", compression=None, version="benchmark")
    for _ in ds:
        pass
    return touching(iter(ds.batch(BATCH).repeat()))


def through_tensorflow(_: int, folder: str) -> Callable[[], int]:
    import tensorflow as tf

    arrays = batches()

    def make(k: Any) -> Any:
        batch = tf.numpy_function(lambda k: arrays[int(k)], [k], tf.float32)
        batch.set_shape((BATCH, *IMAGE))
        return batch

    ds = tf.data.Dataset.range(len(arrays)).map(make)
    ds = ds.snapshot(f"{folder}/tensorflow", compression=None)
    for _ in ds:
        pass
    return touching(iter(ds.repeat().as_numpy_iterator()))


def through_datasets(_: int, folder: str) -> Callable[[], int]:
    import datasets

    datasets.disable_progress_bars()
    arrays = batches()
    features = datasets.Features({"image": datasets.Sequence(datasets.Value("float32"))})

    def rows() -> Iterator[dict[str, Any]]:
        for array in arrays:
            yield {
                "image": array.reshape(-1)
            }  # its features for arrays of more dimensions are slower

    made = datasets.Dataset.from_generator(
        rows, features=features, cache_dir=f"{folder}/datasets", writer_batch_size=1
    )
    ds = made.with_format("numpy")
    return touching(ds[k]["image"] for k in cycle(range(len(arrays))))


# -- a first pass -------------------------------------------------------------------------------


def first_pass(folder: Path, rounds: int) -> dict[str, tuple[float, float, float]]:
    """By checksum: GB/s of a verified first pass, of files mapped anew, and of the checksum alone."""
    from tundish.snapshot.catalog import Catalog
    from tundish.snapshot.files import checksum
    from tundish.snapshot.reading import batches as reading
    from tundish.snapshot.reading.reader import open_reader

    stored_batches(str(folder))
    path = f"{folder}/tundish"
    key = Catalog(path).newest()
    assert key is not None
    shards = sorted(folder.rglob("shard-*.arrow"))
    lying = batches()

    def reading_all(verify: str) -> float:
        for shard in shards:  # with another time it is another file: nothing of it was verified
            os.utime(shard)
        reader = open_reader(path, key, verify=verify)
        began = perf_counter()
        for k in range(len(reader)):
            touch(reader[k])
        return perf_counter() - began

    def summing(crc32: Callable[[Any], int]) -> float:
        began = perf_counter()
        for array in lying:
            crc32(array.reshape(-1).view(np.uint8))
        return perf_counter() - began

    usual, found = checksum.crc32, {}
    nbytes = len(lying) * BATCH_BYTES
    for name, crc32 in checksums().items():
        reading.crc32 = crc32  # type: ignore[attr-defined]  # as if it was the one installed
        turns = [
            (reading_all("batch"), reading_all("size"), summing(crc32)) for _ in range(5 * rounds)
        ]
        first, mapped, sums = (nbytes / 1e9 / median(times) for times in zip(*turns, strict=True))
        found[name] = (first, mapped, sums)
    reading.crc32 = usual  # type: ignore[attr-defined]  # as above
    return found


def checksums() -> dict[str, Callable[..., int]]:
    """Return the functions that compute crc32 with and without `[fast]`."""
    found: dict[str, Callable[..., int]] = {"zlib": zlib.crc32}
    with suppress(ImportError):
        found["isal, [fast]"] = import_module("isal.isal_zlib").crc32
    return found


# -- small records -------------------------------------------------------------------------------


def asking(ds: Any) -> Callable[[], int]:
    """Ask for records at random, a few thousand a step."""
    order = np.random.default_rng(1).permutation(RECORDS).tolist()
    turns = cycle([order[k : k + AT_ONCE] for k in range(0, RECORDS, AT_ONCE)])

    def step() -> int:
        for k in next(turns):
            ds[k]
        return AT_ONCE

    return step


def stored_records(folder: str, name: str, make: Callable[[Any], Any]) -> Any:
    from tundish import Dataset

    ds = Dataset.range(RECORDS).map(make)
    ds = ds.snapshot(f"{folder}/{name}", compression=None, version="benchmark")
    for _ in ds:
        pass
    return ds


def array_records(_: int, folder: str) -> Callable[[], int]:
    return asking(stored_records(folder, "arrays", lambda k: np.full(8, k, np.float32)))


def dict_records(_: int, folder: str) -> Callable[[], int]:
    def make(k: Any) -> Any:
        return {"x": np.full(8, k, np.float32), "y": k, "name": f"record {k}"}

    return asking(stored_records(folder, "dicts", make))


def ragged_records(_: int, folder: str) -> Callable[[], int]:
    return asking(stored_records(folder, "ragged", lambda k: np.arange(int(k) % 30)))


def datasets_records(_: int, folder: str) -> Callable[[], int]:
    import datasets

    datasets.disable_progress_bars()
    ds = datasets.Dataset.from_dict(
        {"x": np.repeat(np.arange(RECORDS, dtype=np.float32), 8).reshape(-1, 8)}
    )
    ds.save_to_disk(f"{folder}/datasets_records")
    return asking(datasets.load_from_disk(f"{folder}/datasets_records").with_format("numpy"))


LARGE = {
    "touching memory (the limit)": ("memory", ""),
    "copied, then touched": ("copied", ""),
    "copied from the page cache to new memory, then touched": ("page_cache", "tundish"),
    "tundish": ("through_tundish", "tundish"),
    "tundish, an iterator an epoch": ("epoch_by_epoch", "tundish"),
    "tundish, files mapped anew, not verified": ("fresh_mapping", "tundish"),
    "tundish, single images batched": ("images_batched", "tundish"),
    "tf.data snapshot": ("through_tensorflow", "tensorflow"),
    "datasets, numpy format": ("through_datasets", "datasets"),
}
SMALL = {
    "float32 (8,)": ("array_records", "tundish"),
    "a dict of array, number, str": ("dict_records", "tundish"),
    "int64 (0 .. 29,)": ("ragged_records", "tundish"),
    "datasets, numpy format": ("datasets_records", "datasets"),
}


def contestants(table: dict[str, tuple[str, str]], folder: Path) -> dict[str, Contestant]:
    """Each in a process of its own, with a folder of its own."""
    found = {}
    for k, (name, (function, needs)) in enumerate(table.items()):
        own = folder / f"{function}-{k}"
        own.mkdir()
        word = f":{own}" if needs else ""
        found[name] = Contestant(f"snapshot_reading:{function}{word}", needs=needs or "numpy")
    return found


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("snapshot_reading", f"A snapshot read, {BATCH_BYTES / 1e6:.1f} MB", given)
    with tempfile.TemporaryDirectory(prefix="snapshot-reading-") as folder:
        large = contest(contestants(LARGE, Path(folder)), given.rounds, given.seconds)
        small = contest(contestants(SMALL, Path(folder)), given.rounds, given.seconds)
        first = first_pass(Path(folder), given.rounds)
    show_large(report, large)
    show_first(report, first)
    rows = [["random records", "records/s", "CPU µs a record"]]
    for name, rounds in small.items():
        rows.append([name, f"{medians(rounds):,.0f}", f"{cpu_us(rounds):.2f}"])
    report.table("random records", rows)
    limit, ours = large["touching memory (the limit)"], large["tundish"]
    report.claim("GB/s / the limit", 0.9, ratio(ours, limit), least=True)
    copied = large["copied from the page cache to new memory, then touched"]
    met = ratio(large["tundish, single images batched"], copied)
    report.claim("single images batched / copied from the page cache", 0.8, met, least=True)
    report.claim(
        "the same / tf.data snapshot", 15, ratio(ours, large.get("tf.data snapshot")), least=True
    )
    report.claim(
        "the same / datasets", 2, ratio(ours, large.get("datasets, numpy format")), least=True
    )
    for name, rounds in small.items():
        if not name.startswith("datasets"):
            report.claim(f"CPU µs a random record, {name}", 3.0, cpu_us(rounds))
    return report.finish()


def show_large(report: Report, found: dict[str, list[Measured]]) -> None:
    limit = found["touching memory (the limit)"]
    rows = [["large batches", "GB/s", "of the limit", "CPU ms a batch"]]
    for name in LARGE:
        if name not in found:
            rows.append([name, "not installed", "", ""])
            continue
        rounds = found[name]
        speed = medians(rounds) * BATCH_BYTES / 1e9
        cpu = medians(rounds, lambda measured: measured.cpu) * 1e3
        rows.append([name, f"{speed:.1f}", f"{ratio(rounds, limit):.2f}", f"{cpu:.2f}"])
    report.table("large batches", rows)


def show_first(report: Report, found: dict[str, tuple[float, float, float]]) -> None:
    rows = [["a first pass, GB/s", "verified", "mapped anew", "the checksum", "of both in turn"]]
    for name, (verified, mapped, sums) in found.items():
        share = verified * (1 / mapped + 1 / sums)
        rows.append([name, *(f"{speed:.1f}" for speed in (verified, mapped, sums)), f"{share:.2f}"])
        report.claim(f"a first pass / (mapped anew, then {name})", 0.85, share, least=True)
    report.table("first pass", rows)


def cpu_us(rounds: Sequence[Measured]) -> float:
    return medians(rounds, lambda measured: measured.cpu) * 1e6


if __name__ == "__main__":
    sys.exit(main())
