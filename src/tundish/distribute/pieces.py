"""Batches cut into rows, filled up, and of no rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.errors import SpecError
from tundish.spec import ArraySpec, flatten, map_leaves, paths, spec_of

__all__ = ["cut", "filled", "no_rows", "rows_in", "with_mask"]

NO_ROWS = "every leaf of an element must be an array whose rows can be divided: call `batch` last"


def rows_in(batch: Any) -> int:
    """How many rows the leaves of a batch have.

    Raises
    ------
    SpecError
        A leaf is no array, or they differ.
    """
    leaves, tree = flatten(batch)
    sizes = set()
    for leaf, path in zip(leaves, paths(tree), strict=True):
        if not isinstance(leaf, np.ndarray) or not leaf.ndim:
            where = f" at {path}" if path else ""
            raise SpecError(f"{NO_ROWS}; here it is {spec_of(leaf)}{where}")
        sizes.add(len(leaf))
    if len(sizes) != 1:
        raise SpecError(f"{NO_ROWS}; first dimensions are {sorted(sizes)}")
    return sizes.pop()


def cut(batch: Any, first: int, stop: int) -> Any:
    """Some rows of a batch: views of it."""
    return map_leaves(lambda leaf: leaf[first:stop], batch)


def no_rows(like: Any) -> Any:
    """A batch without rows, of the dtypes and shapes of another batch or of a spec."""

    def empty(leaf: Any) -> np.ndarray:
        if not isinstance(leaf, ArraySpec):
            return np.asarray(leaf)[:0]
        sizes = [size or 0 for size in (leaf.shape or ())[1:]]
        return np.empty((0, *sizes), leaf.dtype if isinstance(leaf.dtype, np.dtype) else object)

    return map_leaves(empty, like)


def filled(batch: Any, rows: int, like: Any) -> Any:
    """A batch with rows of zeros behind its own, up to so many; "" for str, b"" for bytes.

    `like` is a batch that tells what objects the rows are where this one has none.
    """
    others = flatten(like)[0]

    def longer(leaf: np.ndarray, other: np.ndarray) -> np.ndarray:
        if len(leaf) == rows:
            return leaf
        made = np.zeros((rows, *leaf.shape[1:]), leaf.dtype)
        made[: len(leaf)] = leaf
        if leaf.dtype.hasobject:
            some = next(iter((leaf if leaf.size else other).flat), "")
            made[len(leaf) :] = type(some)() if isinstance(some, (str, bytes)) else None
        return made

    leaves = iter(others)
    return map_leaves(lambda leaf: longer(leaf, next(leaves)), batch)


def with_mask(batch: Any, real: int, rows: int, key: str) -> dict[str, Any]:
    """A batch that says which of its rows are real.

    Raises
    ------
    SpecError
        It is no dict, or has the key already.
    """
    if type(batch) is not dict:
        raise SpecError(
            f"uneven='pad' marks real rows by a key of a dict, and elements are {spec_of(batch)}: "
            "make dicts of them in a `map`"
        )
    if key in batch:
        raise SpecError(f"mask_key {key!r} is a key of the elements; name another one")
    return {**batch, key: np.arange(rows) < real}
