"""A writer's unfinished files: one shard while it is written, and its temporary location.

pyarrow hands every buffer of a batch to `BufferFile`, which copies nothing; then they are written to the file
in one call. So the location and the checksum of each batch are known without reading it back.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tundish.errors import SnapshotError
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.files.store import LocalStore, Store
from tundish.snapshot.records import BatchRecord, ShardRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tundish.snapshot.files.local import LocalSink

MAGIC_BYTES = 8
MOST_BYTES = 256 << 20  # readers in other languages refuse a batch beyond


def options_of(compression: str | None) -> pa.ipc.IpcWriteOptions:
    """Return pyarrow's options for a compression: ``"lz4"``, ``"zstd"``, ``"zstd:LEVEL"`` or None.

    Compression uses no threads of pyarrow's, since the caller may be a training process.
    """
    codec: Any = None
    if compression is not None:
        name, _, level = compression.partition(":")
        codec = pa.Codec(name, int(level)) if level else name
    return pa.ipc.IpcWriteOptions(allow_64bit=True, use_threads=False, compression=codec)


def parts_of(batch: pa.RecordBatch, most: int = MOST_BYTES) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split a batch that is too large, down to single rows: yield (first row, part)."""
    if batch.nbytes <= most or batch.num_rows <= 1:
        yield 0, batch
        return
    half = batch.num_rows // 2
    for first, length in ((0, half), (half, batch.num_rows - half)):
        for inner, part in parts_of(batch.slice(first, length), most):
            yield first + inner, part


class BufferFile:
    """A file object for pyarrow that collects the buffers of one call, without a copy."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def write(self, data: Any) -> int:
        self.parts.append(data)
        return memoryview(data).nbytes

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def take(self) -> list[memoryview]:
        """Return the buffers since the last call."""
        parts, self.parts = self.parts, []
        return [memoryview(part).cast("B") for part in parts]


class ShardFile:
    """A shard that is being written.

    Parameters
    ----------
    sink : LocalSink
        Receives its bytes.
    file : str
        Its final name.
    schema : pyarrow.Schema
        The schema of every batch.
    options : pyarrow.ipc.IpcWriteOptions
        The options from `options_of`.
    user_shard : int or None
        The user shard of its elements.
    form : int
        The number of its batches' form.
    sync_bytes : int
        The number of bytes after which they are flushed to disk, so that the last sync is short; 0: never.
    """

    def __init__(
        self,
        sink: LocalSink,
        file: str,
        schema: pa.Schema,
        options: pa.ipc.IpcWriteOptions,
        *,
        user_shard: int | None = None,
        form: int = 0,
        sync_bytes: int = 0,
    ) -> None:
        self.file, self.user_shard, self.form = file, user_shard, form
        self.bytes = self.rows = 0
        self.batches: list[BatchRecord] = []
        self._sink, self._sync_bytes, self._synced = sink, sync_bytes, 0
        self._pieces, self._frame = BufferFile(), 0
        # Magic and schema are written with the first batch, so its range begins after them.
        self._head = MAGIC_BYTES + schema.serialize().size
        self._writer = pa.ipc.new_file(
            pa.PythonFile(self._pieces, mode="w"), schema, options=options
        )

    def append(self, start: int, batch: pa.RecordBatch) -> BatchRecord:
        """Write a batch whose first element is number `start`."""
        self._writer.write_batch(batch)
        pieces = self._pieces.take()
        offset = self.bytes or self._head
        length, crc = 0, 0
        skip = offset - self.bytes
        for piece in pieces:
            if skip:
                self._frame = crc32(piece[:skip], self._frame)
            own = piece[skip:]
            skip = max(skip - piece.nbytes, 0)
            length += own.nbytes
            crc = crc32(own, crc)
        self._pass_on(pieces)
        entry = BatchRecord(start, batch.num_rows, offset, length, crc)
        self.batches.append(entry)
        self.rows += entry.rows
        return entry

    def finish(self) -> ShardRecord:
        """Write the footer; return the shard's record. It is not yet published."""
        self._writer.close()
        footer = self._pieces.take()
        for piece in footer:
            self._frame = crc32(piece, self._frame)
        self._pass_on(footer)
        return ShardRecord(
            file=self.file,
            bytes=self.bytes,
            rows=self.rows,
            user_shard=self.user_shard,
            form=self.form,
            frame=self._frame,
            batches=tuple(self.batches),
        )

    def publish(self) -> None:
        """Make the file durable under its final name."""
        if not self._sink.publish():
            raise SnapshotError(f"{self._sink.target} is there already: its name was to be new")

    def abandon(self) -> None:
        """Close and remove it."""
        self._sink.abandon()

    def let_go(self) -> None:
        """Close the file and keep it."""
        self._sink.end()

    def _pass_on(self, pieces: Sequence[memoryview]) -> None:
        self._sink.writev(pieces)
        self.bytes += sum(piece.nbytes for piece in pieces)
        if self._sync_bytes and self.bytes - self._synced >= self._sync_bytes:
            self._sink.sync()
            self._synced = self.bytes


PIECE = 16 << 20


class Staging:
    """The folder in which shards are written before they are delivered to their run.

    For a local run it is the run's own folder. For a remote one it is a temporary local folder, so that another process
    can continue a dead writer's work there too; a shard is uploaded when it is sealed, and kept here until it is
    committed.

    Parameters
    ----------
    target : Store
        The store of the run's folder.
    run, name : str
        The names of the run and of the writer.
    """

    def __init__(self, target: Store, run: str, name: str) -> None:
        self._target = target
        self._apart = not target.local
        folder = Path(tempfile.gettempdir()) / f"tundish-{run}-{name}"
        self.store = LocalStore(folder if self._apart else target.root)
        if self._apart:
            folder.mkdir(mode=0o700, exist_ok=True)
            for other in folder.parent.glob(f"tundish-{run}-*"):
                if other != folder:  # of a process that was killed: this one has taken its run over
                    shutil.rmtree(other, ignore_errors=True)

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return Path(self.store.shown(name))

    def deliver(self, file: str) -> None:
        """Upload a file published here to the run, if it is remote."""
        if self._apart and self._target.size(file) != self.store.size(file):
            sink = self._target.sink(file)
            try:
                with self.path(file).open("rb", buffering=0) as source:
                    while data := source.read(PIECE):
                        sink.write(data)
                sink.publish()
            finally:
                sink.abandon()

    def discard(self, file: str) -> None:
        """Remove a local copy, once the run has the file."""
        if self._apart:
            self.store.remove(file)

    def remove(self) -> None:
        """Remove the folder, if it is a temporary one."""
        if self._apart:
            self.store.remove_tree()
