"""Dead writers: the age of their files, taking over their leases, and continuing their runs."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tundish.errors import SnapshotError
from tundish.snapshot.failpoints import reach
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.journal import append_record, record_name
from tundish.snapshot.records import JournalRecord
from tundish.snapshot.run import INDEX_FILE, Prefix, read_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tundish.snapshot.files.store import Store
    from tundish.snapshot.frame import JSON

STALE_S = 60.0
"""After how long without a sign of life something of another machine is stale."""


def age(store: Store, name: str) -> float:
    """Return the seconds since a file was touched, by the clock of its filesystem.

    The clock is read by touching another file, since machines' clocks are never compared.
    """
    touched = store.modified(name)
    probe = f"{name}.{secrets.token_hex(8)}.tmp"
    store.claim(probe, b"now")
    try:
        now = store.modified(probe)
    finally:
        store.remove(probe)
    return 0.0 if now is None or touched is None else now - touched


def replace_stale(store: Store, name: str, seen: bytes, data: bytes) -> bool:
    """Replace a file of a dead writer; return False if another process did.

    Parameters
    ----------
    store : Store
        The store of the file.
    name : str
        The file's name.
    seen : bytes
        Its present contents.
    data : bytes
        Its new contents.
    """
    guard = f"{name}.{crc32(seen):08x}.tmp"  # one process at a time may replace what was seen
    if not store.claim(guard, b"guard"):
        if age(store, guard) > STALE_S:
            store.remove(guard)
        return False
    try:
        with suppress(FileNotFoundError, SnapshotError):  # a longer one is another
            if store.read(name, len(seen)) == seen:
                store.replace(name, data)
                return True
        return False
    finally:
        store.remove(guard)


def adopt_run(store: Store, run: str, holder: Mapping[str, JSON]) -> Prefix | None:
    """Take over the run of a writer that died, or only seems dead.

    An empty record after the last one is the fence: journal records are created, never replaced,
    so a writer that is still alive cannot commit any more, and what the journal does not name belongs to nobody.

    Parameters
    ----------
    store : Store
        The store of the folder ``<path>/<key>``.
    run : str
        The run's name.
    holder : mapping
        The process that takes over: `tundish.snapshot.lease.Holder` as JSON.

    Returns
    -------
    Prefix or None
        The durable prefix, including the fence. None: the run is damaged, or another process was faster;
        begin a new one.
    """
    found = read_run(store, run)
    if not found.outcome.continued:
        return None
    name = record_name(run, found.records)
    fence = JournalRecord(
        found.records, (), (), (), found.next, found.state_file, found.counts, holder
    )
    fenced = append_record(store, run, fence) or (
        store.size(name) == 0 and replace_stale(store, name, b"", fence.to_bytes())
    )  # empty: see `read_records`
    if not fenced:
        return None
    reach("adopt.fenced")
    clean_run(store, run, found)
    return replace(found, records=found.records + 1, holder=holder)


def clean_run(store: Store, run: str, prefix: Prefix) -> list[str]:
    """Remove files that no journal record names. Only for the owner of the run: see `adopt_run`.

    Returns
    -------
    list of str
        The names of the removed files.
    """
    folder = f"runs/{run}"
    named = {shard.file for shard in prefix.shards}
    names = [
        f"{folder}/{name}"
        for name in store.list(folder)
        if temporary(name) or (name.endswith(".arrow") and name != INDEX_FILE and name not in named)
    ]
    for inner in ("journal", "state"):
        names += [f"{folder}/{inner}/{n}" for n in store.list(f"{folder}/{inner}") if temporary(n)]
    late = [
        name
        for name in store.list(f"{folder}/state")
        if name >= f"{prefix.records:08d}" and not temporary(name)
    ]
    names += [f"{folder}/state/{name}" for name in late]
    for name in names:
        store.remove(name)
        reach("adopt.removed")
    return names


def temporary(name: str) -> bool:
    """Return True if a name is that of a temporary file."""
    return name.endswith((".tmp", ".tmp.log"))
