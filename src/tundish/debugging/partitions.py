"""Comparison of ragged and sparse values, whose entries must stand in the same places."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.ragged import Ragged, Sparse


def misplaced(x: Any, y: Any) -> str | None:
    """Say why the entries of two values cannot be compared one by one; None if they can, or if neither is ragged or sparse.

    Examples
    --------
    >>> values = np.array([1, 2, 3])
    >>> misplaced(Ragged(values, np.array([0, 2, 3])), Ragged(values, np.array([0, 1, 3])))
    'row 0 has 2 entries and 1'
    >>> misplaced(Ragged(values, np.array([0, 2, 3])), 7)
    """
    if isinstance(x, Ragged) and isinstance(y, Ragged):
        return _rows(x, y) or misplaced(x.values, y.values)
    if isinstance(x, Sparse) and isinstance(y, Sparse):
        same = np.array_equal(x.dense_shape, y.dense_shape) and np.array_equal(x.indices, y.indices)
        return None if same else "the indices or shapes differ; compare to_dense()"
    if not (_is_parted(x) or _is_parted(y)) or _is_single(x) or _is_single(y):
        return None
    return "one is ragged or sparse and the other is not so; compare their values"


def _is_parted(value: Any) -> bool:
    return isinstance(value, (Ragged, Sparse))


def _is_single(value: Any) -> bool:
    return not _is_parted(value) and np.ndim(value) == 0


def _rows(x: Ragged, y: Ragged) -> str | None:
    """Say where the rows of ragged values differ in number or in length."""
    if x.row_splits.shape != y.row_splits.shape:
        return f"there are {x.nrows} rows and {y.nrows}"
    apart = np.argwhere(x.row_lengths != y.row_lengths)
    if not len(apart):
        return None
    at = tuple(apart[0].tolist())
    return f"row {', '.join(map(str, at))} has {x.row_lengths[at]} entries and {y.row_lengths[at]}"
