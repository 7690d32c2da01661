"""Verification of every byte of a snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tundish.errors import SnapshotCorruptError, SnapshotError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.encoding.forms import Form, decode
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.finished import read_indexed
from tundish.snapshot.records import JournalRecord, record_name
from tundish.snapshot.run import entries_of, read_run

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import Manifest, ManifestRun
    from tundish.snapshot.records import ShardRecord

PIECE = 16 << 20


@dataclass(frozen=True)
class Problem:
    """A damage found by `verify`.

    Parameters
    ----------
    file : str
        The damaged file.
    batch : int or None
        The first element of the damaged batch, if it is a batch.
    problem : str
        What was found and what was expected.
    """

    file: str
    batch: int | None
    problem: str

    @classmethod
    def of(cls, error: Exception, file: str) -> Problem:
        """Make a problem from an error; `file` is used if the error names none."""
        if isinstance(error, SnapshotCorruptError):
            return cls(error.path, error.batch, error.problem)
        return cls(getattr(error, "path", None) or file, None, str(error))

    def __str__(self) -> str:
        where = "" if self.batch is None else f": the batch that starts at element {self.batch}"
        return f"{self.file}{where}: {self.problem}"


def verify(
    path: str | os.PathLike[str],
    *,
    full: bool = True,
    key: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[Problem]:
    """Compare everything under a path with the records of what was written, and return all damage.

    Parameters
    ----------
    path : str or os.PathLike
        The path given to ``snapshot``.
    full : bool, default True
        True to read every batch and compare its checksum. False to check only the files, their sizes, and the
        records of the batches' locations.
    key : str, optional
        The key of a pipeline, to check only that one. By default all are checked.
    storage_options : mapping, optional
        Options of the filesystem, for a remote path.

    Returns
    -------
    list of Problem
        Empty if nothing is damaged.

    Examples
    --------
    >>> verify("/there/is/nothing")
    []
    """
    catalog = Catalog(path, storage_options)
    keys = catalog.keys() if key is None else [key]
    return [problem for one in keys for problem in dict.fromkeys(_of_key(catalog, one, full=full))]


def _of_key(catalog: Catalog, key: str, *, full: bool) -> Iterator[Problem]:
    store = catalog.at(key)
    try:
        catalog.pipeline(key)
    except SnapshotError as error:
        yield Problem.of(error, store.shown("pipeline.json"))
    manifest: Manifest | None = None
    try:
        manifest = catalog.manifest(key)
    except SnapshotError as error:
        yield Problem.of(error, store.shown("manifest.json"))
    named = {} if manifest is None else {entry.run: entry for entry in manifest.runs}
    for run in dict.fromkeys([*named, *catalog.runs(key)]):
        yield from _of_run(store, run, named.get(run), full=full)


def _of_run(store: Store, run: str, entry: ManifestRun | None, *, full: bool) -> Iterator[Problem]:
    """Yield the problems of one run: first of its records, then of its shards."""
    records: list[JournalRecord] = []
    for found in _of_journal(store, run):
        if isinstance(found, Problem):
            yield found
        else:
            records.append(found)
    shards = [shard for record in records for shard in record.shards]
    forms = tuple(form for record in records for form in record.forms)
    entries = entries_of(shards)
    header = store.size(f"runs/{run}/run.json")
    try:
        prefix = read_run(store, run)
        if prefix.problem is not None and not _is_of(prefix.problem, shards):
            yield Problem.of(prefix.problem, store.shown(f"runs/{run}"))
    except SnapshotError as error:
        if entry is not None or header is not None or shards:  # else it was never begun
            yield Problem.of(error, store.shown(f"runs/{run}/run.json"))
    if entry is not None:
        try:
            indexed = read_indexed(store, entry)
            shards, forms, entries = list(indexed.shards), indexed.forms, indexed.entries
        except SnapshotError as error:
            yield Problem.of(error, store.shown(f"runs/{run}/{entry.index.file}"))
        if entry.order is not None:
            yield from _of_file(store, f"runs/{run}/{entry.order.file}", entry.order)
    for number, shard in enumerate(shards):
        inside = np.sort(entries[entries["shard"] == number], order="offset")
        form = forms[shard.form] if full and shard.form < len(forms) else None
        yield from _of_shard(store, f"runs/{run}/{shard.file}", shard, inside, form)


def _is_of(problem: SnapshotError, shards: list[ShardRecord]) -> bool:
    """Return True if a problem concerns one of the shards, which are examined separately."""
    return str(getattr(problem, "path", "")).endswith(tuple(f"/{shard.file}" for shard in shards))


def _of_journal(store: Store, run: str) -> Iterator[Problem | JournalRecord]:
    """Yield the valid journal records, and the problems of the others and of the state files."""
    names = [name for name in store.list(f"runs/{run}/journal") if name.endswith(".json")]
    last = max((int(name[:-5]) for name in names if name[:-5].isdecimal()), default=-1)
    for n in range(last + 1):
        name = record_name(run, n)
        path = store.shown(name)
        try:
            data = store.read(name)
            if not data and n == last:  # a name that was taken, and its writer died
                return
            record = JournalRecord.from_bytes(data, path)
        except FileNotFoundError:
            yield Problem(path, None, f"is missing, and number {last} is there")
            continue
        except SnapshotError as error:
            yield Problem.of(error, path)
            continue
        yield record
        if record.state is not None:
            yield from _of_file(store, f"runs/{run}/{record.state.file}", record.state)


def _of_file(store: Store, name: str, checked: Any) -> Iterator[Problem]:
    """Yield the problems of a file with known size and checksum; reads in pieces, since it may be large."""
    size, crc = store.size(name), 0
    if size is None:
        yield Problem(store.shown(name), None, "is missing")
        return
    for offset in range(0, size, PIECE):
        crc = crc32(store.read_range(name, offset, PIECE), crc)
    if (size, crc) != (checked.bytes, checked.crc32):
        problem = f"has {size:,} bytes with crc32 {crc}, not {checked.bytes:,} with {checked.crc32}"
        yield Problem(store.shown(name), None, problem)


def _of_shard(
    store: Store, name: str, shard: ShardRecord, entries: np.ndarray, schema: bytes | None
) -> Iterator[Problem]:
    """Yield the problems of a shard, and of its batches if its schema is known."""
    size = store.size(name)
    if size is None:
        yield Problem(store.shown(name), None, "is missing")
        return
    if size != shard.bytes:
        problem = f"has {size:,} bytes, and {shard.bytes:,} were written"
        yield Problem(store.shown(name), None, problem)
    if schema is not None:
        yield from _of_batches(store, name, shard, entries, schema)


def _of_batches(
    store: Store, name: str, shard: ShardRecord, entries: np.ndarray, serialised: bytes
) -> Iterator[Problem]:
    """Yield the problems of every batch, by its checksum, and of the bytes around the batches."""
    schema = pa.ipc.read_schema(pa.py_buffer(serialised))
    form = Form.from_schema(schema)
    good = True
    for entry in entries:
        data = store.read_range(name, int(entry["offset"]), int(entry["length"]))
        problem = _of_batch(data, entry, schema, form)
        if problem:
            good = False
            yield Problem(store.shown(name), int(entry["start"]), problem)
    if not good or not len(entries):
        return
    if shard.frame is not None:
        first, last = int(entries["offset"][0]), int(entries["offset"][-1] + entries["length"][-1])
        frame = crc32(store.read_range(name, 0, first))
        frame = crc32(store.read_range(name, last, shard.bytes - last), frame)
        if frame != shard.frame:
            problem = "the bytes around its batches, which only other tools read, were changed"
            yield Problem(store.shown(name), None, problem)


def _of_batch(data: bytes, entry: np.void, schema: pa.Schema, form: Form) -> str:
    """Describe the problem of a batch's bytes; "" if there is none."""
    if len(data) != entry["length"]:
        return f"{len(data):,} of its {entry['length']:,} bytes are there"
    found = crc32(data)
    if found != entry["crc32"]:
        return f"its bytes have crc32 {found}, and {entry['crc32']} was written"
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        batch.validate(full=True)
        decode(batch, form)
    except (pa.ArrowException, ValueError, OSError) as error:
        return f"its bytes are as they were written, but not a batch: {error}"
    if batch.num_rows != entry["rows"]:
        return f"has {batch.num_rows} rows, and {entry['rows']} were written"
    return ""
