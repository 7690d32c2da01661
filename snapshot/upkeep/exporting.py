"""Export of a snapshot as a Parquet file, for other tools."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tundish.errors import IncompleteSnapshotError, SpecError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.encoding.columns import BufferMemory
from tundish.snapshot.encoding.forms import INDEX, Form, columns_of, decode, encode
from tundish.snapshot.encoding.kinds import Fixed, Varying
from tundish.snapshot.files.store import LocalStore
from tundish.snapshot.finished import read_finished
from tundish.snapshot.index import read_batch
from tundish.snapshot.upkeep.compacting import moved
from tundish.snapshot.writing.shardfile import BufferFile
from tundish.spec import paths

if TYPE_CHECKING:
    from tundish.snapshot.encoding.kinds import Kind
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import Manifest

_TIMES = {"M": ("D", "s", "ms", "us", "ns"), "m": ("s", "ms", "us", "ns")}  # units that Arrow has


@dataclass(frozen=True)
class Exported:
    """A written Parquet file.

    Parameters
    ----------
    target : str
        The file.
    rows : int
        The number of elements in it.
    failed : int
        The number of elements left out because they had failed.
    bytes : int
        Its size.
    """

    target: str
    rows: int
    failed: int
    bytes: int


def export(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str = "parquet",  # noqa: A002 - as pandas and polars call it
    key: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Exported:
    """Write a complete snapshot as one Parquet file, which appears when it is complete.

    Parameters
    ----------
    path : str or os.PathLike
        The path given to ``snapshot``.
    target : str or os.PathLike
        The file; its folder must exist, the file must not.
    format : {"parquet"}
        The file's format.
    key : str, optional
        The pipeline; default: the newest that is complete.
    storage_options : mapping, optional
        For a remote `path`.

    Returns
    -------
    Exported
        The written file.

    Raises
    ------
    FileExistsError
        `target` exists.
    IncompleteSnapshotError
        There is no complete snapshot.
    SnapshotCorruptError
        A batch is damaged.
    ValueError
        `format` is another one.

    Notes
    -----
    Each stored batch is a row group, in the order of the elements. A leaf is a column named by its path
    (``image``, ``boxes.values``). Values have Parquet's types where they exist:

    =========================================  ==================================================
    leaf                                       column
    =========================================  ==================================================
    bool, int, float of 16 to 64 bits          the same; big-endian ones in native order
    bfloat16, 8-bit floats, int4               float32, int8: every value is exact
    datetime64 [D, s, ms, us, ns]              date, timestamp; one that is not a time is null
    timedelta64 [s, ms, us, ns]                duration
    str, bytes                                 string, binary
    arrays of one shape                        ``arrow.fixed_shape_tensor``: lists for other tools
    1-D arrays of different lengths            lists
    arrays of more dimensions, shapes differ   struct of ``data`` and ``shape``
    complex                                    lists of two floats
    anything else (structured, longdouble)     its bytes, as lists of uint8
    =========================================  ==================================================

    With a ``shard_func`` the elements of a batch are not consecutive; a last column ``__index__`` has
    their numbers. Elements that failed are left out.
    """
    if format != "parquet":
        raise ValueError(f"format={format!r}: only 'parquet' can be written")
    place = Path(target)
    if place.exists():
        raise FileExistsError(
            f"{place} is there: nothing is overwritten; remove it, or name another"
        )
    catalog = Catalog(path, storage_options)
    chosen = catalog.newest() if key is None else key
    manifest = None if chosen is None else catalog.manifest(chosen)
    if manifest is None:
        which = "" if key is None else f" of {key}"
        raise IncompleteSnapshotError(f"{os.fspath(path)} has no complete snapshot{which}")
    rows, size = _write(catalog.at(manifest.key), manifest, place)
    return Exported(str(place), rows, manifest.rows - rows, size)


def _write(store: Store, manifest: Manifest, place: Path) -> tuple[int, int]:
    """Write the file; return its rows and its size."""
    sink = LocalStore(place.parent).sink(place.name, "")
    pieces, rows = BufferFile(), 0
    writer: pq.ParquetWriter | None = None
    try:
        for table in _tables(store, manifest):
            if writer is None:
                file = pa.PythonFile(pieces, mode="w")
                writer = pq.ParquetWriter(file, table.schema, compression="zstd")
            writer.write_table(table, row_group_size=table.num_rows)
            sink.writev(pieces.take())
            rows += table.num_rows
        if writer is not None:
            writer.close()
        sink.writev(pieces.take())
        if not sink.publish():
            raise FileExistsError(f"{place} is there now: nothing is overwritten")
    finally:
        sink.abandon()
    return rows, sink.offset


def _tables(store: Store, manifest: Manifest) -> Iterator[pa.Table]:
    """Yield each stored batch in columns of plain types; for a snapshot without rows, an empty one."""
    runs = [read_finished(store, entry) for entry in manifest.runs]
    schemas = [[pa.ipc.read_schema(pa.py_buffer(form)) for form in run.forms] for run in runs]
    forms = [[Form.from_schema(schema) for schema in own] for own in schemas]
    every = [form for own in forms for form in own]
    if not every:
        yield pa.table({})
        return
    wide = reduce(_joined, every)
    first = 0
    for run, own, own_forms in zip(runs, schemas, forms, strict=True):
        for entry in run.entries:
            shard = run.shards[entry["shard"]]
            data = read_batch(store, f"runs/{run.run}/{shard.file}", entry)
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), own[shard.form])
            yield _plain_table(batch, own_forms[shard.form], wide, first)
        first += run.next


def _joined(form: Form, other: Form) -> Form:
    """Return the narrowest form for the elements of both."""
    kinds = dict(zip(paths(other.tree), other.kinds, strict=True))
    joined = [k.joined(kinds[path]) for path, k in zip(paths(form.tree), form.kinds, strict=True)]
    if None in joined:
        raise SpecError("runs of this snapshot have leaves of different types")
    return Form(form.tree, tuple(k for k in joined if k is not None))


def _plain_table(batch: pa.RecordBatch, form: Form, wide: Form, first: int) -> pa.Table:
    numbers = moved(batch, first).column(INDEX) if INDEX in batch.schema.names else None
    if form != wide:
        elements = decode(batch, form).elements(0, batch.num_rows)
        batch = encode(wide, [columns_of(elements)])
    columns = [plain(kind, batch.column(k)) for k, kind in enumerate(wide.kinds)]
    columns = columns or [batch.column(0)]  # of elements without leaves
    fields = [
        pa.field(field.name, column.type, metadata=field.metadata)
        for field, column in zip(wide.schema, columns, strict=True)
    ]
    if numbers is not None:
        columns, fields = [*columns, numbers], [*fields, pa.field(INDEX, pa.int64())]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=wide.schema.metadata))


def plain(kind: Kind, array: Any) -> Any:
    """Convert a stored column to a type that other tools know.

    Parameters
    ----------
    kind : Kind
        The leaf's kind.
    array : pyarrow.Array
        The stored column.
    """
    memory = BufferMemory()
    if isinstance(kind, Fixed) and not pa.types.is_null(array.type):
        rows = memory.values(array, kind.dtype, (len(array), *kind.shape))
        items = plain_items(rows.reshape(-1))
        if items is None or not kind.shape:
            return array if items is None else items
        arrow = pa.fixed_shape_tensor(items.type, kind.shape)
        storage = pa.Array.from_buffers(arrow.storage_type, len(array), [None], children=[items])
        return pa.ExtensionArray.from_storage(arrow, storage)
    if isinstance(kind, Varying) and kind.ndim == 1 and not pa.types.is_null(array.values.type):
        items = plain_items(memory.values(array.values, kind.dtype, (len(array.values),)))
        return array if items is None else pa.LargeListArray.from_arrays(array.offsets, items)
    return array


def plain_items(items: np.ndarray) -> Any:
    """Return items as an Arrow array of their own type; None if their carrier is the closest type."""
    dtype = items.dtype
    if dtype.kind == "b" or (dtype.kind in "iuf" and not dtype.isnative and dtype.itemsize <= 8):
        return pa.array(items.astype(dtype.newbyteorder("=")))
    if dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        if count == 1 and unit in _TIMES[dtype.kind]:
            return pa.array(items.astype(dtype.newbyteorder("=")))
    if dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        return pa.array(items.astype(np.int8 if "int" in dtype.name else np.float32))
    return None
