"""Lays out snapshots by hand, from the pages of the format and pyarrow: no writer is involved."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from tundish.snapshot.encoding.forms import INDEX, Columns, Form, columns_of, encode
from tundish.snapshot.files.store import open_store
from tundish.snapshot.index import index_bytes
from tundish.snapshot.manifest import Manifest, ManifestRun
from tundish.snapshot.records import (
    BatchRecord,
    CheckedFile,
    JournalRecord,
    RunHeader,
    ShardRecord,
    StoredError,
)
from tundish.snapshot.run import read_run, run_table

KEY = "0123456789abcdef"


@dataclass
class Run:
    """A run to be laid out.

    Parameters
    ----------
    elements : list
        Elements, and exceptions in place of those that failed.
    batch, shard, record : int
        Rows a batch, batches a shard, shards a journal record.
    shard_of : callable, optional
        The ``shard_func``.
    """

    name: str
    elements: list[Any]
    batch: int = 4
    shard: int = 3
    record: int = 2
    compression: str | None = None
    shard_of: Callable[[Any], int] | None = None
    _forms: list[Form] = field(default_factory=list)

    def numbered(self) -> list[tuple[int, Any]]:
        return [(n, e) for n, e in enumerate(self.elements) if not isinstance(e, Exception)]

    def errors(self) -> list[StoredError]:
        return [
            StoredError.of(n, e) for n, e in enumerate(self.elements) if isinstance(e, Exception)
        ]

    def chunks(self) -> list[tuple[int | None, list[list[tuple[int, Any]]]]]:
        """The shards: (user shard, batches of numbered elements)."""
        by_shard: dict[int | None, list[tuple[int, Any]]] = {}
        for n, element in self.numbered():
            user = None if self.shard_of is None else self.shard_of(element)
            by_shard.setdefault(user, []).append((n, element))
        found = []
        for user, rows in by_shard.items():
            batches: list[list[tuple[int, Any]]] = []
            for n, element in rows:
                gap = user is None and batches and batches[-1][-1][0] != n - 1
                if not batches or gap or len(batches[-1]) == self.batch:
                    batches.append([])
                batches[-1].append((n, element))
            found += [
                (user, batches[k : k + self.shard]) for k in range(0, len(batches), self.shard)
            ]
        return found

    def lay(self, folder: Path, *, finish: bool) -> ManifestRun | None:
        """Write it into the folder of the key."""
        root = folder / "runs" / self.name
        (root / "journal").mkdir(parents=True)
        header = RunHeader(KEY, "2026-01-01T00:00:00Z", "0", compression=self.compression)
        (root / "run.json").write_bytes(header.to_bytes())
        shards = [self._shard(root, k, *chunk) for k, chunk in enumerate(self.chunks())]
        self._journal(root, shards)
        if not finish:
            return None
        prefix = read_run(open_store(folder), self.name)
        assert prefix.next == len(self.elements)
        index = index_bytes(prefix.entries, run_table(prefix))
        (root / "index.arrow").write_bytes(index)
        order = None
        if self.shard_of is not None:
            order = self._order(root, prefix.entries)
        return ManifestRun(
            self.name, prefix.next, prefix.records - 1, CheckedFile.of("index.arrow", index), order
        )

    def _shard(
        self, root: Path, k: int, user: int | None, batches: list[list[tuple[int, Any]]]
    ) -> ShardRecord:
        pieces = [columns_of([element for _, element in batch]) for batch in batches]
        form = self._forms[-1].widened(pieces) if self._forms else Form.of(pieces)
        if form not in self._forms:
            self._forms.append(form)
        name = f"shard-{k:06d}-00000000.arrow"
        sink = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=self.compression, allow_64bit=True)
        schema = schema_of(form, user)
        at, entries = 8 + schema.serialize().size, []
        with pa.ipc.new_file(sink, schema, options=options) as writer:
            for batch, piece in zip(batches, pieces, strict=True):
                writer.write_batch(batch_of(form, piece, [n for n, _ in batch], user))
                end = sink.tell()
                crc = crc32(sink.getvalue()[at:end])
                entries.append(BatchRecord(batch[0][0], len(batch), at, end - at, crc))
                at = end
        (root / name).write_bytes(sink.getvalue())
        rows = sum(map(len, batches))
        form_number = self._forms.index(form)
        data = sink.getvalue()
        frame = crc32(data[: entries[0].offset] + data[at:])
        return ShardRecord(name, len(data), rows, user, form_number, frame, tuple(entries))

    def _journal(self, root: Path, shards: Sequence[ShardRecord]) -> None:
        """Journal records; only one where user shards or errors interleave."""
        groups = [shards[k : k + self.record] for k in range(0, len(shards), self.record)]
        if self.shard_of is not None or not groups:
            groups = [shards]
        errors, done, known = self.errors(), 0, 0
        for n, group in enumerate(groups):
            last = n == len(groups) - 1
            later = [shard.batches[0].start for rest in groups[n + 1 :] for shard in rest]
            next_ = len(self.elements) if last else min(later)
            forms = max((shard.form for shard in group), default=-1) + 1
            user = group[0].user_shard if group else None
            new = [
                schema_of(form, user).serialize().to_pybytes() for form in self._forms[known:forms]
            ]
            known = max(known, forms)
            own = tuple(error for error in errors if done <= error.n < next_)
            record = JournalRecord(n, tuple(group), tuple(new), own, next_, None)
            (root / "journal" / f"{n:08d}.json").write_bytes(record.to_bytes())
            done = next_

    def _order(self, root: Path, entries: np.ndarray) -> CheckedFile:
        order = np.full((len(self.elements), 2), -1, np.int64)
        starts = {int(start): b for b, start in enumerate(entries["start"])}
        for _, batches in self.chunks():
            for batch in batches:
                for k, (n, _) in enumerate(batch):
                    order[n] = starts[batch[0][0]], k
        np.save(root / "order.npy", order)
        return CheckedFile.of("order.npy", (root / "order.npy").read_bytes())


def schema_of(form: Form, user: int | None) -> Any:
    index = pa.field(INDEX, pa.int64(), nullable=False)
    return form.schema if user is None else form.schema.append(index)


def batch_of(form: Form, piece: Columns, numbers: list[int], user: int | None) -> Any:
    batch = encode(form, [piece])
    if user is None:
        return batch
    schema = schema_of(form, user)
    return pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array(numbers, pa.int64())], schema=schema
    )


def lay(path: Path, *runs: Run, finish: bool = True) -> Path:
    """Write a snapshot of some runs under a path; its manifest too, if it is finished."""
    folder = path / KEY
    folder.mkdir(parents=True)
    told = [run.lay(folder, finish=finish) for run in runs]
    if finish:
        entries = tuple(run for run in told if run is not None)
        manifest = Manifest(
            KEY,
            "content",
            entries,
            rows=sum(run.rows for run in entries),
            bytes=0,
            compression=runs[0].compression,
            user_shards=runs[0].shard_of is not None,
        )
        (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return path
