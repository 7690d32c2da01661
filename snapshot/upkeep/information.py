"""Information about the snapshots under a path, for people: keys, differences, runs, sizes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tundish.errors import SnapshotError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.fingerprint.differences import differences
from tundish.snapshot.frame import unpack
from tundish.snapshot.lease import holder_of, is_stale
from tundish.snapshot.manifest import RunOutcome
from tundish.snapshot.run import read_run

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store
    from tundish.snapshot.manifest import Manifest


@dataclass(frozen=True)
class RunInfo:
    """A run of a key.

    Parameters
    ----------
    run : str
        Its name.
    outcome : RunOutcome
        Its state.
    rows, bytes, shards, records : int
        Its durable elements, the size and the number of its shards, and its commits.
    created : str
        When it was begun; "" if that cannot be read.
    part : (int, int) or None
        (i, n) for a part of a snapshot that is written in parts.
    complete : bool
        True if the manifest names it.
    beaten : bool
        True if there is a manifest of other runs.
    writer : str
        The living process that writes it; "" if none is known.
    problem : str
        Its problem; "" if it has none.
    """

    run: str
    outcome: RunOutcome
    rows: int = 0
    bytes: int = 0
    shards: int = 0
    records: int = 0
    created: str = ""
    part: tuple[int, int] | None = None
    complete: bool = False
    beaten: bool = False
    writer: str = ""
    problem: str = ""


@dataclass(frozen=True)
class KeyInfo:
    """A key, that is, one pipeline.

    Parameters
    ----------
    key : str
        The fingerprint's key.
    outcome : RunOutcome
        Its state.
    rows, bytes : int
        Elements and size of the complete snapshot's shards, or of the longest run's.
    disk_bytes : int
        The size of all files under the key.
    created : str
        When it was completed, or its longest run begun.
    compression : str or None
        The compression of its batches.
    user_shards : bool
        True if there was a ``shard_func``.
    generation : int
        The number of times it was compacted.
    marks : mapping
        The entries "skipped", "unordered", "random".
    runs : tuple of RunInfo
        All its runs.
    newest : bool
        True if it is the newest complete snapshot.
    differences : tuple of str
        How its pipeline differs from the newest one, a line each.
    problem : str
        Its problem; "" if it has none.
    """

    key: str
    outcome: RunOutcome
    rows: int = 0
    bytes: int = 0
    disk_bytes: int = 0
    created: str = ""
    compression: str | None = None
    user_shards: bool = False
    generation: int = 0
    marks: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[RunInfo, ...] = ()
    newest: bool = False
    differences: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Info:
    """Everything under a snapshot path.

    Parameters
    ----------
    path : str
        The path.
    keys : tuple of KeyInfo
        The keys, newest first.
    """

    path: str
    keys: tuple[KeyInfo, ...]

    @property
    def bytes(self) -> int:
        """The size of all files under the keys."""
        return sum(key.disk_bytes for key in self.keys)


def info(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Info:
    """Return what is under a path; changes nothing, and reads no batch.

    Parameters
    ----------
    path : str or os.PathLike
        As given to ``snapshot``.
    storage_options : mapping, optional
        Options of a remote filesystem.

    Returns
    -------
    Info

    Examples
    --------
    >>> info("/there/is/nothing").keys
    ()
    """
    catalog = Catalog(path, storage_options)
    newest = catalog.newest()
    keys = [key_info(catalog, key, newest) for key in catalog.keys()]  # noqa: SIM118 - a catalog is no mapping
    keys.sort(key=lambda k: (k.newest, k.created, k.key), reverse=True)
    return Info(os.fspath(path), tuple(keys))


def key_info(catalog: Catalog, key: str, newest: str | None) -> KeyInfo:
    """Return information about one key."""
    outcome, problem = catalog.examine(key)
    manifest = None
    with suppress(SnapshotError):
        manifest = catalog.manifest(key)
    writers = live_runs(catalog.store, key)
    runs = tuple(
        run_info(catalog, key, run, manifest, writers.get(run, "")) for run in catalog.runs(key)
    )
    longest = max(runs, key=lambda run: run.rows, default=None)
    found = KeyInfo(
        key,
        outcome,
        disk_bytes=sum(size for _, size in files_below(catalog.at(key))),
        runs=runs,
        newest=key == newest,
        differences=tuple(unlike(catalog, key, newest)),
        problem="" if problem is None else str(problem),
    )
    if manifest is not None:
        about: dict[str, Any] = {
            name: getattr(manifest, name)
            for name in (
                "rows",
                "bytes",
                "created",
                "compression",
                "user_shards",
                "generation",
                "marks",
            )
        }
        return KeyInfo(**{**vars(found), **about})
    if longest is not None:
        about = {"rows": longest.rows, "bytes": longest.bytes, "created": longest.created}
        return KeyInfo(**{**vars(found), **about})
    return found


def run_info(
    catalog: Catalog, key: str, run: str, manifest: Manifest | None, writer: str
) -> RunInfo:
    """Return information about one run."""
    complete = manifest is not None and run in [entry.run for entry in manifest.runs]
    beaten = manifest is not None and not complete
    try:
        prefix = read_run(catalog.at(key), run)
    except SnapshotError as error:
        return RunInfo(
            run, RunOutcome.LOST_HEADER, complete=complete, beaten=beaten, problem=str(error)
        )
    return RunInfo(
        run,
        prefix.outcome,
        prefix.next,
        prefix.bytes,
        len(prefix.shards),
        prefix.records,
        prefix.header.created,
        prefix.header.part,
        complete,
        beaten,
        writer,
        "" if prefix.problem is None else str(prefix.problem),
    )


def unlike(catalog: Catalog, key: str, newest: str | None) -> list[str]:
    """Return how a key's pipeline differs from the newest one's."""
    if newest is None or key == newest:
        return []
    with suppress(SnapshotError, KeyError, TypeError):
        return differences(catalog.pipeline(newest), catalog.pipeline(key))
    return []


def files_below(store: Store, folder: str = "") -> Iterator[tuple[str, int]]:
    """Yield every file below a folder: (name, size)."""
    sizes = store.sizes(folder)
    for name in store.list(folder):
        inner = f"{folder}/{name}" if folder else name
        if name in sizes:
            yield inner, sizes[name]
        else:
            yield from files_below(store, inner)


def live_runs(store: Store, key: str) -> dict[str, str]:
    """Return the runs that leases of a key name, with their holders; stale leases are ignored.

    Parameters
    ----------
    store : Store
        The store of the snapshot's path.
    key : str
        The key.

    Returns
    -------
    dict of str to str
        By run; a lease that was just taken and cannot be read yet has the run "".
    """
    found = {}
    for file in store.list(key):
        name = f"{key}/{file}"
        if file.startswith("lease") and file.endswith(".json") and not is_stale(store, name):
            holder = holder_of(store, name)
            try:
                run = unpack(store.read(name), store.shown(name)).text("run")
            except (SnapshotError, FileNotFoundError):
                run = ""
            found[run] = "a process" if holder is None else str(holder)
    return found
