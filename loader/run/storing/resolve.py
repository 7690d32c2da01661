"""Deciding for each snapshot of a plan, when an iterator is made, whether to read it, write it or pass through.

A complete snapshot replaces all operators before it. Of an incomplete one the durable prefix is served, and the
iterator that holds the lease continues writing it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import weakref
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tundish.errors import (
    FingerprintError,
    IncompleteSnapshotError,
    SnapshotError,
    SnapshotWriteError,
)
from tundish.loader.operators.loading import found_node, look, read_by
from tundish.loader.operators.snapshot import Snapshot
from tundish.loader.operators.stored import Found, Reread, Stored
from tundish.loader.plan.node import walk
from tundish.loader.plan.rebuilding import changed, other_inputs
from tundish.loader.run.evaluating.describing import (
    describe_pipeline,
    describe_sorting,
    key_of,
    with_files_now,
)
from tundish.loader.run.evaluating.ranges import range_of
from tundish.loader.run.storing.live import ActiveSnapshot, Served, Setup, nothing_served, wait_for
from tundish.loader.run.storing.orders import Target
from tundish.loader.run.storing.recorder import WRITING, Recorder, leasing
from tundish.loader.run.storing.telling import (
    check_mismatch,
    incomplete,
    say_not_continued,
    say_touched,
    say_who_writes,
)
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.fingerprint.differences import written
from tundish.snapshot.lease import Holder, Lease, adopt_run, lease_name, own_token, take
from tundish.snapshot.reading.reader import Reader, open_reader
from tundish.snapshot.records import RunHeader
from tundish.snapshot.run import Prefix, read_run

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

_KEYS: weakref.WeakKeyDictionary[Operator, tuple[str, Any]] = weakref.WeakKeyDictionary()
_RESOLVED: weakref.WeakKeyDictionary[Operator, dict[Any, Operator]] = weakref.WeakKeyDictionary()


class Resolving:
    """Decides on the snapshots of a plan, the last one first: operators before a complete snapshot are not needed."""

    def __init__(self, setup: Setup, *, fresh: bool, write: bool) -> None:
        self.setup = setup
        self._fresh, self._write = fresh, write
        self._done: dict[int, Operator] = {}

    def rebuilt(self, node: Operator) -> Operator:
        """Return the node that is run in place of a node."""
        if id(node) not in self._done:
            self._done[id(node)] = node.resolved(self)
        return self._done[id(node)]

    def snapshot(self, node: Snapshot) -> Operator:
        """Return the node that runs in place of a snapshot: its complete version, or the node over its inputs."""
        found = self._found(node)
        if found is None and _look_at_files(node):
            found = self._found(node)
        if found is not None:
            return _stored(node, found)
        made = self.with_inputs(node)  # first: a complete one below is a source to be divided
        if node.keeping.part is not None:
            whole = made.inputs[0]
            made = changed(made, up=range_of(whole, *node.keeping.part))
        self.setup.live[id(made)] = self._live(node)
        return made

    def with_inputs(self, node: Operator) -> Operator:
        """Return a node over its inputs as they are run."""
        changes = other_inputs(node, self.rebuilt)
        return changed(node, **changes) if changes else node

    def _found(self, node: Snapshot) -> Found | None:
        mode = node.keeping.mode
        if mode in ("off", "write") or node.keeping.part is not None:
            return None
        key, pipeline = described(node)
        wait_for(node.path, key)
        if self._write:
            _clean(node.path, key)
        found = look(node.path, key, node.keeping.verify)
        if found is not None:
            say_touched(node, key, pipeline)
        if found is None and mode == "read":
            raise IncompleteSnapshotError(incomplete(node.path, key, pipeline))
        return found

    def _live(self, node: Snapshot) -> ActiveSnapshot:
        keeping = node.keeping
        if keeping.mode == "off":
            return ActiveSnapshot(None, nothing_served)
        key, pipeline = described(node)
        wait_for(node.path, key)
        catalog = Catalog(node.path)
        check_mismatch(catalog, node, key, pipeline)
        lease, refused = self._lease(catalog, node, key)
        try:
            return self._leased(catalog, node, (key, pipeline), lease, refused)
        except BaseException:
            if lease is not None:
                WRITING.discard(lease.token)
                lease.release()  # else nobody else could write while this process lives
            raise

    def _leased(
        self,
        catalog: Catalog,
        node: Snapshot,
        what: tuple[str, Any],
        lease: Lease | None,
        refused: OSError | None,
    ) -> ActiveSnapshot:
        """Decide on an incomplete snapshot, with or without the lease to write it."""
        key, pipeline = what
        keeping, setup = node.keeping, self.setup
        drawn = _seeds_of(node)
        fixed = not self._fresh or setup.graph_seed is not None
        prefix: Prefix | None = None
        if keeping.mode != "write":
            wanted = {name: getattr(setup, name) for name in drawn} if fixed else None
            inputs, living = written(pipeline), lease is None
            prefix = catalog.best_run(key, wanted, keeping.part, inputs=inputs, living=living)
            if prefix is None and inputs:
                say_not_continued(catalog, node, key, pipeline)
        if drawn:
            if prefix is not None:
                # The elements after its own are drawn as these were, whichever process writes.
                for name in drawn:
                    setattr(setup, name, prefix.header.seeds.get(name, getattr(setup, name)))
            self._fresh = False  # an iterator has one seed, for all snapshots of its plan
        if lease is None and not (self._write and keeping.mode == "write" and refused is None):
            if refused is not None and prefix is None:
                raise SnapshotError(
                    f"{node.path}: nothing can be written there ({refused}), and no snapshot is there; choose "
                    "another folder, or skip the snapshot (mode='off')"
                ) from refused
            if self._write:
                say_who_writes(node, key, refused)
            return ActiveSnapshot(
                None, partial(_prefix_served, node, key, prefix), content(node, setup, prefix)
            )
        prefix = _continued(catalog, key, prefix) or self._begun(catalog, node, key, pipeline)
        named = content(node, setup, prefix)
        about = {"content": named or key, "inputs": written(pipeline)}
        recorder = _recorder(node, key, prefix, lease, about)
        if keeping.mode == "write":
            standing = catalog.manifest(key)
            recorder.replaces = () if standing is None else tuple([r.run for r in standing.runs])
        return ActiveSnapshot(recorder, partial(_recorded_served, node, key, recorder), named)

    def _lease(
        self, catalog: Catalog, node: Snapshot, key: str
    ) -> tuple[Lease | None, OSError | None]:
        """Take the lease; return it, or the error of the disk."""
        if not self._write:
            return None, None
        store, part = catalog.store, node.keeping.part
        name = lease_name(key, part)
        try:
            with leasing():
                lease = take(store, key, "", part=part)
                if lease is None:
                    token = own_token(store, name)
                    if token is not None and token not in WRITING:
                        # A lease of an iterator of this process whose writer died before it released the lease.
                        Lease(store, name, "", token).release()
                        lease = take(store, key, "", part=part)
                if lease is not None:
                    WRITING.add(lease.token)
        except OSError as refused:
            return None, refused
        return lease, None

    def _begun(self, catalog: Catalog, node: Snapshot, key: str, pipeline: Any) -> Prefix:
        """Begin a new run."""
        keeping, setup = node.keeping, self.setup
        header = RunHeader(
            key,
            _now(),
            version("tundish"),
            Holder.here().to_json(),
            _compression(keeping.compression, catalog),
            {"seed": setup.seed, "graph_seed": setup.graph_seed},
            keeping.part,
            {
                "shard_bytes": keeping.shard_bytes,
                "batch_bytes": keeping.batch_bytes,
                **dict(keeping.note),
            },
            tuple(written(pipeline)),
        )
        try:
            return read_run(catalog.at(key), catalog.begin_run(key, header, pipeline))
        except OSError as problem:
            if isinstance(problem, SnapshotError):
                raise
            raise SnapshotWriteError.of(problem, node.path, 0) from problem


# -- the folder on disk ----------------------------------------------------------------------------


def described(node: Snapshot) -> tuple[str, Any]:
    """Return the key of a snapshot, and the description of its pipeline from which the key is made."""
    known = _KEYS.get(node)
    if known is None:
        pipeline = _description(node)
        known = _KEYS[node] = (key_of(pipeline, node.keeping.version), pipeline)
    return known


def _description(node: Snapshot) -> list[Any]:
    follows, tag = node.keeping.follows, node.keeping.version
    try:
        pipeline = [*describe_pipeline(node.up, version=tag), *describe_sorting(node, version=tag)]
    except FingerprintError:
        if follows is None:
            raise
        # A save refuses no function: what cannot be described is taken to be the same.
        pipeline = [*describe_pipeline(node.up, version=""), *describe_sorting(node, version="")]
    if follows is not None:
        pipeline.append({"op": "save", "version": 1, "args": {"follows": follows}})
    return pipeline


def _look_at_files(node: Snapshot) -> bool:
    """Describe the input files of an unfinished snapshot as they are now; return True if the key is another one."""
    if node.keeping.mode == "off":
        return False
    key, pipeline = described(node)
    now = with_files_now(pipeline, node.up)
    _KEYS[node] = (key_of(now, node.keeping.version), now)
    return _KEYS[node][0] != key


@lru_cache(1024)
def _clean(path: str, key: str) -> None:
    """Remove leftovers of a writer that died after publishing the manifest; once a process."""
    catalog = Catalog(path)
    if catalog.manifest(key) is not None:
        with contextlib.suppress(OSError):  # it may be read-only: then it stays
            catalog.clean(key)


def _continued(catalog: Catalog, key: str, prefix: Prefix | None) -> Prefix | None:
    if prefix is None:
        return None
    return adopt_run(catalog.at(key), prefix.run, Holder.here().to_json())


def _recorder(
    node: Snapshot, key: str, prefix: Prefix, lease: Lease | None, about: dict[str, Any]
) -> Recorder:
    keeping, header = node.keeping, prefix.header
    target = Target(
        node.path,
        key,
        prefix.run,
        secrets.token_hex(4),
        header.compression,
        keeping.shard_bytes,
        "" if lease is None else lease.token,
        keeping.part,
    )
    unordered = any(getattr(below, "deterministic", None) is False for below in walk(node.up))
    random = any(below.seedless and hasattr(below, "seed") for below in walk(node.up))

    def manifest(counts: dict[str, int]) -> dict[str, Any]:
        return {
            **about,
            "created": _now(),
            "library": version("tundish"),
            "marks": {
                "skipped": sum(n for event, n in counts.items() if not event.endswith("retried")),
                "unordered": unordered,
                "random": random,
            },
        }

    return Recorder(
        target, prefix, keeping.batch_bytes, manifest, sorts=node.shard_func is not None
    )


def _prefix_served(node: Snapshot, key: str, prefix: Prefix | None) -> Served:
    if prefix is None or not prefix.next:
        return nothing_served()
    return _reader(node, key, prefix.run, prefix.records), prefix.next, prefix.state


def _recorded_served(node: Snapshot, key: str, recorder: Recorder) -> Served:
    durable, state = recorder.start
    if not durable:
        return None, 0, state
    return _reader(node, key, recorder.target.run, recorder.records), durable, state


def _reader(node: Snapshot, key: str, run: str, records: int) -> Reader:
    verify = node.keeping.verify
    return open_reader(node.path, key, runs=(run,), upto=(records,), verify=verify)


def _seeds_of(node: Snapshot) -> tuple[str, ...]:
    """Return the names of the seeds from which the operators before a snapshot draw."""
    below = list(walk(node.up))
    if any(each.seedless for each in below):
        return "seed", "graph_seed"
    return ("graph_seed",) if any(each.seeded for each in below) else ()


def content(node: Snapshot, setup: Setup, prefix: Prefix | None) -> str | None:
    """Return a fingerprint of what a pipeline draws beyond what its plan says; None if it draws nothing else.

    A state that was taken with other draws is refused, since its positions would be positions in other data.
    """
    seeds = {"seed": setup.seed, "graph_seed": setup.graph_seed}
    if prefix is not None:
        seeds.update(prefix.header.seeds)
    # A flat_map may draw, in a dataset that its function makes; most do not.
    below = [n for n in walk(node.up) if hasattr(n, "seed")]
    drawn = [seeds["seed"] if any(n.seedless for n in below) else None]
    drawn += [seeds["graph_seed"] if any(n.seeded or n.seedless for n in below) else None]
    if drawn == [None, None]:
        return None
    text = json.dumps([described(node)[0], drawn])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _compression(asked: str | None, catalog: Catalog) -> str | None:
    if asked == "auto":
        return None if catalog.store.local else "lz4"
    return asked


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


# -- plans -----------------------------------------------------------------------------------------


def _stored(node: Snapshot, found: Found) -> Operator:
    """Return the node of a stored snapshot; all iterators share it until the files change."""
    known = _RESOLVED.setdefault(node, {})
    if found not in known:
        values = {part.name: getattr(node, part.name) for part in fields(Snapshot)}
        if node.reader_func is None or node.make is None:
            known[found] = Stored(**values, found=found)
        else:
            read = read_by(node.reader_func, node.make, found_node(found, found.key))
            known[found] = Reread(**values, found=found, order=read._node)  # noqa: SLF001 - a Dataset
    return known[found]
