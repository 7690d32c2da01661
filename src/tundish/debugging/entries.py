"""Whether a condition holds for every entry of arrays, in about one pass, and where it does not.

Nothing of an array's size is made while the condition holds: against one number an array's least
or largest entry decides, and two arrays are compared in pieces that stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["Condition", "broken", "first_of", "holds", "is_inexact", "pieces"]

Condition = Callable[..., Any]
"""Of arrays that broadcast: where it holds."""

PIECE = 1 << 17
"""Entries at a time."""

_EXTREME = {
    np.less: np.maximum,
    np.less_equal: np.maximum,
    np.greater: np.minimum,
    np.greater_equal: np.minimum,
}
_MIRRORED = {
    np.less: np.greater,
    np.less_equal: np.greater_equal,
    np.greater: np.less,
    np.greater_equal: np.less_equal,
}


def holds(condition: Condition, *operands: Any) -> bool:
    """Whether a condition holds for every entry.

    Parameters
    ----------
    condition : callable
        A numpy comparison, or another function of arrays.
    *operands : array or number
        They broadcast; a Python number takes the dtype of the others.

    Raises
    ------
    ValueError
        The shapes do not broadcast.
    TypeError
        The dtypes cannot be compared.
    """
    if math.prod([getattr(operand, "size", 1) for operand in operands]) <= PIECE:
        return bool(np.all(condition(*operands)))
    shape = np.broadcast_shapes(*[np.shape(operand) for operand in operands])
    if math.prod(shape) <= PIECE:
        return bool(np.all(condition(*operands)))
    if condition in _EXTREME:
        x, y = operands
        if np.ndim(x) == 0:
            condition, x, y = _MIRRORED[condition], y, x
        if np.ndim(y) == 0 and _has_quick_extremes(x):
            return bool(condition(_EXTREME[condition].reduce(x, axis=None), y))
        operands = x, y
    arrays = [np.asarray(x, _weak_dtype(x, operands)) for x in operands]
    return all(bool(np.all(condition(*parts))) for parts in pieces(*arrays))


def is_inexact(dtype: np.dtype) -> bool:
    """Whether a dtype has nan: floats and complex numbers, ml_dtypes' floats too."""
    return dtype.kind in "fc" or (dtype.kind == "V" and "float" in dtype.name)


def _has_quick_extremes(x: Any) -> bool:
    """Floats of 16 bits have not: numpy compares them one by one. A nan is the extreme."""
    return x.dtype.kind in "iumM" or (x.dtype.kind == "f" and x.dtype.itemsize > 2)


def _weak_dtype(x: Any, operands: tuple[Any, ...]) -> np.dtype | None:
    """Of a Python number beside floats their dtype, as in numpy's own functions; None: its own."""
    if type(x) not in {int, float}:
        return None
    others = [o.dtype for o in operands if isinstance(o, (np.ndarray, np.generic))]
    return next((dtype for dtype in others if is_inexact(dtype)), None)


def pieces(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Arrays that broadcast, in pieces of at most `PIECE` entries, in the order of memory."""
    if all(array.flags.c_contiguous for array in arrays) and len({a.shape for a in arrays}) == 1:
        flat = [array.reshape(-1) for array in arrays]
        for first in range(0, flat[0].size, PIECE):
            yield tuple([array[first : first + PIECE] for array in flat])
        return
    flags: Any = ["external_loop", "buffered", "refs_ok", "zerosize_ok"]
    found: Any = np.nditer(arrays, flags=flags, order="K", buffersize=PIECE)
    for parts in found:
        yield parts if isinstance(parts, tuple) else (parts,)


def broken(condition: Condition, *operands: Any) -> np.ndarray:
    """Where a condition does not hold: a bool for every entry of the broadcast shape."""
    shape = np.broadcast_shapes(*[np.shape(operand) for operand in operands])
    return np.broadcast_to(~np.asarray(condition(*operands), bool), shape)


def first_of(mask: np.ndarray, most: int | None) -> tuple[tuple[int, ...], ...]:
    """Indices of the first entries that are true, in C order; all of them if `most` is None."""
    flat = mask.reshape(-1)
    places: list[int] = []
    for first in range(0, flat.size, PIECE):
        if most is not None and len(places) >= most:
            break
        places += (np.flatnonzero(flat[first : first + PIECE]) + first).tolist()
    found = np.unravel_index(places[:most], mask.shape) if mask.ndim and places[:most] else ()
    if not mask.ndim:
        return ((),) if places[:most] else ()
    return tuple(tuple(int(i) for i in index) for index in zip(*found, strict=True))
