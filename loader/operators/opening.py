"""Readers of complete snapshots, one of each in a process, and the elements that each user shard has."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:
    from tundish.loader.operators.storing import Found
    from tundish.snapshot.reading.reader import Reader

_READERS: WeakKeyDictionary[Found, Reader] = WeakKeyDictionary()


def reader_of(found: Found) -> Reader:
    """The reader of a complete snapshot; one for as long as a plan has it.

    Mapping a file anew for each epoch would cost as much as reading it.
    """
    reader = _READERS.get(found)
    if reader is None:
        # pyarrow takes a while to load, and is needed by nobody else.
        from tundish.snapshot.reading.reader import open_reader  # noqa: PLC0415 - see above

        reader = _READERS[found] = open_reader(
            found.path, found.key, runs=found.runs, upto=found.upto, verify=found.verify
        )
    return reader


def look_again(found: Found) -> None:
    """A pass begins: ask the files of an open reader whether they were changed."""
    reader = _READERS.get(found)
    if reader is not None:
        reader.look_again()


_INDICES: WeakKeyDictionary[Reader, tuple[np.ndarray, ...]] = WeakKeyDictionary()


def shard_indices(found: Found) -> tuple[np.ndarray, ...]:
    """The indices of each user shard's elements, ascending; of each file's without `shard_func`.

    An element that failed was dealt to nobody: it stands behind the element before it.
    """
    reader = reader_of(found)
    if reader not in _INDICES:
        shards = [shard.indices for shard in reader.shards] or [np.empty(0, np.int64)]
        if reader.errors:
            shards = _with_errors(shards, np.array(sorted(reader.errors), np.int64))
        _INDICES[reader] = tuple(shards)
    return _INDICES[reader]


def _with_errors(shards: list[np.ndarray], errors: np.ndarray) -> list[np.ndarray]:
    owner = np.concatenate([np.full(len(indices), k) for k, indices in enumerate(shards)])
    order = np.argsort(indices := np.concatenate(shards))
    before = np.searchsorted(indices[order], errors) - 1
    owners = owner[order][np.maximum(before, 0)] if len(owner) else np.zeros(len(errors), np.int64)
    return [np.sort(np.append(shard, errors[owners == k])) for k, shard in enumerate(shards)]
