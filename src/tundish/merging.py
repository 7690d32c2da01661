"""Merging columns of several parts, each row at its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.gaps import room
from tundish.spec import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np


def _room(column: Any, count: int) -> np.ndarray:
    return room((count, *column.shape[1:]), column.dtype)


def merged(
    parts: Sequence[tuple[Any, Any]], count: int, make: Callable[[Any, int], Any] = _room
) -> Any:
    """Merge columns of several parts; None if they do not fit each other.

    Parameters
    ----------
    parts : sequence of (places, columns)
        For each part the places of its rows, an int64 array or a slice, and a nest of arrays or tensors of as many rows, or
        None for no rows. A single part with a slice is returned as it is.
    count : int
        The number of all rows.
    make : callable
        ``make(column, count)`` allocates `count` rows like those of a column.
    """
    if any(columns is None for _, columns in parts):
        return None
    if len(parts) == 1 and isinstance(parts[0][0], slice):
        return parts[0][1]
    places = [where for where, _ in parts]
    found = [flatten(columns) for _, columns in parts]
    tree = found[0][1]
    if any(other != tree for _, other in found):
        return None
    whole = []
    for columns in zip(*[own for own, _ in found], strict=True):
        first = columns[0]
        if any(_row_form(column) != _row_form(first) for column in columns[1:]):
            return None
        whole.append(make(first, count))
        for where, column in zip(places, columns, strict=True):
            whole[-1][where] = column
    return unflatten(tree, whole)


def _row_form(column: Any) -> Any:
    return type(column), column.dtype, column.shape[1:]
