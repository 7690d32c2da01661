"""Uncommitted work of a writer: open shards, sealed shards, and the log of both."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa

from tundish.errors import SnapshotCorruptError
from tundish.snapshot.encoding.forms import INDEX, Columns, Form, encode
from tundish.snapshot.failpoints import reach
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.writing.log import LoggedChunk, Noted, WriterLog
from tundish.snapshot.writing.rows import by_shard, segments
from tundish.snapshot.writing.shardfile import ShardFile, Staging, options_of, parts_of

if TYPE_CHECKING:
    import numpy as np

    from tundish.snapshot.files.store import Store
    from tundish.snapshot.records import BatchRecord, ShardRecord, StoredError
    from tundish.snapshot.run import Prefix


def _open_limit() -> int:
    """Return how many shards are written at a time, each with a descriptor."""
    soft = psutil.Process().rlimit(psutil.RLIMIT_NOFILE)[0] if psutil.LINUX else 256
    return 512 if soft < 0 else max(16, min(512, soft // 4))  # less than 0: unlimited


OPEN_SHARDS = _open_limit()
"""The most user shards that are open at once; of more, the one not written for longest is sealed."""
INDEX_FIELD = pa.field(INDEX, pa.int64(), nullable=False)


class Pending:
    """The part of a run that is not in its journal yet.

    Parameters
    ----------
    store : Store
        The store of the run's folder.
    run, name : str
        The names of the run and of the writer.
    compression : str or None
        As for `options_of`.
    shard_bytes, sync_bytes : int
        As for `RunWriter`.

    Attributes
    ----------
    chunks : dict of int to LoggedChunk
        By first element.
    sealed : dict of str to ShardRecord
        Published shards, by file name.
    errors : dict of int to StoredError
        Elements that failed.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        name: str,
        compression: str | None,
        *,
        shard_bytes: int,
        sync_bytes: int,
    ) -> None:
        self.chunks: dict[int, LoggedChunk] = {}
        self.sealed: dict[str, ShardRecord] = {}
        self.errors: dict[int, StoredError] = {}
        self._target, self._name = store, name
        self._staging = Staging(store, run, name)
        self._options = options_of(compression)
        self._shard_bytes, self._sync_bytes = shard_bytes, sync_bytes
        self._log_path = self._staging.path(f"writer-{name}.tmp.log")
        self._log = WriterLog(self._log_path)
        self._open: OrderedDict[int | None, ShardFile] = OrderedDict()
        self._forms: list[bytes] = []
        self._form: Form | None = None
        self._indexed = False
        self._journalled = self._number = 0

    # -- chunks ----------------------------------------------------------------------------------

    def add(
        self,
        start: int,
        pieces: Sequence[Columns],
        errors: Sequence[StoredError],
        shards: np.ndarray | None,
    ) -> int:
        """Write a chunk; return its size in bytes."""
        pieces = [piece for piece in pieces if piece.rows]
        batches = []
        if pieces:
            form = self._form_of(pieces, indexed=shards is not None)
            batches = list(encoded(form, start, pieces, [error.n for error in errors], shards))
        written = tuple(self._append(*batch, len(self._forms) - 1) for batch in batches)
        chunk = LoggedChunk(
            start, sum(batch.length for _, batch in written), written, tuple(errors)
        )
        self._take(chunk)
        return chunk.bytes

    def _form_of(self, pieces: Sequence[Columns], *, indexed: bool) -> Form:
        """Return the last chunk's form, or a wider one that is used from now on."""
        form = Form.of(pieces) if self._form is None else self._form.widened(pieces)
        if form != self._form or indexed != self._indexed:
            schema = form.schema.append(INDEX_FIELD) if indexed else form.schema
            self._add_form(len(self._forms), schema.serialize().to_pybytes())
        return form

    def _add_form(self, number: int, schema: bytes) -> None:
        self._log.form(number, schema)
        self._forms.append(schema)
        self._use_last_form()

    def _use_last_form(self) -> None:
        if self._forms:
            schema = read_schema(self._forms[-1])
            self._form, self._indexed = Form.from_schema(schema), INDEX in schema.names

    def _append(
        self, user_shard: int | None, start: int, batch: pa.RecordBatch, form: int
    ) -> tuple[str, BatchRecord]:
        """Write a batch to its user shard's open file, or to a new one."""
        shard = self._open.get(user_shard)
        if shard is not None and shard.form != form:  # a file has one schema
            self._seal(shard)
            shard = None
        if shard is None:
            if len(self._open) >= OPEN_SHARDS:
                self._seal(next(iter(self._open.values())))
            shard = self._begin(user_shard, form)
        self._open.move_to_end(user_shard)
        written = shard.append(start, batch)
        reach("shard.batch")
        return shard.file, written

    def _begin(self, user_shard: int | None, form: int) -> ShardFile:
        file = f"shard-{self._number:06d}-{self._name}.arrow"
        self._number += 1
        self._log.opened(file, user_shard, form)
        shard = self._open[user_shard] = ShardFile(
            self._staging.store.sink(file),
            file,
            read_schema(self._forms[form]),
            self._options,
            user_shard=user_shard,
            form=form,
            sync_bytes=self._sync_bytes,
        )
        reach("shard.begin")
        return shard

    def _take(self, chunk: LoggedChunk) -> None:
        """Note that a chunk has been written completely."""
        self._log.chunk(chunk)
        self.chunks[chunk.start] = chunk
        self.errors.update((error.n, error) for error in chunk.errors)
        reach("shard.logged")
        for shard in [s for s in self._open.values() if s.bytes >= self._shard_bytes]:
            self._seal(shard)

    # -- sealing ---------------------------------------------------------------------------------

    def seal_all(self) -> None:
        """Close and publish every open shard."""
        for shard in list(self._open.values()):
            self._seal(shard)

    def _seal(self, open_shard: ShardFile) -> None:
        shard = open_shard.finish()
        self._log.sealed(shard)
        reach("shard.closed")
        open_shard.publish()
        self._sealed_now(shard)
        del self._open[shard.user_shard]

    def _sealed_now(self, shard: ShardRecord) -> None:
        self._staging.deliver(shard.file)
        self.sealed[shard.file] = shard
        reach("writer.sealed")

    # -- commits ---------------------------------------------------------------------------------

    def new_forms(self) -> list[bytes]:
        """Return the schemas that are in no journal record."""
        return self._forms[self._journalled :]

    def let_stand(self, shards: Sequence[ShardRecord]) -> None:
        """Leave sealed shards to the run, whatever happens to this writer."""
        for shard in shards:
            del self.sealed[shard.file]

    def forget(self, upto: int, shards: Sequence[ShardRecord]) -> None:
        """Drop committed work, which needs no log."""
        self._journalled = len(self._forms)
        self.chunks = {start: chunk for start, chunk in self.chunks.items() if start >= upto}
        self.errors = {n: error for n, error in self.errors.items() if n >= upto}
        for shard in shards:
            self._staging.discard(shard.file)
        if not self.chunks:
            self._log.remove()

    # -- beginnings and ends ---------------------------------------------------------------------

    def load(self, prefix: Prefix) -> None:
        """Start at the end of the journal, after taking over a dead writer's log."""
        self.chunks, self.sealed, self.errors = {}, {}, {}
        self._forms = list(prefix.forms)
        self._journalled = len(self._forms)
        self._use_last_form()
        here = self._staging.store.list()
        found = [name for name in {*here, *self._target.list()} if name.startswith("shard-")]
        self._number = max((int(name[6:12]) for name in found), default=-1) + 1
        if self._log_path.exists():
            self._adopt(Noted.read(self._log_path), prefix.next)
            reach("writer.adopt")
        kept = {*self.sealed, *(shard.file for shard in prefix.shards)}
        kept.update(f"{shard.file}.tmp" for shard in self._open.values())
        for name in here:
            if name not in kept and self._is_ours(name):
                self._staging.store.remove(name)
        for folder in ("journal", "state"):  # where a commit died
            for name in self._target.list(folder):
                if name.endswith(".tmp"):
                    self._target.remove(f"{folder}/{name}")

    def _is_ours(self, name: str) -> bool:
        """Return True if a file that nothing names was left by a dead predecessor of this writer."""
        if name.startswith("shard-"):
            return f"-{self._name}.arrow" in name
        return name.endswith(".tmp")

    def _adopt(self, noted: Noted, begin: int) -> None:
        """Continue from a dead writer's log: keep its sealed shards, copy the batches of its open ones.

        A new log replaces the old one when everything is copied, so this process may die, too.
        """
        self._log = WriterLog(self._staging.path(f"writer-{self._name}.new.tmp.log"))
        self._log.remove()
        for number, schema in sorted(noted.forms.items()):
            if number >= len(self._forms):
                self._add_form(number, schema)
        chunks = [chunk for chunk in noted.chunks if chunk.start >= begin]
        logged: dict[str, list[BatchRecord]] = defaultdict(list)
        for chunk in chunks:
            for file, batch in chunk.batches:
                logged[file].append(batch)
        for file, batches in logged.items():
            shard = noted.sealed.get(file)
            # It may have been sealed with batches of a chunk that was never whole.
            if shard is None or tuple(batches) != shard.batches:
                continue
            if self._staging.store.size(file) == shard.bytes:
                self._log.opened(file, shard.user_shard, shard.form)
                self._log.sealed(shard)
                self._sealed_now(shard)
        for chunk in chunks:
            moved = tuple(self._moved(file, batch, noted) for file, batch in chunk.batches)
            self._take(LoggedChunk(chunk.start, chunk.bytes, moved, chunk.errors))
        self._log.move(self._log_path)

    def _moved(self, file: str, batch: BatchRecord, noted: Noted) -> tuple[str, BatchRecord]:
        """Return the location of a dead writer's batch: the kept shard, or a copy."""
        if file in self.sealed:
            return file, batch
        user_shard, form = noted.opened[file]
        store = self._staging.store
        name = file if store.size(file) is not None else f"{file}.tmp"
        data = store.read_range(name, batch.offset, batch.length)
        if len(data) != batch.length or crc32(data) != batch.crc32:
            raise SnapshotCorruptError(store.shown(name), "is not what its log says", batch.start)
        content = pa.ipc.read_record_batch(pa.py_buffer(data), read_schema(self._forms[form]))
        return self._append(user_shard, batch.start, content, form)

    def let_go(self) -> None:
        """Close the files and keep them, for `load`."""
        for shard in self._open.values():
            shard.let_go()
        self._open.clear()
        self._log.close()

    def close(self) -> None:
        """Remove the writer's own files; everything is committed."""
        self._log.remove()
        self._staging.remove()

    def remove(self) -> None:
        """Remove everything that is not committed, as far as a failing disk allows."""
        for shard in self._open.values():
            with suppress(OSError):
                shard.abandon()
        self._open.clear()
        for file in self.sealed:
            with suppress(OSError):
                self._target.remove(file)
        self.sealed.clear()
        with suppress(OSError):
            self.close()


def encoded(
    form: Form,
    start: int,
    pieces: Sequence[Columns],
    failed: Sequence[int],
    shards: np.ndarray | None,
) -> Iterator[tuple[int | None, int, pa.RecordBatch]]:
    """Yield the batches of a chunk: (user shard, number of the first element, batch)."""
    if shards is None:
        for first, rows in segments(start, pieces, failed):
            for k, part in parts_of(encode(form, rows)):
                yield None, first + k, part
        return
    for shard, numbers, rows in by_shard(start, pieces, failed, shards):
        batch = encode(form, rows)
        columns = [*batch.columns, pa.array(numbers)]
        batch = pa.RecordBatch.from_arrays(columns, schema=batch.schema.append(INDEX_FIELD))
        for k, part in parts_of(batch):
            yield shard, int(numbers[k]), part


def read_schema(data: bytes) -> Any:
    """Parse the schema of a form from the journal."""
    return pa.ipc.read_schema(pa.py_buffer(data))
