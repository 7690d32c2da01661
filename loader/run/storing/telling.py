"""Messages about snapshots when an iterator is made: what changed, who writes, what is refused."""

from __future__ import annotations

import logging
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

from tundish.errors import IncompatibleSnapshotError
from tundish.loader.operators.snapshot import snapshots
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.files.store import open_store
from tundish.snapshot.fingerprint.differences import differences, moved, touched
from tundish.snapshot.fingerprint.keys import describe_interpreter
from tundish.snapshot.lease import Holder, holder_of, lease_name

if TYPE_CHECKING:
    from tundish.loader.operators.snapshot import Snapshot
    from tundish.loader.protocols.operator import Operator

log = logging.getLogger("tundish.snapshot")

_TOLD: weakref.WeakSet[Operator] = weakref.WeakSet()
_TOLD_OF_OTHERS: weakref.WeakSet[Operator] = weakref.WeakSet()
_MANY_KEYS = 4


def check_mismatch(catalog: Catalog, node: Snapshot, key: str, pipeline: Any) -> None:
    """Warn, or raise, if there are only snapshots of other pipelines."""
    keys = catalog.keys()
    if key in keys or not keys or node.keeping.on_mismatch == "any":
        return
    told = _changed(catalog, pipeline)
    if node.keeping.on_mismatch == "error":
        raise IncompatibleSnapshotError(
            f"{node.path}: there are only snapshots of other pipelines here; what changed: {told}. "
            "on_mismatch='new' writes a new one beside them, Dataset.load reads the newest"
        )
    log.warning(
        "snapshot %s: the pipeline is not the one that was kept; a new one is written. What changed: %s",
        node.path,
        told,
    )
    if len(keys) >= _MANY_KEYS:
        log.warning(
            "snapshot %s: %d pipelines are stored here; `tundish snapshot gc %s` removes old ones",
            node.path,
            len(keys),
            node.path,
        )


def _changed(catalog: Catalog, pipeline: Any) -> str:
    """Describe how a pipeline differs from the newest one that has a snapshot."""
    other = catalog.newest() or catalog.keys()[-1]
    changed = differences(catalog.pipeline(other) or [], pipeline)
    return "; ".join(changed[:8]) or (
        f"not the pipeline: its version=, or the version of Python (this is {describe_interpreter()}), which functions are "
        "compared within"
    )


def say_touched(node: Snapshot, key: str, pipeline: Any) -> None:
    """Warn, once, of input files that were rewritten, or are others of the same names and sizes."""
    if node in _TOLD:
        return
    _TOLD.add(node)
    catalog = Catalog(node.path)
    manifest = catalog.manifest(key)
    if manifest is None or (manifest.generation and not manifest.inputs):
        return  # an earlier version made it anew, and the key's description is that of the first one
    lines = touched(catalog.inputs(key, manifest.inputs), pipeline)
    if lines:
        lines += moved(catalog.pipeline(key) or [], pipeline)
    for line in lines:
        log.warning("snapshot %s: %s; the stored elements are read", node.path, line)


def say_not_continued(catalog: Catalog, node: Snapshot, key: str, pipeline: Any) -> None:
    """Warn that an unfinished snapshot is left, as its input files were rewritten with the same sizes."""
    other = catalog.best_run(key, part=node.keeping.part, living=True)
    if other is None or not other.next:
        return
    for line in touched(catalog.inputs(key, other.header.inputs), pipeline):
        log.warning(
            "snapshot %s: %s; the unfinished snapshot of the earlier files is not used, and a new one is begun",
            node.path,
            line,
        )


def say_who_writes(node: Snapshot, key: str, refused: OSError | None) -> None:
    """Warn that nothing is written, and say who is writing."""
    if refused is not None:
        log.warning(
            "snapshot %s: nothing can be written there (%s): stored elements are read, the others are computed "
            "in each epoch",
            node.path,
            refused,
        )
        return
    holder = holder_of(open_store(node.path), lease_name(key, node.keeping.part))
    if holder == Holder.here():
        if node not in _TOLD_OF_OTHERS:
            _TOLD_OF_OTHERS.add(node)
            log.warning(
                "snapshot %s: another iterator of this program, which is still open, writes it; this one computes what is "
                "not on disk and writes nothing. Close that one (`with iter(ds) as it:`), and this will be written",
                node.path,
            )
        return
    log.info(
        "snapshot %s: %s is writing it; this process only passes elements through",
        node.path,
        holder,
    )


@cache
def _say_once(text: str) -> None:
    log.warning(text)


def say_not_written(root: Operator) -> None:
    """Warn, once a process, that a snapshot in a dataset that a function returned is not written."""
    if any(node.keeping.mode != "off" for node in snapshots(root)):
        _say_once(
            "a snapshot, or a cache in files, in a dataset that a function returns (flat_map, interleave) is read if it is "
            "complete, and never written: its elements are computed each time. Put it after flat_map or interleave, or "
            "write it beforehand, outside of the function"
        )


def incomplete(path: str, key: str, pipeline: Any) -> str:
    """Return the message for ``mode="read"`` when no snapshot is complete."""
    catalog = Catalog(path)
    prefix, keys = catalog.best_run(key, living=True), catalog.keys()
    have = "nothing of it is there"
    if prefix is not None:
        have = f"{prefix.next:,} elements are durable"
    elif keys and key not in keys:
        have = f"there is one of another pipeline; what changed: {_changed(catalog, pipeline)}"
    return (
        f"{path}: mode='read' needs a complete snapshot of this pipeline ({key}), and {have}; "
        "run it once with mode='auto', or `tundish snapshot write`"
    )
