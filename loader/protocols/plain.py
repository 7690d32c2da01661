"""Rows of a plain array or tensor that is one column of a dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Allocate = Callable[[tuple[int, ...], "np.dtype[Any]"], np.ndarray]
"""``allocate(shape, dtype)``: writable memory for a column."""

CARRIERS = {"bfloat16": np.dtype(np.int16)}
"""Dtypes that numpy lacks, and numpy's dtypes of the same size."""

_CHARS = frozenset("?bBhHiIlefdFD")  # dtypes of which an array and its numbers become equal tensors
_UNSIGNED = ("uint16", "uint32", "uint64")  # torch has few functions for these
_SAME_NAMES = frozenset(
    {"bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"}
    | {"float16", "float32", "float64", "complex64", "complex128"}
)


def within(at: np.ndarray, column: Any) -> bool:
    """Return True if all indices are in a column's range."""
    return int(at.view(np.uint64).max()) < len(column)  # what is negative becomes huge


def is_plain_array(value: Any) -> bool:
    """Return True if stacking rows of an array gives the same as indexing it."""
    return (
        type(value) is np.ndarray
        and value.ndim > 0
        and value.dtype.char in _CHARS
        and value.dtype.isnative
        and value.flags.c_contiguous
    )


def is_dense_tensor(value: Any) -> bool:
    """Return True for a CPU tensor of torch's own class whose bits numpy can represent."""
    torch: Any = sys.modules.get("torch")
    return (
        type(value) is getattr(torch, "Tensor", None)
        and not value.is_nested
        and value.is_cpu
        and value.layout is torch.strided
        and not value.requires_grad
        and not any(getattr(value, "names", ()))  # no longer in torch
        and str(value.dtype).removeprefix("torch.") in _SAME_NAMES | CARRIERS.keys()
    )


def is_plain_tensor(value: Any) -> bool:
    """Return True if stacking rows of a tensor gives the same as indexing it."""
    return (
        is_dense_tensor(value)
        and value.ndim > 0
        and value.is_contiguous()
        and not value.is_conj()
        and not value.is_neg()
    )


def rows_of(column: Any, at: np.ndarray, allocate: Allocate | None) -> Any:
    """Take rows of a plain array or tensor.

    Parameters
    ----------
    column : (m, ...) ndarray or Tensor
        The column. It is not changed; not even a tensor's storage is marked, as by ``numpy()``.
    at : (n,) int64 ndarray
        Indices from 0 to m - 1.
    allocate : callable or None
        Returns the memory for the rows; None for new memory.

    Returns
    -------
    (n, ...) ndarray or Tensor
    """
    shape = (len(at), *column.shape[1:])
    if isinstance(column, np.ndarray):
        into = None if allocate is None else allocate(shape, column.dtype)
        return column.take(at, axis=0, out=into, mode="clip")  # "raise" writes `into` twice
    torch: Any = sys.modules["torch"]
    name = str(column.dtype).removeprefix("torch.")
    signed = getattr(torch, name.removeprefix("u") if name in _UNSIGNED else name)
    whole, index = column.view(signed), torch.from_numpy(at)
    if allocate is None:
        return whole.index_select(0, index).view(column.dtype)
    memory = torch.from_numpy(allocate(shape, CARRIERS.get(name) or np.dtype(name)))
    return torch.index_select(whole, 0, index, out=memory.view(signed)).view(column.dtype)
