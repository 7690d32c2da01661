"""Padding of structured dtypes: bytes between fields that belong to no field.

``np.dtype(..., align=True)`` has padding, and so has a selection of fields (``array[["x", "z"]]``). Numpy copies field by
field, so in an array made by `numpy.empty` or ``copy`` the padding has the previous contents of that memory, which
would get into batches and files. Elements have zeros there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np


@lru_cache(maxsize=256)
def has_gaps(dtype: np.dtype) -> bool:
    """Return True if items of a dtype have padding; unknown, and False, if it contains objects.

    Examples
    --------
    >>> fields = [("a", "u1"), ("b", "f8")]
    >>> has_gaps(np.dtype(fields)), has_gaps(np.dtype(fields, align=True))
    (False, True)
    """
    return not dtype.hasobject and not _used(dtype).all()


def _used(dtype: np.dtype) -> np.ndarray:
    """Return which bytes of an item belong to a field."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.tile(_used(base), int(np.prod(shape, dtype=np.int64)))
    used = np.full(dtype.itemsize, dtype.fields is None)
    for name in dtype.names or ():
        kind, at = dtype.fields[name][:2]  # type: ignore[index]  # it has names, so it has fields
        used[at : at + kind.itemsize] |= _used(kind)
    return used


def room(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array for writing, uninitialised except for padding."""
    if dtype.kind == "V" and has_gaps(dtype):
        return np.zeros(shape, dtype)
    return np.empty(shape, dtype)


def copied(value: Any) -> Any:
    r"""Copy an array or a struct, with zeros in its padding.

    Examples
    --------
    >>> array = np.frombuffer(b"\x01\xff\x02\x00", np.dtype([("a", "u1"), ("b", "<u2")], align=True))
    >>> copied(array).tobytes()
    b'\x01\x00\x02\x00'
    """
    dtype = value.dtype
    if dtype.kind != "V" or not has_gaps(dtype):
        return value.copy()
    made = np.zeros(value.shape, dtype)
    # A copy of what has no dimensions would be one of all its bytes.
    made.reshape(-1)[:] = np.reshape(value, -1)
    return made if isinstance(value, np.ndarray) else made[()]


def clear(rows: np.ndarray) -> None:
    """Zero rows of a contiguous column before they are written, if their dtype has padding."""
    if rows.dtype.kind == "V" and has_gaps(rows.dtype):
        rows.reshape(-1).view(np.uint8)[:] = 0
