"""Opening a finished run from its ``index.arrow``, without its journal, which may be long.

The metadata of the index's schema contains the table of shards, forms and errors, so opening a complete
snapshot reads only three files per run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tundish.errors import SnapshotCorruptError
from tundish.snapshot.frame import LostFileError, TornFileError, unpack
from tundish.snapshot.index import read_index
from tundish.snapshot.manifest import RunOutcome
from tundish.snapshot.records import ShardRecord, errors_of, forms_of
from tundish.snapshot.run import Prefix, check_sizes, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import ManifestRun


def read_finished(store: Store, entry: ManifestRun) -> Prefix:
    """Read a run of a manifest.

    Parameters
    ----------
    store : Store
        The store of the folder ``<path>/<key>``.
    entry : ManifestRun
        The run's entry in the manifest.

    Raises
    ------
    SnapshotError
        The run is damaged: the error names the file, and the batch if it is one.
    """
    prefix = read_indexed(store, entry)
    check_sizes(store, entry.run, prefix.shards, entries=prefix.entries)
    check_order(store, entry)
    return prefix


def read_indexed(store: Store, entry: ManifestRun) -> Prefix:
    """Read a run from its index, without its shards."""
    header = read_header(store, entry.run)
    name = f"runs/{entry.run}/{entry.index.file}"
    path = store.shown(name)
    try:
        data = entry.index.check(store.read(name, entry.index.bytes), path)
    except FileNotFoundError:
        raise LostFileError(path, "is missing") from None
    entries, table = read_index(data, path)
    fields = unpack(table, path)
    shards = tuple(ShardRecord.from_json(shard, indexed=True) for shard in fields.objects("shards"))
    errors = {error.n: error for error in errors_of(fields)}
    forms = forms_of(fields)
    wrong = _contradiction(entries, shards, len(errors), len(forms), entry.rows)
    if wrong:
        raise SnapshotCorruptError(path, wrong)
    return Prefix(
        entry.run,
        header,
        entry.rows,
        entry.journal + 1,
        shards,
        entries,
        forms,
        errors,
        None,
        {},
        header.holder,
        RunOutcome.COMPLETE,
    )


def _contradiction(
    entries: np.ndarray, shards: Sequence[ShardRecord], errors: int, forms: int, rows: int
) -> str:
    """Describe an inconsistency of an index; "" if there is none."""
    found = int(entries["rows"].sum(dtype=np.int64))
    if found + errors != rows:
        return f"has {found} rows and {errors} errors, and the manifest says {rows} elements"
    if any(shard.form >= forms for shard in shards):
        return f"names a form that is not among its {forms}"
    number, count = entries["shard"].astype(np.intp), len(shards)
    if len(entries) and (number.min() < 0 or number.max() >= count):
        return f"has a batch of a shard that is not among its {count}"
    held = np.bincount(number, weights=entries["rows"], minlength=count)
    if held.tolist() != [shard.rows for shard in shards]:
        return "has other rows than its shards"
    ends = np.array([shard.bytes for shard in shards], np.int64)[number]
    if (entries["offset"] < 0).any() or (entries["length"] > ends - entries["offset"]).any():
        return "has a batch that lies outside of its shard"
    start, apart = entries["start"], any(shard.user_shard is not None for shard in shards)
    stop = start + (1 if apart else entries["rows"])
    if (start < 0).any() or (stop > rows).any() or (stop[:-1] > start[1:]).any():
        return "has batches that do not follow one another"
    return ""


def check_order(store: Store, entry: ManifestRun) -> None:
    """Check that the order of a run with user shards is present; its bytes are checked when it is read."""
    if entry.order is None:
        return
    name = f"runs/{entry.run}/{entry.order.file}"
    size = store.size(name)
    if size is None:
        raise LostFileError(store.shown(name), "is missing")
    if size != entry.order.bytes:
        raise TornFileError(
            store.shown(name), f"has {size:,} bytes, and {entry.order.bytes:,} were written"
        )
