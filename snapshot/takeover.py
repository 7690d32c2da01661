"""Going on with the run of a writer that died, or of one that only seems dead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tundish.snapshot.failpoints import reach
from tundish.snapshot.journal import append_record, record_name
from tundish.snapshot.records import JournalRecord
from tundish.snapshot.run import INDEX_FILE, Prefix, read_run
from tundish.snapshot.stale import replace_stale

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.frame import JSON

__all__ = ["adopt_run", "clean_run", "temporary"]


def adopt_run(store: Store, run: str, holder: Mapping[str, JSON]) -> Prefix | None:
    """Continue the run of a writer that died, or of one that only seems dead.

    An empty record behind the last one is the fence: journal records are created, never replaced,
    so a writer that is still alive cannot commit any more, and what the journal does not name is
    nobody's.

    Parameters
    ----------
    store : Store
        Of the folder ``<path>/<key>``.
    run : str
        Its name.
    holder : mapping
        The process that takes it: `tundish.snapshot.lease.Holder` as JSON.

    Returns
    -------
    Prefix or None
        What is durable, the fence included. None: it is damaged, or another process was faster;
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
    """Remove what no journal record names. Only for who owns the run: see `adopt_run`.

    Returns
    -------
    list of str
        The names of what was removed.
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
    """Whether a file is not yet what it will be."""
    return name.endswith((".tmp", ".tmp.log"))
