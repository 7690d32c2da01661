"""Which elements of a complete snapshot each user shard has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from tundish.loader.plan.saving import read_by
from tundish.loader.run.storing.opening import reader_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.plan.saving import Load
    from tundish.loader.plan.storing import DatasetClass, Found
    from tundish.snapshot.reading.reader import Reader

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


def shard_sizes(found: Found) -> list[int]:
    """How many elements each user shard has; none of what is empty."""
    return [len(indices) for indices in shard_indices(found)] if found.rows else []


def in_order_of(reader_func: Callable[..., Any], make: type[DatasetClass], node: Load) -> Any:
    """The dataset that a `reader_func` makes of a snapshot."""
    return read_by(reader_func, make, node, shard_sizes(node.found))


def _with_errors(shards: list[np.ndarray], errors: np.ndarray) -> list[np.ndarray]:
    owner = np.concatenate([np.full(len(indices), k) for k, indices in enumerate(shards)])
    order = np.argsort(indices := np.concatenate(shards))
    before = np.searchsorted(indices[order], errors) - 1
    owners = owner[order][np.maximum(before, 0)] if len(owner) else np.zeros(len(errors), np.int64)
    return [np.sort(np.append(shard, errors[owners == k])) for k, shard in enumerate(shards)]
