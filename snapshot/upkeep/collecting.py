"""Removal of files under a path that are no longer needed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tundish.errors import SnapshotError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.lease import Holder
from tundish.snapshot.manifest import RunOutcome
from tundish.snapshot.run import read_run
from tundish.snapshot.upkeep.information import files_below, live_runs

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import Manifest

GRACE = timedelta(hours=24)
"""The time for which nothing is removed after it was last written to: other hosts may be using it."""


@dataclass(frozen=True)
class Removed:
    """A folder that was removed, or would be.

    Parameters
    ----------
    name : str
        The folder, relative to the path.
    bytes : int
        The size of its files.
    why : str
        The reason why it is not needed.
    """

    name: str
    bytes: int
    why: str


@dataclass(frozen=True)
class Collected:
    """The result of `gc`.

    Parameters
    ----------
    path : str
        The snapshot path.
    removed : tuple of Removed
        The folders that were removed, or would be.
    dry_run : bool
        True if nothing was removed.
    """

    path: str
    removed: tuple[Removed, ...]
    dry_run: bool

    @property
    def bytes(self) -> int:
        """The size of all files that were removed, or would be."""
        return sum(one.bytes for one in self.removed)


def gc(
    path: str | os.PathLike[str],
    *,
    older_than: timedelta | float = GRACE,
    keep: int | None = None,
    dry_run: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Collected:
    """Remove what is no longer needed: files are unlinked, none is changed.

    Parameters
    ----------
    path : str or os.PathLike
        The path given to ``snapshot``.
    older_than : datetime.timedelta or float, default 24 hours
        Only what has not been written to for this long (a number: seconds). A process of another host may
        be reading a run that was replaced, or about to begin one.
    keep : int, optional
        Keep this many pipelines, those that were written to last, and remove the others completely. Default: all
        are kept.
    dry_run : bool, default True
        Only report what would be removed.
    storage_options : mapping, optional
        For a remote path.

    Returns
    -------
    Collected

    Raises
    ------
    ValueError
        `keep` or `older_than` is negative.

    Notes
    -----
    Not needed are runs beside a complete snapshot that are not in its manifest (they lost, or were
    compacted), runs without elements whose writer is gone, and, with `keep`, pipelines that
    newer ones superseded. A pipeline whose lease is held is left alone, and so
    is a run whose writer is alive, or damaged. What processes have mapped stays readable for them.

    Examples
    --------
    >>> gc("/there/is/nothing").removed
    ()
    """
    seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if seconds < 0 or (keep is not None and keep < 0):
        raise ValueError(f"older_than={older_than} and keep={keep} must not be negative")
    catalog = Catalog(path, storage_options)
    found = [
        Removed(name, sum(size for _, size in files_below(catalog.store, name)), why)
        for name, why in _useless(catalog, time.time() - seconds, keep)
    ]
    if not dry_run:
        for one in found:
            catalog.store.remove_tree(one.name)
    return Collected(os.fspath(path), tuple(found), dry_run)


def _useless(catalog: Catalog, before: float, keep: int | None) -> Iterator[tuple[str, str]]:
    """Yield unneeded folders that were last written to before a time, each with the reason."""
    store = catalog.store
    keys = sorted(catalog.keys(), key=lambda key: _last_made(catalog, key), reverse=True)
    for place, key in enumerate(keys):
        if live_runs(store, key):
            continue
        if keep is not None and place >= keep:
            if _last_written(store, key) < before:
                yield key, f"{place} pipeline(s) were written to later"
            continue
        for run, why in _useless_runs(catalog, key):
            name = f"{key}/runs/{run}"
            if _last_written(store, name) < before:
                yield name, why


def _useless_runs(catalog: Catalog, key: str) -> Iterator[tuple[str, str]]:
    """Yield unneeded runs, each with the reason."""
    try:
        manifest = catalog.manifest(key)
    except SnapshotError:
        return  # what is damaged is for people to look at
    named = set() if manifest is None else {entry.run for entry in manifest.runs}
    for run in catalog.runs(key):
        why = "" if run in named else _useless_run(catalog, key, run, manifest)
        if why:
            yield run, why


def _useless_run(catalog: Catalog, key: str, run: str, manifest: Manifest | None) -> str:
    """Return why a run that no manifest names is not needed; "" if it is."""
    try:
        prefix = read_run(catalog.at(key), run)
    except SnapshotError:
        header = catalog.store.size(f"{key}/runs/{run}/run.json")
        return "" if header is not None else "it was never begun, or is half removed"
    with suppress(SnapshotError):
        if prefix.outcome is not RunOutcome.FINISHED and Holder.from_json(prefix.holder).alive:
            return ""
    if manifest is not None:
        return "another run is the snapshot"
    # A shard of few elements may have none, and is one of those that `finalize` joins.
    needed = prefix.next or prefix.problem or prefix.outcome is RunOutcome.FINISHED
    return "" if needed else "its writer ended before the first commit"


def _last_made(catalog: Catalog, key: str) -> float:
    """Return when elements of a pipeline were last written; `compact`, which copies them, does not count."""
    with suppress(SnapshotError, ValueError):
        manifest = catalog.manifest(key)
        if manifest is not None and manifest.generation:
            return datetime.fromisoformat(manifest.created).timestamp()
    return _last_written(catalog.store, key)


def _last_written(store: Store, folder: str) -> float:
    """Return the modification time of the newest file in a folder; 0 if there is none."""
    times = (store.modified(name) for name, _ in files_below(store, folder))
    return max((when for when in times if when is not None), default=0.0)
