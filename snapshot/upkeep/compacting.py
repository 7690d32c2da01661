"""Compaction: a complete snapshot rewritten in fewer and larger files."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tundish.errors import IncompleteSnapshotError, SnapshotError, SnapshotWriteError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.encoding.forms import INDEX
from tundish.snapshot.finished import read_finished
from tundish.snapshot.index import read_batch
from tundish.snapshot.lease import Holder, Lease, holder_of, lease_name, take
from tundish.snapshot.records import (
    JournalRecord,
    RunHeader,
    ShardRecord,
    StoredError,
    append_record,
)
from tundish.snapshot.run import read_run
from tundish.snapshot.writing.shardfile import ShardFile, Staging, options_of
from tundish.snapshot.writing.writer import finish_run

if TYPE_CHECKING:
    import numpy as np

    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import Manifest
    from tundish.snapshot.run import Prefix

MIB = 1 << 20
_NAME = "compact"


@dataclass(frozen=True)
class Compacted:
    """A snapshot that was compacted.

    Parameters
    ----------
    key : str
        The snapshot's key.
    before, after : int
        The number of shards before and after.
    bytes : int
        The total size of its shards.
    generation : int
        The number of times it was compacted.
    """

    key: str
    before: int
    after: int
    bytes: int
    generation: int


class HeldSnapshotError(SnapshotError):
    """A process is writing the snapshot."""


def compact(
    path: str | os.PathLike[str],
    *,
    shard_bytes: int = 256 * MIB,
    key: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[Compacted]:
    """Rewrite complete snapshots in fewer files; those with no more files than needed are left alone.

    Batches are copied as they are, to a new run, whose manifest then replaces the
    old one. Elements, order and name of the contents stay the same, so checkpoints stay valid. The old
    runs are kept for their readers, until `gc`; there must be disk space for both.

    Parameters
    ----------
    path : str or os.PathLike
        The path given to ``snapshot``.
    shard_bytes : int, default 256 MiB
        The size at which a shard is closed and the next one begun.
    key : str, optional
        Only this pipeline; default: all that are complete.
    storage_options : mapping, optional
        For a remote path.

    Returns
    -------
    list of Compacted
        The snapshots that were compacted.

    Raises
    ------
    IncompleteSnapshotError
        There is no complete snapshot of `key`.
    SnapshotCorruptError
        A batch is damaged: its file and first element. The snapshot is unchanged.
    SnapshotError
        A process is writing the snapshot anew (``mode="write"``). The snapshot is unchanged.
    SnapshotWriteError
        There is not enough space. The snapshot is unchanged.
    ValueError
        `shard_bytes` is not positive.

    Examples
    --------
    >>> compact("/there/is/nothing")
    []
    """
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes={shard_bytes} must be positive")
    catalog = Catalog(path, storage_options)
    done, refused = [], None
    for one in catalog.keys() if key is None else [key]:
        manifest = catalog.manifest(one)
        if manifest is None and key is not None:
            raise IncompleteSnapshotError(f"{catalog.store.shown(one)} has no complete snapshot")
        if manifest is None or _is_compact(_runs(catalog, manifest), shard_bytes):
            continue
        try:
            done += _compacted_alone(catalog, one, shard_bytes)
        except HeldSnapshotError as error:  # the others first
            refused = error
    if refused is not None:
        raise refused
    return done


def _runs(catalog: Catalog, manifest: Manifest) -> list[Prefix]:
    return [read_finished(catalog.at(manifest.key), entry) for entry in manifest.runs]


def _is_compact(runs: list[Prefix], shard_bytes: int) -> bool:
    return len(runs) == 1 and len(runs[0].shards) <= _needed(runs, shard_bytes)


def _compacted_alone(catalog: Catalog, key: str, shard_bytes: int) -> list[Compacted]:
    """Compact a snapshot as its only writer: otherwise each of two could replace what the other has published."""
    lease = take(catalog.store, key, "")
    if lease is None:
        holder = holder_of(catalog.store, lease_name(key)) or "another process"
        raise HeldSnapshotError(
            f"{catalog.store.shown(key)} is being written by {holder}: compact it when that has ended"
        )
    try:
        manifest = catalog.manifest(key)
        return [] if manifest is None else _compacted(catalog, manifest, shard_bytes, lease)
    finally:
        lease.release()


def _compacted(
    catalog: Catalog, manifest: Manifest, shard_bytes: int, lease: Lease
) -> list[Compacted]:
    store = catalog.at(manifest.key)
    runs = _runs(catalog, manifest)
    before = sum(len(run.shards) for run in runs)
    if _is_compact(runs, shard_bytes):
        return []
    free = store.free_bytes()
    if free is not None and free < manifest.bytes:
        problem = f"{manifest.bytes:,} bytes are to be copied, but there is room for {free:,}"
        raise SnapshotWriteError(store.shown(), problem, manifest.rows)
    made = _copy(catalog, manifest, runs, shard_bytes, lease)
    stored = finish_run(store, made)
    after = replace(manifest, runs=(stored,), bytes=made.bytes, generation=manifest.generation + 1)
    catalog.replace(manifest.key, after)
    return [Compacted(manifest.key, before, len(made.shards), made.bytes, after.generation)]


def _needed(runs: list[Prefix], shard_bytes: int) -> int:
    """Return the least number of shards: each has elements of one user shard and one form."""
    held: dict[tuple[int | None, int], int] = {}
    for run in runs:
        for shard in run.shards:
            kind = shard.user_shard, shard.form
            held[kind] = held.get(kind, 0) + shard.bytes
    return sum(-(-size // shard_bytes) for size in held.values())


def _copy(
    catalog: Catalog, manifest: Manifest, runs: list[Prefix], shard_bytes: int, lease: Lease
) -> Prefix:
    """Copy the elements of all runs to a new run, committed by one record."""
    key, store = manifest.key, catalog.at(manifest.key)
    header = RunHeader(
        key,
        datetime.now(UTC).isoformat(),
        version("tundish"),
        Holder.here().to_json(),
        manifest.compression,
        runs[0].header.seeds,
        options={"compacted": [run.run for run in runs]},
        inputs=runs[0].header.inputs,
    )
    run = uuid.uuid4().hex
    store.create(f"runs/{run}/run.json", header.to_bytes(), "header")
    copying = _Copying(store, run, manifest.compression, shard_bytes, lease)
    try:
        first = 0
        errors: list[StoredError] = []
        for prefix in runs:
            copying.add(prefix, first)
            errors += [e._replace(n=first + n) for n, e in sorted(prefix.errors.items())]
            first += prefix.next
        record = JournalRecord(
            0, tuple(copying.end()), tuple(copying.forms), tuple(errors), first, None, {}
        )
        append_record(store, run, record)
        return read_run(store, run)
    except BaseException as problem:
        copying.abandon()
        store.remove_tree(f"runs/{run}")
        if isinstance(problem, OSError):
            raise SnapshotWriteError.of(problem, store.shown(), manifest.rows) from problem
        raise


class _Copying:
    """Copies batches to new shards, one open at a time."""

    def __init__(
        self, store: Store, run: str, compression: str | None, shard_bytes: int, lease: Lease
    ) -> None:
        self.forms: list[bytes] = []
        self._lease = lease
        self._keys, self._shard_bytes = store, shard_bytes
        self._options = options_of(compression)
        self._staging = Staging(store.subfolder(f"runs/{run}"), run, _NAME)
        self._shards: list[ShardRecord] = []
        self._open: ShardFile | None = None

    def add(self, prefix: Prefix, first: int) -> None:
        """Copy all of a run; its elements are numbered from `first` on."""
        for number, entry, shard in in_files(prefix):
            form = self._form(prefix.forms[shard.form])
            data = read_batch(self._keys, f"runs/{prefix.run}/{shard.file}", entry)
            schema = pa.ipc.read_schema(pa.py_buffer(self.forms[form]))
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
            if shard.user_shard is not None and first:
                batch = moved(batch, first)
            self._into(shard.user_shard, form, schema).append(first + number, batch)

    def end(self) -> list[ShardRecord]:
        """Close the last file; return all shards."""
        self._close()
        self._staging.remove()
        self._renew()
        return self._shards

    def abandon(self) -> None:
        """Remove the file that is not yet a shard."""
        if self._open is not None:
            self._open.abandon()
        self._staging.remove()

    def _form(self, schema: bytes) -> int:
        if schema not in self.forms:
            self.forms.append(schema)
        return self.forms.index(schema)

    def _into(self, user_shard: int | None, form: int, schema: Any) -> ShardFile:
        """Return the file for the next batch, which may be the open one."""
        now = self._open
        kind = (user_shard, form)
        if now is not None and (now.user_shard, now.form) == kind and now.bytes < self._shard_bytes:
            return now
        self._close()
        file = f"shard-{len(self._shards):06d}-{_NAME}.arrow"
        self._open = ShardFile(
            self._staging.store.sink(file),
            file,
            schema,
            self._options,
            user_shard=user_shard,
            form=form,
            sync_bytes=32 * MIB,
        )
        return self._open

    def _renew(self) -> None:
        """Keep the lease, which machines elsewhere take for stale after a minute."""
        if not self._lease.refresh():
            raise SnapshotError(
                f"{self._keys.shown()} is being written by another process since: the snapshot is unchanged"
            )

    def _close(self) -> None:
        if self._open is not None:
            shard = self._open.finish()
            self._open.publish()
            self._staging.deliver(shard.file)
            self._staging.discard(shard.file)
            self._shards.append(shard)
            self._open = None
            self._renew()


def in_files(prefix: Prefix) -> Iterator[tuple[int, np.void, ShardRecord]]:
    """Yield the batches of a run in the order of copying: (first element, entry, its shard).

    Those of one user shard are adjacent, so that one file is open at a time.
    """
    shards = prefix.shards
    kinds = [(-1 if s.user_shard is None else s.user_shard, s.form) for s in shards]
    for entry in sorted(prefix.entries, key=lambda e: (*kinds[e["shard"]], e["start"])):
        yield int(entry["start"]), entry, shards[entry["shard"]]


def moved(batch: pa.RecordBatch, by: int) -> pa.RecordBatch:
    """Return a batch with its element numbers increased by `by`."""
    at = batch.schema.get_field_index(INDEX)
    numbers = pa.array(batch.column(at).to_numpy() + by)
    columns = [numbers if k == at else column for k, column in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
