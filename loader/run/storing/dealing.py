"""Which elements of a complete snapshot each user shard has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.operators.opening import shard_indices
from tundish.loader.operators.saving import read_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.operators.saving import Load
    from tundish.loader.operators.storing import DatasetClass, Found


def shard_sizes(found: Found) -> list[int]:
    """How many elements each user shard has; none of what is empty."""
    return [len(indices) for indices in shard_indices(found)] if found.rows else []


def in_order_of(reader_func: Callable[..., Any], make: type[DatasetClass], node: Load) -> Any:
    """The dataset that a `reader_func` makes of a snapshot."""
    return read_by(reader_func, make, node, shard_sizes(node.found))
