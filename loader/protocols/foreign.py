"""Columnar reads of datasets of other libraries: many samples at once.

Torch's `TensorDataset`, torch's combinations of datasets, and Hugging Face datasets hold columns. Asking one for a
thousand samples and stacking them takes a hundred times as long as taking a thousand rows of each column. The reads
defined here give the same bits; a class with overridden methods is asked for its samples.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tundish.loader.protocols.huggingface import columns_of_table, table_gives_alike
from tundish.loader.protocols.plain import (
    CARRIERS,
    Allocate,
    is_plain_array,
    is_plain_tensor,
    rows_of,
    within,
)
from tundish.merging import merged

_METHODS = ("__getitem__", "__getitems__", "__getattr__", "__getattribute__")


def columns_of(
    source: Any, at: np.ndarray, allocate: Allocate | None = None, *, together: bool = False
) -> Any:
    """Return samples by index, as columns.

    Parameters
    ----------
    source : object
        Any object with ``source[i]``.
    at : (n,) int64 ndarray
        Indices, at least one.
    allocate : callable, optional
        Returns the memory for a column. By default it is new.
    together : bool
        True to give samples as ``source.__getitems__`` gives them, if it has that: they may differ.

    Returns
    -------
    nest or None
        A column for each leaf, in the structure of a sample: a tensor, an array, or a list of values (only with
        `together`). None if the dataset has no known columns, or an index is negative or out of range.
    """
    find = _FINDERS.get(_kind_of(source))
    return None if find is None else find(source, at, allocate, together)


def has_columns(source: Any) -> bool:
    """Return True for a kind of dataset that may have columns."""
    return _kind_of(source) in _FINDERS


def as_arrays(columns: Any) -> Any:
    """Convert columns to a pipeline's arrays; None if numpy lacks the dtype of one."""
    if isinstance(columns, dict):
        parts = {key: as_arrays(each) for key, each in columns.items()}
        return None if any(each is None for each in parts.values()) else parts
    if isinstance(columns, tuple):
        several = tuple(map(as_arrays, columns))
        return None if any(each is None for each in several) else several
    if columns is None or isinstance(columns, np.ndarray):
        return columns
    name = str(columns.dtype).removeprefix("torch.")
    return None if name in CARRIERS else columns.numpy()


def gives_alike(source: Any) -> bool:
    """Return False if ``source.__getitems__`` is known to differ from ``source[i]``."""
    kind = _kind_of(source)
    if kind == _SUBSET:
        return gives_alike(source.dataset)
    if kind == _STACK:
        return all(map(gives_alike, _parts_of(source)))
    return kind != _TABLE or table_gives_alike(source)


def _kind_of(source: Any) -> str:
    """Return the full name of a known class of dataset with its own methods; else an empty string."""
    kind = type(source)
    torch: Any = sys.modules.get("torch")
    if kind is np.ndarray or kind is getattr(torch, "Tensor", None):
        return _ROWS
    for theirs in kind.__mro__:
        name = f"{theirs.__module__}.{theirs.__qualname__}"
        if name in _FINDERS:
            return name if _is_as_made(source, theirs) else ""
    return ""


def _is_as_made(source: Any, theirs: type) -> bool:
    """Return True if none of the methods from a dataset's class has been replaced."""
    kind = type(source)
    same = all(getattr(kind, name, None) is getattr(theirs, name, None) for name in _METHODS)
    own = [getattr(theirs, name, None) for name in ("__getitem__", "__getitems__")]
    made_there = all(each is None or each.__module__ == theirs.__module__ for each in own)
    return same and made_there and "__getitems__" not in getattr(source, "__dict__", {})


# -- each kind of dataset -------------------------------------------------------------------------


def _of_rows(source: Any, at: np.ndarray, allocate: Allocate | None, _together: bool) -> Any:
    """Take rows of a dataset that is an array or a tensor itself."""
    plain = is_plain_array(source) if type(source) is np.ndarray else is_plain_tensor(source)
    return rows_of(source, at, allocate) if plain and within(at, source) else None


def _of_tensors(source: Any, at: np.ndarray, allocate: Allocate | None, _together: bool) -> Any:
    tensors = source.tensors
    if not all(is_plain_tensor(each) and within(at, each) for each in tensors):
        return None
    return tuple(rows_of(each, at, allocate) for each in tensors)


def _of_subset(source: Any, at: np.ndarray, allocate: Allocate | None, together: bool) -> Any:
    inner = _translated(source.indices, at)
    return None if inner is None else columns_of(source.dataset, inner, allocate, together=together)


def _translated(indices: Any, at: np.ndarray) -> np.ndarray | None:
    """Return indices in the whole dataset, if they are plain integers."""
    if type(indices) is np.ndarray:
        plain = indices.ndim == 1 and indices.dtype.kind in "iu" and within(at, indices)
        return indices[at].astype(np.int64) if plain else None
    if type(indices) not in (list, tuple, range) or not within(at, indices):
        return None
    found = [indices[i] for i in at.tolist()]
    if set(map(type, found)) != {int}:
        return None
    try:
        return np.array(found, np.int64)
    except OverflowError:
        return None


def _of_parts(source: Any, at: np.ndarray, allocate: Allocate | None, together: bool) -> Any:
    """Take rows of several datasets that are combined side by side."""
    parts = [columns_of(each, at, allocate, together=together) for each in _parts_of(source)]
    if any(each is None for each in parts):
        return None
    if isinstance(source.datasets, dict):
        return dict(zip(source.datasets, parts, strict=True))
    return tuple(parts)


def _parts_of(source: Any) -> list[Any]:
    datasets = source.datasets
    return list(datasets.values() if isinstance(datasets, dict) else datasets)


def _of_chain(source: Any, at: np.ndarray, allocate: Allocate | None, _together: bool) -> Any:
    """Take rows of several datasets in sequence, which torch reads one by one."""
    ends = source.cumulative_sizes
    if not within(at, range(ends[-1])):
        return None
    which = np.searchsorted(ends, at, side="right")
    order = np.argsort(which, kind="stable")
    bounds = np.flatnonzero(np.diff(which[order], prepend=-1, append=len(ends)))
    parts = []
    for low, high in pairwise(bounds):
        here = order[low:high]
        part = int(which[here[0]])
        found = columns_of(source.datasets[part], at[here] - (ends[part - 1] if part else 0))
        if found is None:
            return None
        parts.append((here, found))
    # The memory is made of copies of row 0, all of which are overwritten.
    return merged(parts, len(at), lambda each, n: rows_of(each, np.zeros(n, np.int64), allocate))


_ROWS = "rows"
_SUBSET = "torch.utils.data.dataset.Subset"
_STACK = "torch.utils.data.dataset.StackDataset"
_TABLE = "datasets.arrow_dataset.Dataset"
_FINDERS: dict[str, Callable[..., Any]] = {
    _ROWS: _of_rows,
    "torch.utils.data.dataset.TensorDataset": _of_tensors,
    _SUBSET: _of_subset,
    _STACK: _of_parts,
    "torch.utils.data.dataset.ConcatDataset": _of_chain,
    _TABLE: columns_of_table,
}
