"""Whether the numbers of an array are finite, and how many of them are not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.debugging.deciding import first_of, is_inexact, pieces
from tundish.spec import dtype_of

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


@dataclass(frozen=True)
class Health:
    """How many values of an array are not finite; a complex one counts once, nan before infinity.

    Attributes
    ----------
    size : int
        How many values there are.
    nan, pos_inf, neg_inf : int
        How many of them are nan, infinity, and minus infinity.
    """

    size: int
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0

    @property
    def finite(self) -> bool:
        """Whether all are finite."""
        return not (self.nan or self.pos_inf or self.neg_inf)

    def __str__(self) -> str:
        return f"{self.nan:,} nan, {self.pos_inf:,} inf, {self.neg_inf:,} -inf of {self.size:,}"


def is_floating(leaf: Any) -> bool:
    """Whether a leaf is an array or a number that may be nan: floating or complex.

    Examples
    --------
    >>> is_floating(np.float32(1)), is_floating(np.arange(3)), is_floating("nan")
    (True, False, False)
    """
    dtype = dtype_of(leaf)
    return dtype is not None and is_inexact(dtype)


def is_finite(leaf: Any) -> bool:
    """Whether all values of a floating leaf are finite."""
    return math.isfinite(leaf) if isinstance(leaf, float) else all_finite(np.asarray(leaf))


def health_of(leaf: Any) -> Health:
    """Count what is not finite in a floating leaf.

    Examples
    --------
    >>> print(health_of(np.array([0.0, np.nan, np.inf, -np.inf])))
    1 nan, 1 inf, 1 -inf of 4
    """
    array = np.asarray(leaf)
    if is_finite(array):
        return Health(array.size)
    nan = np.isnan(array)
    negative = _negative(array) & ~nan
    positive = np.isinf(array) & ~nan & ~negative
    counts = (int(np.count_nonzero(each)) for each in (nan, positive, negative))
    return Health(array.size, *counts)


def first_bad(leaf: Any, most: int) -> tuple[tuple[int, ...], ...]:
    """Where the first values stand that are not finite, in C order."""
    return first_of(np.asarray(~np.isfinite(np.asarray(leaf))), most)


def _negative(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "c":
        either: np.ndarray = (array.real == -np.inf) | (array.imag == -np.inf)
        return either
    with np.errstate(invalid="ignore"):  # bfloat16 and its kin warn where they compare nan
        found: np.ndarray = np.isinf(array) & (array < 0)
    return found
