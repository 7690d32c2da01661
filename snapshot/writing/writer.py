"""The writer of a run: chunks of elements become shards; shards and a state become a commit.

At its end the writer adds the index of the batches, and with user shards the order of the rows.

A writer is one process, which without workers is the caller's. What it has written and not yet
committed is logged beside the shards; a process that takes a dead writer's place makes a
`RunWriter` of the same name and continues after the last chunk in that log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tundish.errors import SnapshotError, SnapshotWriteError, SpecError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.encoding.forms import INDEX
from tundish.snapshot.failpoints import reach
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.files.store import open_store
from tundish.snapshot.index import index_bytes, npy_header, order_blocks, read_batch
from tundish.snapshot.manifest import Manifest, ManifestRun
from tundish.snapshot.records import CheckedFile, JournalRecord, ShardRecord, StoredError
from tundish.snapshot.run import Prefix, read_run, run_table
from tundish.snapshot.writing.pending import Pending

if TYPE_CHECKING:
    import numpy as np

    from tundish.snapshot.encoding.forms import Columns
    from tundish.snapshot.files.store import Store


MIB = 1 << 20


class RunWriter:
    """One writer of a run.

    Parameters
    ----------
    path, key, run : str
        The run's snapshot path, key and name; its ``run.json`` exists.
    name : str
        The writer's name, 8 hex digits: part of the names of its shards.
    compression : {None, "lz4", "zstd", "zstd:LEVEL"}
        Compression of the batches.
    shard_bytes : int
        The size at which a shard is sealed.
    storage_options : mapping, optional
        Options of a remote filesystem.
    sync_bytes : int, optional
        The number of bytes of a shard after which they are flushed to disk, so that sealing it does not wait for all of
        them; 0: only when it is sealed.
    """

    def __init__(
        self,
        path: str,
        key: str,
        run: str,
        *,
        name: str,
        compression: str | None,
        shard_bytes: int,
        storage_options: Mapping[str, Any] | None = None,
        sync_bytes: int = 32 * MIB,
    ) -> None:
        self.key, self.run, self.name, self.compression = key, run, name, compression
        self._catalog = Catalog(path, storage_options)
        self._keys = open_store(path, storage_options).subfolder(key)
        self._store = self._keys.subfolder(f"runs/{run}")
        self._pending = Pending(
            self._store, run, name, compression, shard_bytes=shard_bytes, sync_bytes=sync_bytes
        )
        self._records = self._next = 0
        self._known = False
        self._failed: SnapshotWriteError | None = None
        with self._consistent():
            pass

    def write(
        self,
        start: int,
        pieces: Sequence[Columns],
        errors: Sequence[StoredError] = (),
        shards: np.ndarray | None = None,
    ) -> int:
        """Write a chunk; one that was written before is left unchanged.

        Parameters
        ----------
        start : int
            The number of its first element.
        pieces : sequence of Columns
            The elements that did not fail, in order.
        errors : sequence of StoredError
            The elements that failed.
        shards : numpy.ndarray of shape (rows,), optional
            The user shard of each row.

        Returns
        -------
        int
            The size of the chunk.

        Raises
        ------
        SpecError
            The elements cannot be stored together with earlier ones; nothing of them was written.
        SnapshotWriteError
            The disk is full, or fails. What was not committed is lost, and the writer unusable.
        """
        with self._consistent():
            if start < self._next:
                return 0
            known = self._pending.chunks.get(start)
            return known.bytes if known else self._pending.add(start, pieces, errors, shards)

    def seal(self) -> list[ShardRecord]:
        """Close and publish the open shards.

        Returns
        -------
        list of Shard
            All shards that are published and not yet committed.
        """
        with self._consistent():
            self._pending.seal_all()
            return [shard for _, shard in sorted(self._pending.sealed.items())]

    def commit(
        self,
        n: int,
        shards: Sequence[ShardRecord],
        next: int,  # noqa: A002 - its name in the journal
        state: Any,
        counts: Mapping[str, int],
    ) -> None:
        """Commit shards: the run's elements up to `next` are durable from here on.

        Parameters
        ----------
        n : int
            The number of the journal record. An existing one must be equal.
        shards : sequence of ShardRecord
            The result of `seal`.
        next : int
            The first element that is not in the run.
        state : JSON value
            The upstream's state there; None if it has none.
        counts : mapping of str to int
            Sums over the run.

        Raises
        ------
        SnapshotError
            The shards and errors are not the elements from the last commit up to `next`, or another
            process has written to this run.
        SnapshotWriteError
            As from `write`.
        """
        with self._consistent():
            if n < self._records:
                self._check_same(n, shards, next)
                return
            pending = self._pending
            errors = [pending.errors[k] for k in sorted(pending.errors) if k < next]
            self._check(n, shards, next, len(errors))
            record = JournalRecord(
                n,
                tuple(shards),
                tuple(pending.new_forms()),
                tuple(errors),
                next,
                self._stored_state(n, state),
                dict(counts),
            )
            # From here the record may be on disk whatever happens, so these files stay.
            pending.let_stand(shards)
            if not self._store.create(f"journal/{n:08d}.json", record.to_bytes(), "journal"):
                self._check_same(n, shards, next)
            self._records, self._next = n + 1, next
            pending.forget(next, shards)
            reach("writer.committed")

    def finish(self, manifest_fields: Mapping[str, Any], replaces: Sequence[str] = ()) -> bool:
        """Finish the run: write its index and order, then publish the snapshot's manifest.

        Parameters
        ----------
        manifest_fields : mapping
            Fields of `Manifest`: ``content`` (by default the run), ``element_spec``, ``marks``, ``inputs``,
            ``created``, ``library``. The others follow from the journal.
        replaces : sequence of str
            The runs of the complete snapshot to replace, if it is still the same.

        Returns
        -------
        bool
            False if another run was published before. The manifest of a part is written to its run,
            to be joined with those of the others.

        Raises
        ------
        SnapshotError
            Something was written and not committed.
        SnapshotWriteError
            As from `write`.
        """
        with self._consistent():
            if self._pending.chunks or self._pending.sealed:
                raise SnapshotError(
                    f"run {self.run} has elements that are written and not committed: "
                    "commit them before the run is finished"
                )
            prefix = read_run(self._keys, self.run)
            if (prefix.records, prefix.next) != (self._records, self._next):
                raise prefix.problem or self._taken(self._records)
            won = self._is_published(prefix)
            if not won:  # one that lost has an index too: so `gc` knows that it came to its end
                won = self._publish(prefix, manifest_fields, list(replaces))
            self._pending.close()
            self._catalog.clean(self.key)
            reach("writer.finished")
            return won

    def abandon(self) -> None:
        """Remove uncommitted files; the writer is unusable afterwards."""
        if self._failed is None:
            self._failed = SnapshotWriteError(self._store.root, "it was abandoned", self._next)
            self._pending.remove()

    # -- parts of these --------------------------------------------------------------------------

    @contextmanager
    def _consistent(self) -> Iterator[None]:
        """Run a step that must be complete: after an interruption, the next step starts from journal and log."""
        if self._failed is not None:
            raise self._failed
        try:
            if not self._known:
                prefix = read_run(self._keys, self.run)
                self._records, self._next = prefix.records, prefix.next
                self._pending.load(prefix)
                self._known = True
            yield
        except SpecError:  # was found before anything was written
            raise
        except OSError as problem:
            if isinstance(problem, SnapshotError):
                raise
            self._failed = SnapshotWriteError.of(problem, self._store.root, self._next)
            self._pending.remove()
            raise self._failed from problem
        except BaseException:
            self._known = False
            self._pending.let_go()
            raise

    def _check(self, n: int, shards: Sequence[ShardRecord], upto: int, errors: int) -> None:
        """Check that a record would be correct: the elements up to `upto`, each once."""
        if n != self._records:
            raise SnapshotError(
                f"run {self.run} has {self._records} commits, so {n} is not the next"
            )
        unknown = [shard.file for shard in shards if self._pending.sealed.get(shard.file) != shard]
        if unknown:
            raise SnapshotError(
                f"{', '.join(unknown)} of run {self.run}: not sealed by this writer"
            )
        rows = sum(shard.rows for shard in shards)
        if rows + errors != upto - self._next:
            raise SnapshotError(
                f"run {self.run} has elements {self._next} up to {upto} to commit, and its shards have "
                f"{rows} of them, {errors} failed"
            )

    def _check_same(self, n: int, shards: Sequence[ShardRecord], upto: int) -> None:
        """Check that the existing record equals the one that would be written.

        If a writer died after writing it, its successor has none of the record's shards to seal.
        """
        name = f"journal/{n:08d}.json"
        there = JournalRecord.from_bytes(self._store.read(name), self._store.shown(name))
        ours = all(f"-{self.name}.arrow" in shard.file for shard in there.shards)
        same = not shards or there.shards == tuple(shards)
        if there.holder is not None or there.next != upto or not (ours and same):
            raise self._taken(n)

    def _stored_state(self, n: int, state: Any) -> CheckedFile | None:
        if state is None:
            return None
        file, data = f"state/{n:08d}.json", json.dumps(state).encode()
        if not self._store.create(file, data, "state") and self._store.read(file) != data:
            self._store.replace(file, data)  # of a commit that died before its record
        return CheckedFile.of(file, data)

    def _taken(self, n: int) -> SnapshotError:
        path = self._store.shown(f"journal/{n:08d}.json")
        return SnapshotError(f"{path} was written by another process: this run was taken over")

    def _is_published(self, prefix: Prefix) -> bool | None:
        """Return True if the published manifest is of this run; None if there is no manifest."""
        if prefix.header.part is not None:
            return True if self._store.size("manifest.json") else None
        there = self._catalog.manifest(self.key)
        return None if there is None else [run.run for run in there.runs] == [self.run]

    def _publish(self, prefix: Prefix, fields: Mapping[str, Any], replaces: list[str]) -> bool:
        stored = finish_run(self._keys, prefix)
        derived = {
            "key": self.key,
            "content": self.run,
            "runs": (stored,),
            "rows": stored.rows,
            "bytes": prefix.bytes,
            "compression": self.compression and self.compression.partition(":")[0],
            "user_shards": prefix.user_shards,
        }
        manifest = Manifest(**{**derived, **fields})
        if prefix.header.part is not None:
            return self._store.create("manifest.json", manifest.to_bytes(), "manifest")
        there = self._catalog.manifest(self.key) if replaces else None
        if there is not None and [run.run for run in there.runs] == replaces:
            self._catalog.replace(self.key, replace(manifest, generation=there.generation + 1))
            return True
        return self._catalog.publish(self.key, manifest) or bool(self._is_published(prefix))


INDEX_FILE, ORDER_FILE = "index.arrow", "order.npy"


def finish_run(keys: Store, prefix: Prefix) -> ManifestRun:
    """Write ``index.arrow`` and, with user shards, ``order.npy``; existing ones are equal and kept.

    Parameters
    ----------
    keys : Store
        The store of the key's folder.
    prefix : Prefix
        All of the run.

    Returns
    -------
    ManifestRun
        The run's entry for the manifest.
    """
    store = keys.subfolder(f"runs/{prefix.run}")
    order = None
    if prefix.user_shards:
        blocks = order_blocks(prefix.entries, numbers_in(store, prefix), prefix.next)
        order = _written(store, ORDER_FILE, _npy(blocks, prefix.next), "order")
    index = _written(
        store, INDEX_FILE, iter([index_bytes(prefix.entries, run_table(prefix))]), "index"
    )
    return ManifestRun(prefix.run, prefix.next, prefix.records - 1, index, order)


def numbers_in(store: Store, prefix: Prefix) -> Callable[[np.void], np.ndarray]:
    """Return a function that returns the element numbers of an entry, for a run with user shards.

    Parameters
    ----------
    store : Store
        The store of the run's folder.
    prefix : Prefix
        The run's durable prefix.
    """
    schemas = [pa.ipc.read_schema(pa.py_buffer(form)) for form in prefix.forms]

    def numbers(entry: np.void) -> np.ndarray:
        shard = prefix.shards[entry["shard"]]
        data = read_batch(store, shard.file, entry)
        schema = schemas[shard.form]
        # Of compressed batches only this column is decompressed.
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(INDEX)])
        reader = pa.ipc.open_stream(
            pa.py_buffer(schema.serialize().to_pybytes() + data), options=options
        )
        found: np.ndarray = reader.read_next_batch().column(0).to_numpy()
        return found

    return numbers


def _npy(blocks: Iterator[np.ndarray], rows: int) -> Iterator[bytes]:
    yield npy_header(rows)
    for block in blocks:
        yield block.tobytes()


def _written(store: Store, name: str, pieces: Iterator[bytes], step: str) -> CheckedFile:
    """Write a file that follows from the journal, replacing what a dead process left of it."""
    reach(f"{step}.begin")
    store.remove(f"{name}.tmp")
    store.remove(name)  # no manifest names it yet
    sink, crc = store.sink(name, step), 0
    try:
        for piece in pieces:
            sink.write(piece)
            crc = crc32(piece, crc)
        size = sink.offset
        reach(f"{step}.written")
        sink.publish()
    finally:
        sink.abandon()
    return CheckedFile(name, size, crc)
