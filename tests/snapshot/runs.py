"""Runs to write and read in tests: elements by their numbers, and what stands on disk of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from tundish.normalising import normalise
from tundish.snapshot.encoding.forms import INDEX, Columns, Form, columns_of, decode
from tundish.snapshot.files.store import open_store
from tundish.snapshot.records import RunHeader, StoredError
from tundish.snapshot.run import Prefix, read_run
from tundish.snapshot.writing.writer import RunWriter

KEY = "0123456789abcdef"
RUN = "r" * 32


def begin(path: Path | str, run: str = RUN, part: tuple[int, int] | None = None) -> None:
    """Make a run's header, unless it is there."""
    header = RunHeader(KEY, "2026-01-01T00:00:00+00:00", "0", part=part)
    open_store(path).create(f"{KEY}/runs/{run}/run.json", header.to_bytes(), "header")


def writer(path: Path | str, run: str = RUN, name: str = "abcdef01", **options: Any) -> RunWriter:
    """A writer of a run that begins, or goes on."""
    begin(path, run)
    defaults: dict[str, Any] = {"compression": None, "shard_bytes": 1 << 20}
    return RunWriter(str(path), KEY, run, name=name, **{**defaults, **options})


def element(n: int) -> dict[str, Any]:
    """Element number `n`: wider from 60 on, so that a second form is needed."""
    values = np.arange(3 if n < 60 else n % 5, dtype=np.float32) + n
    made: dict[str, Any] = normalise({"n": n, "values": values, "name": f"{n}" * (n % 4)})
    return made


def columns(first: int, stop: int, failed: Sequence[int] = ()) -> list[Columns]:
    """Elements of a range that did not fail, in one piece."""
    rows = [element(n) for n in range(first, stop) if n not in failed]
    return [columns_of(rows)] if rows else []


def failure(n: int) -> StoredError:
    """Make the error of element `n`."""
    return StoredError.of(n, ValueError(f"bad {n}"))


def folder(path: Path | str, run: str = RUN) -> Path:
    """Return the path of a run."""
    return Path(path) / KEY / "runs" / run


def prefix(path: Path | str, run: str = RUN) -> Prefix:
    """Return what is durable of a run."""
    return read_run(open_store(path).subfolder(KEY), run)


def stored(path: Path | str, run: str = RUN) -> dict[int, Any]:
    """Every durable element by its number, read with pyarrow from the bytes that the journal names."""
    found: dict[int, Any] = {}
    durable = prefix(path, run)
    assert durable.problem is None
    schemas = [pa.ipc.read_schema(pa.py_buffer(form)) for form in durable.forms]
    for entry in durable.entries:
        shard = durable.shards[entry["shard"]]
        data = (folder(path, run) / shard.file).read_bytes()
        data = data[entry["offset"] : entry["offset"] + entry["length"]]
        assert crc32(data) == entry["crc32"]
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schemas[shard.form])
        assert batch.num_rows == entry["rows"]
        numbers = range(entry["start"], entry["start"] + entry["rows"])
        if INDEX in batch.schema.names:
            numbers = batch.column(INDEX).to_pylist()
        decoded = decode(batch, Form.from_schema(schemas[shard.form]))
        for number, value in zip(numbers, decoded.elements(0, batch.num_rows), strict=True):
            assert number not in found
            found[number] = value
    return found


def numbers_by_batch(path: Path | str) -> list[list[int]]:
    """The numbers in each batch of a run with user shards, in the order of its index."""
    durable = prefix(path)
    found = []
    for entry in durable.entries:
        shard = durable.shards[entry["shard"]]
        schema = pa.ipc.read_schema(pa.py_buffer(durable.forms[shard.form]))
        data = (folder(path) / shard.file).read_bytes()[entry["offset"] :]
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        found.append(batch.column(INDEX).to_pylist())
    return found


def assert_elements(path: Path | str, numbers: Sequence[int], run: str = RUN) -> None:
    """The run holds exactly these elements, bit for bit."""
    found = stored(path, run)
    assert sorted(found) == sorted(numbers)
    for n, value in found.items():
        assert list(value) == ["n", "values", "name"]
        expected = element(n)
        assert (value["n"], value["name"]) == (expected["n"], expected["name"])
        assert value["values"].dtype == np.float32
        assert value["values"].tobytes() == expected["values"].tobytes()


def files(path: Path | str) -> set[str]:
    """Return every file in a folder, by its name from there."""
    return {str(p.relative_to(path)) for p in Path(path).rglob("*") if p.is_file()}


def assert_nothing_left(path: Path | str, run: str = RUN) -> None:
    """A run's folder holds what its journal names, and what belongs to a run, and nothing else."""
    durable = prefix(path, run)
    named = {"run.json", *(shard.file for shard in durable.shards)}
    named |= {f"journal/{n:08d}.json" for n in range(durable.records)}
    found = files(folder(path, run))
    states = {name for name in found if name.startswith("state/") and name.endswith(".json")}
    assert len(states) <= durable.records
    assert found - {"index.arrow", "order.npy", "manifest.json"} - states == named


def complete(
    path: Path | str,
    stop: int = 90,
    failed: Sequence[int] = (),
    *,
    run: str = RUN,
    by_shard: bool = False,
    **options: Any,
) -> None:
    """A complete snapshot of the first elements, in chunks of ten and commits of three chunks."""
    made = writer(path, run, **options)
    for n in range(0, stop, 10):
        last = min(n + 10, stop)
        numbers = [k for k in range(n, last) if k not in failed]
        shards = np.array([k * 7 % 3 for k in numbers]) if by_shard else None
        errors = [failure(k) for k in range(n, last) if k in failed]
        made.write(n, columns(n, last, failed), errors, shards)
        if n % 30 == 20 or last == stop:
            made.commit(prefix(path, run).records, made.seal(), last, {"at": last}, {})
    made.finish({"created": "2026-01-01T00:00:00+00:00", "library": "0", "content": "kept"})
