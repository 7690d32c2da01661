"""Finishing a run: the index of its batches, and with user shards the order of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tundish.snapshot.encoding.forms import INDEX
from tundish.snapshot.failpoints import reach
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.index import index_bytes, npy_header, order_blocks, read_batch
from tundish.snapshot.manifest import ManifestRun
from tundish.snapshot.records import Checked
from tundish.snapshot.run import Prefix, run_table

if TYPE_CHECKING:
    import numpy as np

    from tundish.snapshot.files.store import Store

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


def _written(store: Store, name: str, pieces: Iterator[bytes], step: str) -> Checked:
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
    return Checked(name, size, crc)
