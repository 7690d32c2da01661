"""Whether all entries of an array are finite, in about one pass over its bytes."""

from __future__ import annotations

import numpy as np

from tundish.debugging.entries import is_inexact, pieces

__all__ = ["all_finite"]

BYTES = 1 << 19
"""How many at a time; they stay in the cache for the second look."""

SMALL = 1 << 12
"""Of so few entries, numpy's own function is done before anything else has begun."""

_INFINITY: dict[str, int] = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "float64": 0x7FF0000000000000,
}
"""The bits of infinity by dtype: those of a nan are above them, of a finite number below."""


def parts_of(array: np.ndarray) -> list[np.ndarray]:
    """The real and the imaginary part of complex numbers; others as they are."""
    if array.dtype.kind != "c":
        return [array]
    if array.flags.c_contiguous and array.ndim:
        return [array.view(array.real.dtype)]
    return [array.real, array.imag]


def all_finite(array: np.ndarray) -> bool:
    """Whether no entry is nan or infinite; true of what has neither.

    Parameters
    ----------
    array : numpy.ndarray
        Of any shape and dtype. It is not copied.

    Notes
    -----
    A float is finite if its bits without the sign are less than those of infinity. So the largest
    of the bits decides, as signed integers and as unsigned ones, for which numpy has the fastest
    loops. It is exact: nothing is added up that could overflow.

    Examples
    --------
    >>> all_finite(np.array([1.0, 2.0])), all_finite(np.array([1.0, -np.inf]))
    (True, False)
    """
    if not is_inexact(array.dtype):
        return True
    return all(_part_is_finite(part) for part in parts_of(array))


def _part_is_finite(array: np.ndarray) -> bool:
    infinity = _INFINITY.get(array.dtype.name)
    if array.size <= SMALL and array.dtype.kind == "f":
        return bool(np.isfinite(array).all())
    if infinity is None or not array.dtype.isnative or not array.flags.c_contiguous:
        with np.errstate(invalid="ignore"):  # ml_dtypes warn of nan
            return all(bool(np.isfinite(piece).all()) for (piece,) in pieces(array))
    size = array.dtype.itemsize
    flat, sign = array.reshape(-1), 1 << (8 * size - 1)
    signed, unsigned = flat.view(f"i{size}"), flat.view(f"u{size}")
    step = BYTES // size
    for first in range(0, flat.size, step):
        if (
            int(signed[first : first + step].max()) >= infinity
            or int(unsigned[first : first + step].max()) >= infinity | sign
        ):
            return False
    return True
