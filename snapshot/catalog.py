"""The catalog of a snapshot path: its keys, their runs and manifests."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tundish.errors import SnapshotCorruptError, SnapshotError
from tundish.snapshot.files.store import open_store
from tundish.snapshot.fingerprint.differences import are_alike, written
from tundish.snapshot.finished import check_order, read_indexed
from tundish.snapshot.frame import JSON, parse
from tundish.snapshot.lease import (
    STALE_S,
    Holder,
    age,
    clean_run,
    is_stale,
    replace_stale,
    temporary,
)
from tundish.snapshot.manifest import Manifest, RunOutcome
from tundish.snapshot.records import RUN_NAME
from tundish.snapshot.run import Prefix, check_sizes, damage, read_header, read_run

if TYPE_CHECKING:
    import os

    from tundish.snapshot.files.store import Store
    from tundish.snapshot.records import RunHeader

_KEY = re.compile(r"[0-9a-f]{16}\Z")
_LEASE = re.compile(r"lease(-\d+-of-\d+)?\.json\Z")


class Catalog:
    """The keys, runs and manifests under a path.

    Parameters
    ----------
    path : str or os.PathLike
        The path given to ``snapshot``.
    storage_options : mapping, optional
        Options of a remote filesystem.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = open_store(path, storage_options)

    def keys(self) -> list[str]:
        """Return every key that has a folder."""
        return [name for name in self.store.list() if _KEY.match(name)]

    def at(self, key: str) -> Store:
        """Return the store of a key's folder, for `read_run` and similar functions."""
        return self.store.subfolder(key)

    def manifest(self, key: str) -> Manifest | None:
        """Return the manifest of a key's complete snapshot; None if it is not complete.

        Raises
        ------
        SnapshotError
            The manifest is damaged, or of a higher version.
        """
        name = f"{key}/manifest.json"
        path = self.store.shown(name)
        try:
            data = self.store.read(name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not data:  # the name was taken, on a filesystem without links, and its writer died
            return None
        manifest = Manifest.from_bytes(data, path)
        if manifest.key != key:
            raise SnapshotCorruptError(
                path, f"is of the key {manifest.key}: it was moved or copied"
            )
        return manifest

    def pipeline(self, key: str) -> JSON | None:
        """Return the pipeline's description, which was hashed for the key; None if there is none.

        Raises
        ------
        SnapshotError
            The file is cut off.
        """
        name = f"{key}/pipeline.json"
        try:
            return parse(self.store.read(name), self.store.shown(name))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def newest(self) -> str | None:
        """Return the key of the snapshot that was completed last; damaged ones are ignored."""
        found = []
        for key in self.keys():
            with suppress(SnapshotError):
                manifest = self.manifest(key)
                if manifest is not None:
                    found.append((manifest.created, key))
        return max(found, default=(None, None))[1]

    def runs(self, key: str) -> list[str]:
        """Return the names of a key's runs."""
        return [name for name in self.store.list(f"{key}/runs") if RUN_NAME.match(name)]

    def prefixes(self, key: str) -> Iterator[Prefix]:
        """Yield the durable prefix of each run that has a header."""
        store = self.at(key)
        for run in self.runs(key):
            with suppress(SnapshotError):
                prefix = read_run(store, run)
                if prefix.header.key == key:
                    yield prefix

    def best_run(
        self,
        key: str,
        seeds: Mapping[str, JSON] | None = None,
        part: tuple[int, int] | None = None,
        *,
        inputs: Sequence[JSON] = (),
        living: bool = False,
    ) -> Prefix | None:
        """Return the run to continue: the longest one whose writer is not alive.

        Parameters
        ----------
        key : str
            The snapshot's key.
        seeds : mapping, optional
            Restricts the search to runs with these seeds.
        part : (int, int), optional
            Restricts the search to runs of this part; default: runs of the whole source.
        inputs : sequence, optional
            Restricts the search to runs whose input files were written at these times (`written`).
        living : bool, optional
            Includes runs whose writer is alive, to read their durable prefix, not to continue them.
        """
        found = [
            prefix
            for prefix in self.prefixes(key)
            if prefix.outcome.continued
            and prefix.header.part == part
            and (seeds is None or seeds.items() <= prefix.header.seeds.items())
            and (not inputs or are_alike(self.inputs(key, prefix.header.inputs), inputs))
            and (living or not _lives_elsewhere(prefix.holder))
        ]
        return max(
            found, key=lambda p: (p.outcome is RunOutcome.FINISHED, p.next, p.run), default=None
        )

    def inputs(self, key: str, told: Sequence[JSON]) -> list[JSON]:
        """Return when the input files of a run were written; for a run of an earlier version, from the key's description."""
        return list(told) or written(self.pipeline(key) or [])

    # -- writing ----------------------------------------------------------------------------------

    def begin_run(self, key: str, header: RunHeader, pipeline: JSON) -> str:
        """Create a run, and the key's description if there is none.

        Returns
        -------
        str
            The run's name.
        """
        self.clean(key)
        run = uuid.uuid4().hex
        self.store.create(f"{key}/runs/{run}/run.json", header.to_bytes(), "header")
        text = json.dumps(pipeline, indent=1, ensure_ascii=False) + "\n"
        # A name of a file may have lone surrogates: JSON writes them as Python would.
        data = text.encode(errors="backslashreplace")
        self.store.create(f"{key}/pipeline.json", data, "pipeline")
        return run

    def publish(self, key: str, manifest: Manifest) -> bool:
        """Publish a manifest, which completes a snapshot; return False if another run was published before."""
        name, data = f"{key}/manifest.json", manifest.to_bytes()
        if self.store.create(name, data, "manifest"):
            return True
        # Empty: on a filesystem without links its writer died before the name had its bytes.
        empty = self.store.size(name) == 0 and age(self.store, name) > STALE_S
        return empty and replace_stale(self.store, name, b"", data)

    def replace(self, key: str, manifest: Manifest) -> None:
        """Replace the manifest by one over other runs, for `compact`."""
        self.store.replace(f"{key}/manifest.json", manifest.to_bytes())

    def clean(self, key: str) -> list[str]:
        """Remove what dead processes left under a key, except runs that may be continued.

        That is temporary files of the key, runs without a header (a process that is just beginning one
        makes it again), and in a complete snapshot temporary files of its runs and the leases of dead
        processes.

        Returns
        -------
        list of str
            The names of what was removed.
        """
        names = self.store.list(key)
        found = [f"{key}/{name}" for name in names if temporary(name)]
        leases = [f"{key}/{name}" for name in names if _LEASE.match(name)]
        if "manifest.json" not in names:
            headless = [run for run in self.runs(key) if not self._begun(key, run)]
            found += [name for run in headless for name in self._temporaries(key, run)]
            return self._remove(found, [f"{key}/runs/{run}" for run in headless])
        dead = [name for name in leases if is_stale(self.store, name)]
        if not found and not dead:  # a writer that ends in peace leaves neither
            return []
        return self._remove(found) + self._clean_complete(key) + self._remove(dead)

    def _clean_complete(self, key: str) -> list[str]:
        found, store = [], self.at(key)
        with suppress(SnapshotError, OSError):
            manifest = self.manifest(key)
            for entry in manifest.runs if manifest else ():
                prefix = read_indexed(store, entry)
                found += [f"{key}/{name}" for name in clean_run(store, entry.run, prefix)]
        return found

    def _remove(self, names: Sequence[str], folders: Sequence[str] = ()) -> list[str]:
        """Remove files, and folders if they are empty; return their names. Without write permission nothing is removed."""
        with suppress(OSError):
            for name in names:
                self.store.remove(name)
            for folder in folders:
                self.store.prune(folder)
        return list(names)

    def _begun(self, key: str, run: str) -> bool:
        return self.store.size(f"{key}/runs/{run}/run.json") is not None

    def _temporaries(self, key: str, run: str) -> list[str]:
        folder = f"{key}/runs/{run}"
        return [f"{folder}/{name}" for name in self.store.list(folder) if temporary(name)]

    # -- naming what is there ---------------------------------------------------------------------

    def examine(self, key: str) -> tuple[RunOutcome, SnapshotError | None]:
        """Return the state of a key, and its problem.

        Of several runs without a manifest, the one that would be continued decides, else the longest.
        """
        try:
            manifest = self.manifest(key)
        except SnapshotError as error:
            return damage(error, "MANIFEST"), error
        if manifest is not None:
            return self._examine_complete(key, manifest)
        found = [self._examine_run(key, run) for run in self.runs(key)]
        _, outcome, problem = max(found, key=lambda f: f[0], default=((), RunOutcome.EMPTY, None))
        return outcome, problem

    def _examine_complete(
        self, key: str, manifest: Manifest
    ) -> tuple[RunOutcome, SnapshotError | None]:
        store = self.at(key)
        for entry in manifest.runs:
            file = "HEADER"
            try:
                read_header(store, entry.run)
                file = "INDEX"
                prefix = read_indexed(store, entry)
                file = "SHARD"
                check_sizes(store, entry.run, prefix.shards, entries=prefix.entries)
                file = "ORDER"
                check_order(store, entry)
            except SnapshotError as error:
                gone = file == "HEADER" and not store.list(f"runs/{entry.run}")
                return RunOutcome.LOST_RUN if gone else damage(error, file), error
        return RunOutcome.COMPLETE, None

    def _examine_run(
        self, key: str, run: str
    ) -> tuple[tuple[Any, ...], RunOutcome, SnapshotError | None]:
        """Return a run's rank among the key's runs, its state, and its problem."""
        try:
            prefix = read_run(self.at(key), run)
            self._own(key, prefix.header, run)
        except SnapshotError as error:
            return (False, False, -1, run), damage(error, "HEADER"), error
        outcome = prefix.outcome
        rank = (outcome.continued, outcome is RunOutcome.FINISHED, prefix.next, run)
        return rank, outcome, prefix.problem

    def _own(self, key: str, header: RunHeader, run: str) -> None:
        if header.key != key:
            path = self.store.shown(f"{key}/runs/{run}/run.json")
            raise SnapshotCorruptError(path, f"is of the key {header.key}: it was moved or copied")


def _lives_elsewhere(holder: Mapping[str, JSON]) -> bool:
    """Return True if a lease's holder is a process other than this one that is known to be alive."""
    try:
        process = Holder.from_json(holder)
    except SnapshotError:
        return False
    return bool(process.alive) and process != Holder.here()
