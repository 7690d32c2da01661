"""The index of a finished run: the location of every batch (``index.arrow``), and with user shards of every row.

Both follow from the journal alone, so any process that finishes the run writes the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tundish.errors import SnapshotCorruptError
from tundish.snapshot.files.checksum import crc32

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store

ENTRY = np.dtype(
    [
        ("start", np.int64),
        ("rows", np.int32),
        ("shard", np.int32),
        ("offset", np.int64),
        ("length", np.int64),
        ("crc32", np.uint32),
    ]
)
"""A line of the index: one batch. ``shard`` counts the shards in the order of the journal."""

_COLUMNS = ("start", "rows", "shard", "offset", "length", "crc32")
_SCHEMA = pa.schema(
    [pa.field(name, pa.from_numpy_dtype(ENTRY[name]), nullable=False) for name in _COLUMNS]
)
_TABLE = b"tundish.run"  # where, in the metadata of the schema, the table of the run stands


def index_bytes(entries: np.ndarray, table: bytes) -> bytes:
    """Return the bytes of an Arrow file with the batches, sorted by first element.

    Parameters
    ----------
    entries : numpy.ndarray of `ENTRY`
        The batches, in any order.
    table : bytes
        The rest of the run's description, from `tundish.snapshot.run.run_table`.
    """
    entries = np.sort(entries, order="start")
    schema = _SCHEMA.with_metadata({_TABLE: table})
    columns = [pa.array(np.ascontiguousarray(entries[name])) for name in _COLUMNS]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return bytes(sink.getvalue())


def read_index(data: bytes, path: str) -> tuple[np.ndarray, bytes]:
    """Return the batches in an ``index.arrow``, as `ENTRY`, and the table of the run.

    Raises
    ------
    SnapshotCorruptError
        It is not a complete index.
    """
    try:
        file = pa.ipc.open_file(pa.py_buffer(data))
        if not file.schema.equals(_SCHEMA):
            raise SnapshotCorruptError(path, f"is not an index of a run: {file.schema}")
        rows = file.read_all().combine_chunks()
        rows.validate(full=True)
        entries = np.empty(rows.num_rows, ENTRY)
        for name in _COLUMNS:
            entries[name] = rows.column(name).to_numpy()
        return entries, file.schema.metadata[_TABLE]
    except (pa.ArrowException, KeyError, TypeError, ValueError, OSError) as problem:
        raise SnapshotCorruptError(path, f"is not an index of a run: {problem!r}") from problem


def read_batch(store: Store, name: str, entry: np.void) -> bytes:
    """Read a batch of the index, and check that its bytes are those that were written."""
    data = store.read_range(name, int(entry["offset"]), int(entry["length"]))
    if len(data) != entry["length"] or crc32(data) != entry["crc32"]:
        raise SnapshotCorruptError(
            store.shown(name), "its bytes are not what was written", int(entry["start"])
        )
    return data


def order_blocks(
    entries: np.ndarray, numbers_of: Callable[[np.void], np.ndarray], rows: int
) -> Iterator[np.ndarray]:
    """Yield the location (batch, row) of element 0, 1, ..., in int64 blocks of shape (n, 2).

    Parameters
    ----------
    entries : numpy.ndarray of `ENTRY`
        The batches, sorted by ``start``; "batch" is an index into them.
    numbers_of : callable
        Returns the numbers of an entry's elements: ascending, beginning with its ``start``.
    rows : int
        The number of elements; those that failed, which are in no batch, have location (-1, -1).
    """
    # A batch has no number below its start, so what is below the next batch's start is settled:
    # only the numbers of the batches that interleave are held at once.
    first, open_block = 0, np.empty((0, 2), np.int64)
    for k, entry in enumerate(entries):
        settled = int(entry["start"]) - first
        if settled > 0:
            open_block = grown(open_block, settled)
            yield open_block[:settled]
            first, open_block = first + settled, open_block[settled:]
        numbers = numbers_of(entry)
        open_block = grown(open_block, int(numbers[-1]) + 1 - first)
        open_block[numbers - first, 0] = k
        open_block[numbers - first, 1] = np.arange(len(numbers))
    yield grown(open_block, rows - first)


def grown(block: np.ndarray, length: int) -> np.ndarray:
    """Return a block enlarged to at least `length` rows."""
    if len(block) >= length:
        return block
    return np.concatenate([block, np.full((length - len(block), 2), -1, np.int64)])


def npy_header(rows: int) -> bytes:
    """Return the header of an ``order.npy``, which precedes the blocks."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<i8", "fortran_order": False, "shape": (rows, 2)}
    )
    return file.getvalue()
