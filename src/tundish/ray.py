"""tundish for Ray Data: snapshots as Ray's datasets, and Ray's datasets as snapshots."""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

try:
    from ray.data import Datasink, Datasource, ReadTask
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray
except ModuleNotFoundError as missing:
    if missing.name is None or missing.name.partition(".")[0] == "tundish":
        raise
    raise ImportError(
        f'tundish.ray needs Ray Data ({missing.name} is not installed): pip install "ray[data]"',
        name=missing.name,
    ) from missing

import numpy as np
import pyarrow as pa

from tundish.errors import IncompleteSnapshotError, SnapshotError, SpecError
from tundish.formats.tables.columns import check_type, to_numpy
from tundish.loader.operators.snapshot import check_compression, check_path
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.encoding.forms import Columns
from tundish.snapshot.lease import Holder
from tundish.snapshot.manifest import Manifest, ManifestRun
from tundish.snapshot.parts import Part, joined
from tundish.snapshot.records import RunHeader
from tundish.snapshot.run import read_run
from tundish.snapshot.upkeep.tables import StoredTables
from tundish.snapshot.writing.writer import MIB, RunWriter, finish_run
from tundish.spec import flatten

__all__ = ["SnapshotDatasink", "SnapshotDatasource"]


class SnapshotDatasource(Datasource):  # type: ignore[misc]
    """A complete snapshot as a source for Ray Data.

    Parameters
    ----------
    path : str or os.PathLike
        The path given to ``snapshot`` or ``save``. All of Ray's nodes must reach it.
    key : str, optional
        The pipeline, as ``tundish snapshot info`` shows it. Default: the newest that is complete.
    storage_options : mapping, optional
        Options of a remote filesystem.

    Raises
    ------
    IncompleteSnapshotError
        There is no complete snapshot.

    Notes
    -----
    A stored batch is a block or part of one, read by one task and compared with its checksum. Columns are those of
    ``tundish snapshot export``: numbers, strings and arrays are the stored Arrow data as they are, arrays of one shape as
    ``arrow.fixed_shape_tensor``; nests are columns ``a.b``. Elements that failed are left out. Blocks are numbered in the
    snapshot's order; Ray Data keeps that order only with ``execution_options.preserve_order``.

    Examples
    --------
    >>> import ray
    >>> ds = ray.data.read_datasource(SnapshotDatasource("snapshots/train"))  # doctest: +SKIP
    >>> for batch in ds.iter_batches(batch_size=256):  # doctest: +SKIP
    ...     train(batch)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        catalog = Catalog(path, storage_options)
        chosen = catalog.newest() if key is None else key
        manifest = None if chosen is None else catalog.manifest(chosen)
        if manifest is None:
            which = "" if key is None else f" of {key}"
            raise IncompleteSnapshotError(
                f"{os.fspath(path)} has no complete snapshot{which}: write it to its end first"
            )
        self._place = _Place(
            check_path("path", path),
            manifest.key,
            dict(storage_options) if storage_options else None,
        )
        self._manifest = manifest

    def get_name(self) -> str:
        """Return the name of its read tasks."""
        return "Snapshot"

    def estimate_inmemory_data_size(self) -> int:
        """Return the bytes of all stored batches."""
        return self._manifest.bytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[Any]:
        """Return tasks that read consecutive batches, of about as many bytes each.

        Parameters
        ----------
        parallelism : int
            The number of tasks that are wanted.
        per_task_row_limit : int, optional
            The most rows of each task's blocks.
        data_context : ray.data.DataContext, optional
            Not needed.
        """
        tables = StoredTables(self._place.catalog.at(self._manifest.key), self._manifest)
        tasks = []
        for first, stop in _spans(tables.bytes, max(1, parallelism)):
            metadata = BlockMetadata(
                num_rows=int(tables.rows[first:stop].sum()),
                size_bytes=int(tables.bytes[first:stop].sum()),
                exec_stats=None,
            )
            read = partial(_read, self._place, self._manifest, first, stop)
            tasks.append(ReadTask(read, metadata, per_task_row_limit=per_task_row_limit))
        return tasks


@dataclass(frozen=True)
class _Place:
    """Where a snapshot is: what tasks on other nodes open."""

    path: str
    key: str
    options: Mapping[str, Any] | None = None

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.path, self.options)


def _spans(sizes: np.ndarray, count: int) -> Iterator[tuple[int, int]]:
    """Cut consecutive batches into at most `count` spans of about as many bytes."""
    total = int(sizes.sum())
    if not total:
        return
    middles = np.cumsum(sizes) - sizes / 2
    cuts = np.searchsorted(middles, np.arange(1, count) * total / count)
    edges = np.unique([0, *cuts.tolist(), len(sizes)]).tolist()
    yield from pairwise(edges)


def _read(place: _Place, manifest: Manifest, first: int, stop: int) -> Iterator[pa.Table]:
    tables = StoredTables(place.catalog.at(place.key), manifest)
    for number in range(first, stop):
        yield tables[number]


class SnapshotDatasink(Datasink):  # type: ignore[misc]
    """A snapshot that Ray Data writes, for `Dataset.load` and `SnapshotDatasource`.

    Parameters
    ----------
    path : str or os.PathLike
        A folder that all of Ray's nodes reach, or an address; it is made if it is not there. Where something was saved
        before, this is what is loaded from now on.
    compression : {None, "auto", "lz4", "zstd"}
        As for `snapshot`.
    shard_bytes, batch_bytes : int
        The sizes of files and of the batches in them.
    storage_options : mapping, optional
        Options of a remote filesystem.

    Notes
    -----
    Each write task writes a run of its own; when all are there, one manifest over them makes the snapshot complete, in
    the order of the tasks. A task that Ray runs again writes another run; what is in no manifest is never read, and
    ``tundish snapshot gc`` removes it. If a task fails for good, nothing is completed.

    A row is an element: a dict of its columns. Values are those of `ArrowDataset`; Ray's tensors are arrays. A null
    that is neither a float nor a time is an error.

    Examples
    --------
    >>> import ray
    >>> ds = ray.data.read_parquet("s3://bucket/raw").map(clean)  # doctest: +SKIP
    >>> ds.write_datasink(SnapshotDatasink("snapshots/clean"))  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        compression: str | None = "auto",
        shard_bytes: int = 256 * MIB,
        batch_bytes: int = 4 * MIB,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        options = dict(storage_options) if storage_options else None
        # Each write is a snapshot of its own, as with `save`.
        self._place = _Place(check_path("path", path), uuid.uuid4().hex[:16], options)
        self._compression = check_compression(compression)
        if self._compression == "auto":
            self._compression = None if self._place.catalog.store.local else "lz4"
        self._shard_bytes, self._batch_bytes = shard_bytes, batch_bytes

    def get_name(self) -> str:
        """Return the name of its write tasks."""
        return "Snapshot"

    def write(self, blocks: Iterable[Any], ctx: Any) -> tuple[int, ManifestRun | None]:
        """Write a task's blocks as a run; Ray calls it in a worker.

        Parameters
        ----------
        blocks : iterable
            Ray's blocks.
        ctx : ray.data.TaskContext
            Has the task's number.
        """
        written = _write(self._place, self._header(ctx.task_idx), self, blocks)
        return ctx.task_idx, written

    def on_write_complete(self, write_result: Any) -> None:
        """Complete the snapshot; Ray calls it once, after all tasks.

        Parameters
        ----------
        write_result : ray.data.WriteResult
            What `write` returned for each task.
        """
        place = self._place
        runs = [run for _, run in sorted(write_result.write_returns, key=lambda x: x[0]) if run]
        catalog = place.catalog
        if not runs:
            catalog.store.remove_tree(place.key)
            raise SnapshotError(
                f"{place.path}: Ray's dataset has no rows, so there is nothing to write"
            )
        store = catalog.at(place.key)
        parts = [
            Part(at, len(runs), read_run(store, run.run), self._manifest(run))
            for at, run in enumerate(runs)
        ]
        catalog.publish(place.key, joined(parts))

    def on_write_failed(self, error: Exception) -> None:
        """Leave written files to ``gc``: tasks may still be running.

        Parameters
        ----------
        error : Exception
            The first error.
        """

    def _header(self, task: int) -> RunHeader:
        return RunHeader(
            self._place.key,
            datetime.now(UTC).isoformat(),
            version("tundish"),
            Holder.here().to_json(),
            self._compression,
            options={"ray task": task},
        )

    def _manifest(self, run: ManifestRun) -> Manifest:
        prefix = read_run(self._place.catalog.at(self._place.key), run.run)
        return Manifest(
            self._place.key,
            self._place.key,
            (run,),
            run.rows,
            prefix.bytes,
            self._compression and self._compression.partition(":")[0],
        )


def _write(
    place: _Place, header: RunHeader, sink: SnapshotDatasink, blocks: Iterable[Any]
) -> ManifestRun | None:
    """Write blocks to a new run, commit them, and return the run's entry in a manifest; None if there are no rows."""
    catalog = place.catalog
    writer: RunWriter | None = None
    rows = 0
    try:
        for block in blocks:
            table = BlockAccessor.for_block(block).to_arrow()
            if not table.num_rows:
                continue
            if writer is None:
                pipeline = [{"op": "ray.data", "args": {}}]
                writer = RunWriter(
                    place.path,
                    place.key,
                    catalog.begin_run(place.key, header, pipeline),
                    name=secrets.token_hex(4),
                    compression=sink._compression,  # noqa: SLF001 - its own function
                    shard_bytes=sink._shard_bytes,  # noqa: SLF001
                    storage_options=place.options,
                )
            for piece in _pieces(table, sink._batch_bytes, rows):  # noqa: SLF001
                writer.write(rows, [piece])
                rows += piece.rows
        if writer is None:
            return None
        writer.commit(0, writer.seal(), rows, None, {})
        store = catalog.at(place.key)
        return finish_run(store, read_run(store, writer.run))
    finally:
        if writer is not None:
            writer.abandon()


def _pieces(table: pa.Table, nbytes: int, before: int) -> Iterator[Columns]:
    """Return a table's rows as columns of elements, cut to about the given number of bytes."""
    table = table.combine_chunks()
    step = max(1, nbytes * table.num_rows // max(1, table.nbytes))
    for first in range(0, table.num_rows, step):
        part = table.slice(first, step)
        bad: dict[int, str] = {}
        nest = {
            name: _values(part.column(k), name, bad) for k, name in enumerate(part.column_names)
        }
        if bad:
            row = min(bad)
            raise SpecError(f"row {before + first + row} of this task: {bad[row]}")
        leaves, tree = flatten(nest)
        yield Columns(tree, tuple(map(_leaf, leaves)), part.num_rows)


def _values(column: pa.ChunkedArray, name: str, bad: dict[int, str]) -> Any:
    """Return a column's values, one array for all rows; of a struct a dict of these."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # of an extension type, or empty
        array = pa.concat_arrays(array.chunks)
    if isinstance(array, (ArrowTensorArray, ArrowVariableShapedTensorArray)):
        return array.to_numpy(zero_copy_only=False)
    check_type(array.type, name)
    return to_numpy(array, name, {}, bad)


def _leaf(values: np.ndarray) -> np.ndarray | list[Any]:
    return list(values) if values.dtype == object else values
