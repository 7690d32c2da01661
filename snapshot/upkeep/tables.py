"""The stored batches of a complete snapshot as Arrow tables, in types that other tools know."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tundish.errors import SpecError
from tundish.snapshot.encoding.columns import BufferMemory
from tundish.snapshot.encoding.forms import INDEX, Form, columns_of, decode, encode
from tundish.snapshot.encoding.kinds import Fixed, Varying
from tundish.snapshot.finished import read_finished
from tundish.snapshot.index import read_batch
from tundish.snapshot.upkeep.compacting import moved
from tundish.spec import paths

if TYPE_CHECKING:
    from tundish.snapshot.encoding.kinds import Kind
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import Manifest

_TIMES = {"M": ("D", "s", "ms", "us", "ns"), "m": ("s", "ms", "us", "ns")}  # units that Arrow has


class StoredTables:
    """The stored batches of a complete snapshot, each as a table; `export` says which types columns have.

    Parameters
    ----------
    store : Store
        The store of the key's folder.
    manifest : Manifest
        Its manifest.

    Attributes
    ----------
    rows, bytes : ndarray of int64
        The number of rows of each batch, and its bytes in the files.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        self._runs = [read_finished(store, entry) for entry in manifest.runs]
        self._schemas = [
            [pa.ipc.read_schema(pa.py_buffer(form)) for form in run.forms] for run in self._runs
        ]
        self._forms = [[Form.from_schema(schema) for schema in own] for own in self._schemas]
        every = [form for own in self._forms for form in own]
        self._wide = reduce(_joined, every) if every else None
        self._firsts = np.cumsum([0, *(run.next for run in self._runs)]).tolist()
        self._stops = np.cumsum([len(run.entries) for run in self._runs], dtype=np.int64)
        entries = [run.entries for run in self._runs]
        self.rows: np.ndarray = _column(entries, "rows")
        self.bytes: np.ndarray = _column(entries, "length")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> pa.Table:
        """Return a batch, verified."""
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} batches, not one with the number {number}")
        at = int(np.searchsorted(self._stops, number, "right"))
        run = self._runs[at]
        entry = run.entries[number - (int(self._stops[at - 1]) if at else 0)]
        shard = run.shards[entry["shard"]]
        data = read_batch(self._store, f"runs/{run.run}/{shard.file}", entry)
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), self._schemas[at][shard.form])
        return self._table(batch, self._forms[at][shard.form], self._firsts[at])

    def __iter__(self) -> Iterator[pa.Table]:
        """Return all batches in order; of a snapshot without elements an empty one."""
        if self._wide is None:
            yield pa.table({})
        for number in range(len(self)):
            yield self[number]

    def _table(self, batch: pa.RecordBatch, form: Form, first: int) -> pa.Table:
        wide = self._wide
        assert wide is not None
        numbers = moved(batch, first).column(INDEX) if INDEX in batch.schema.names else None
        if form != wide:
            elements = decode(batch, form).elements(0, batch.num_rows)
            batch = encode(wide, [columns_of(elements)])
        columns = [plain(kind, batch.column(k)) for k, kind in enumerate(wide.kinds)]
        columns = columns or [batch.column(0)]  # the column that counts elements without leaves
        fields = [
            pa.field(field.name, column.type, metadata=field.metadata)
            for field, column in zip(wide.schema, columns, strict=True)
        ]
        if numbers is not None:
            columns, fields = [*columns, numbers], [*fields, pa.field(INDEX, pa.int64())]
        return pa.Table.from_arrays(
            columns, schema=pa.schema(fields, metadata=wide.schema.metadata)
        )


def _column(entries: list[np.ndarray], name: str) -> np.ndarray:
    """Return a column of all batches' records."""
    found = [own[name].astype(np.int64) for own in entries]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _joined(form: Form, other: Form) -> Form:
    """Return the narrowest form for the elements of both."""
    kinds = dict(zip(paths(other.tree), other.kinds, strict=True))
    joined = [k.joined(kinds[path]) for path, k in zip(paths(form.tree), form.kinds, strict=True)]
    if None in joined:
        raise SpecError("runs of this snapshot have leaves of different types")
    return Form(form.tree, tuple(k for k in joined if k is not None))


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
    """Return items as an Arrow array of their own type; None if no type is closer than the stored one."""
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
