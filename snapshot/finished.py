"""A finished run as its ``index.arrow`` tells it: without the journal, which may be long.

The table of its shards, forms and errors is in the metadata of the index's schema, so a complete
snapshot is opened with three files a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tundish.errors import SnapshotCorruptError
from tundish.snapshot.frame import LostFileError, TornFileError, unpack
from tundish.snapshot.index import read_index
from tundish.snapshot.manifest import Outcome
from tundish.snapshot.records import Shard, errors_of, forms_of
from tundish.snapshot.run import Prefix, check_sizes, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import ManifestRun


def read_finished(store: Store, entry: ManifestRun) -> Prefix:
    """A run of a manifest.

    Parameters
    ----------
    store : Store
        Of the folder ``<path>/<key>``.
    entry : ManifestRun
        What the manifest says of it.

    Raises
    ------
    SnapshotError
        It is damaged: the error names the file, and the batch where one is meant.
    """
    prefix = read_indexed(store, entry)
    check_sizes(store, entry.run, prefix.shards, entries=prefix.entries)
    check_order(store, entry)
    return prefix


def read_indexed(store: Store, entry: ManifestRun) -> Prefix:
    """Return what the index says; its shards are not looked at."""
    header = read_header(store, entry.run)
    name = f"runs/{entry.run}/{entry.index.file}"
    path = store.shown(name)
    try:
        data = entry.index.check(store.read(name, entry.index.bytes), path)
    except FileNotFoundError:
        raise LostFileError(path, "is missing") from None
    entries, table = read_index(data, path)
    fields = unpack(table, path)
    shards = tuple(Shard.from_json(shard, indexed=True) for shard in fields.objects("shards"))
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
        Outcome.COMPLETE,
    )


def _contradiction(
    entries: np.ndarray, shards: Sequence[Shard], errors: int, forms: int, rows: int
) -> str:
    """Say what in an index does not fit; "" if everything does."""
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
        return "has batches that are not one behind the other"
    return ""


def check_order(store: Store, entry: ManifestRun) -> None:
    """See that the order of a run with user shards is there; its bytes are checked by who reads it."""
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
