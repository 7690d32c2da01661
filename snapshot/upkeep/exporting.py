"""Export of a snapshot as a Parquet file, for other tools."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tundish.errors import IncompleteSnapshotError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.files.store import LocalStore
from tundish.snapshot.upkeep.tables import StoredTables
from tundish.snapshot.writing.shardfile import BufferFile

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import Manifest


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
            f"{place} exists and is not overwritten; remove it, or choose another name"
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
        for table in StoredTables(store, manifest):
            if writer is None:
                file = pa.PythonFile(pieces, mode="w")
                writer = pq.ParquetWriter(file, table.schema, compression="zstd")
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            sink.writev(pieces.take())
            rows += table.num_rows
        if writer is not None:
            writer.close()
        sink.writev(pieces.take())
        if not sink.publish():
            raise FileExistsError(f"{place} exists now, and is not overwritten")
    finally:
        sink.abandon()
    return rows, sink.offset
