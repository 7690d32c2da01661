"""Whether the numbers of an array are finite, and how many of them are not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.debugging.entries import first_of, is_inexact
from tundish.debugging.finite import all_finite
from tundish.spec import dtype_of

__all__ = ["Health", "first_bad", "health_of", "is_finite", "is_floating"]


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
