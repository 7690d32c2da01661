"""Elements that stand in files, by their index: as they lie, where files are local and not compressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.batching import Batch
from tundish.loader.operators.choosing import Shard, Skip, Take
from tundish.loader.operators.concatenate import Concatenate
from tundish.loader.operators.files import Indexed, ReadFiles, ReadFilesInTurn
from tundish.loader.operators.loading import Dealt
from tundish.loader.operators.options import Prefetch, WithOptions
from tundish.loader.operators.repeat import Repeat
from tundish.loader.operators.shuffle import Shuffle
from tundish.loader.operators.snapshot import Snapshot
from tundish.loader.operators.stored import Found, Reread, Stored, reader_of
from tundish.loader.plan.checks import check_count
from tundish.loader.plan.node import walk
from tundish.loader.protocols.operator import Passing
from tundish.loader.watch.stats import SnapshotStats

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Operator, Value
    from tundish.loader.run.values import Make, Maker
    from tundish.snapshot.reading.reader import Reader
    from tundish.source import Source

_CHOOSING = (Dealt, Prefetch, Shard, Shuffle, Skip, Take, WithOptions)

_UNCOMPUTED = (*_CHOOSING, Passing, Batch, Concatenate, Repeat, Stored)


def computes_something(node: Operator) -> bool:
    """Whether workers could do something for an operator: what lies in mapped files is only read."""
    if isinstance(node, Stored) and not node.found.mapped:
        return True
    return not isinstance(node, _UNCOMPUTED)


def rows_of_found(found: Found) -> Callable[[int], Any]:
    """``rows(index)``: an element of a complete snapshot, negative indices from the end."""
    return rows_of(reader_of(found), found.rows)


def rows_of(source: Source, count: int) -> Callable[[int], Any]:
    """``rows(index)``: an element of what has random access, negative indices from the end."""
    get = source.__getitem__

    def rows(index: int) -> Any:
        if type(index) is int and 0 <= index < count:
            return get(index)
        at = check_count("index", index)
        if not -count <= at < count:
            allowed = f"from {-count} to {count - 1}" if count else "of some other dataset"
            raise IndexError(f"index must be {allowed} in a dataset of {count} elements, not {at}")
        return get(at + count if at < 0 else at)

    return rows


def source_of(node: Operator) -> Stored | None:
    """The snapshot whose elements a node chooses and orders, where its refs are indices of it."""
    while isinstance(node, _CHOOSING):
        node = node.up
    return node if isinstance(node, Stored) else None


def is_kept(node: Operator) -> bool:
    """Whether a plan's elements are those of a snapshot or a table, chosen or in batches: then they are read-only.

    Those of one that is complete are views of files, most of them. The others are no different: what
    changes elements in place is to fail in the first epoch.
    """
    while isinstance(node, (*_CHOOSING, Passing, Batch, Repeat)):
        node = node.up
    if isinstance(node, (Indexed, ReadFiles, ReadFilesInTurn)):
        return node.format.tabular
    return isinstance(node, Snapshot)


def frozen(element: Any) -> Any:
    """An element with its arrays read-only."""
    if isinstance(element, np.ndarray):
        element.flags.writeable = False
    elif type(element) is dict or isinstance(element, tuple):
        for part in element.values() if type(element) is dict else element:
            frozen(part)
    return element


def _batch(maker: Maker, node: Batch) -> Value:
    """A batch of a complete snapshot is a slice of it, or gathered with one copy."""
    usual = node.evaluator(maker)
    source = source_of(node.up)
    if source is None:
        return usual
    reader: Reader | None = None

    def value(item: Any, pass_: int) -> Any:
        nonlocal reader
        if reader is None:
            reader = reader_of(source.found)
        rows = item[1]
        if type(rows[0]) is not int:  # computed below
            return usual(item, pass_)
        first, count = rows[0], len(rows)
        if rows[-1] - first + 1 == count and rows == tuple(range(first, first + count)):
            batch = reader.stacked(first, first + count)
        else:
            batch = reader.take(np.array(rows, np.int64))
        return usual(item, pass_) if batch is None else batch

    return value


VALUES: dict[type[Operator], Make] = {Batch: _batch}


def snapshot_stats(context: Context) -> tuple[SnapshotStats, ...]:
    """What is done with each snapshot of a plan."""
    found = []
    for node in walk(context.root, running=True):
        if isinstance(node, (Stored, Reread)):
            at = node.found
            found.append(SnapshotStats(at.path, at.key, "", "read", at.rows, at.rows))
        elif isinstance(node, Snapshot) and id(node) in context.live:
            recorder = context.live[id(node)].recorder
            if recorder is None:
                found.append(SnapshotStats(node.path, "", "", "pass", 0, 0))
            else:
                found.append(recorder.stats())
    return tuple(found)
