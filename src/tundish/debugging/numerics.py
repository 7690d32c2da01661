"""Checks for nan and infinity."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from tundish.debugging.deciding import first_of, is_inexact, pieces
from tundish.debugging.leaves import array_of, check_message, leaves_of, show
from tundish.errors import CheckError
from tundish.spec import dtype_of

SHOWN = 3


def check_numerics(tensor: Any, message: str | None = None, name: str | None = None) -> Any:
    """Return a value unless it contains a nan or an infinity.

    Parameters
    ----------
    tensor : array, number or nest
        The value, of any dtype; dtypes without nan pass. Every leaf of a nest is checked.
    message : str, optional
        Text at the beginning of the error.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `tensor` itself.

    Raises
    ------
    CheckError
        The message has the numbers of nan, inf and -inf, the indices of the first ones, the shape and the dtype.

    Notes
    -----
    TensorFlow requires a message, and refuses integers and strings. Here these pass, so that a whole
    element can be checked. A complex number counts once.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.check_numerics(np.array([[1.0, np.nan]]), "after the logarithm")
    Traceback (most recent call last):
    tundish.errors.CheckError: after the logarithm: x has 1 nan, 0 inf, 0 -inf of 2
      x: float64 (1, 2)
      at [0, 1]: nan
    """
    said = check_message(message)
    for path, leaf in leaves_of(tensor):
        if has_numbers(leaf):
            array = array_of(leaf, f"x{path}")
            if not all_finite(array):
                _fail(array, leaf, path, said)
    return tensor


def has_numbers(leaf: Any) -> bool:
    """Return True if a leaf may contain nan: text, None and the user's objects cannot."""
    return isinstance(leaf, (float, complex, list, tuple)) or hasattr(leaf, "dtype")


def _fail(array: np.ndarray, leaf: Any, path: str, message: str) -> None:
    indices = first_bad(array, SHOWN)
    with np.errstate(invalid="ignore"):  # ml_dtypes warn of nan
        health = health_of(array)
    raise CheckError(
        f"x{path} has {health}",
        message,
        path,
        indices,
        (f"x{path}: {show(leaf)}", *(f"at {list(index)}: {array[index]}" for index in indices)),
    )


def assert_all_finite(x: Any, message: str | None = None, name: str | None = None) -> Any:
    """Fail if a value contains a nan or an infinity; another name of `check_numerics`.

    Parameters
    ----------
    x : array, number or nest
        What is checked.
    message : str, optional
        Text at the beginning of the error.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself.

    Raises
    ------
    CheckError
        As for `check_numerics`.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_all_finite([1.0, 2.0], "losses")
    [1.0, 2.0]
    """
    return check_numerics(x, message, name)


BYTES = 1 << 19
"""The number of bytes at a time; they stay in the cache for the second look."""

SMALL = 1 << 12
"""The number of entries below which numpy's own function is done before anything else has begun."""

_INFINITY: dict[str, int] = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "float64": 0x7FF0000000000000,
}
"""The bits of infinity by dtype: those of a nan are above them, of a finite number below."""


def parts_of(array: np.ndarray) -> list[np.ndarray]:
    """Return the real and imaginary parts of complex numbers, and the fields of structures that may hold nan; else the array."""
    if array.dtype.names is not None:
        return [part for each in _fields(array) for part in parts_of(each)]
    if array.dtype.kind != "c":
        return [array]
    if array.flags.c_contiguous and array.ndim:
        return [array.view(array.real.dtype)]
    return [array.real, array.imag]


def all_finite(array: np.ndarray) -> bool:
    """Return True if no entry is nan or infinite, including arrays that cannot contain them.

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
    if not may_be_nan(array.dtype):
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
    """Counts of an array's values that are not finite; a complex one counts once, nan before infinity.

    Attributes
    ----------
    size : int
        The number of values.
    nan, pos_inf, neg_inf : int
        How many of them are nan, infinity, and minus infinity.
    """

    size: int
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0

    @property
    def finite(self) -> bool:
        """True if all are finite."""
        return not (self.nan or self.pos_inf or self.neg_inf)

    def __str__(self) -> str:
        return f"{self.nan:,} nan, {self.pos_inf:,} inf, {self.neg_inf:,} -inf of {self.size:,}"


def is_floating(leaf: Any) -> bool:
    """Return True if a leaf is an array or a number that may be nan: floating or complex, or a structure of such.

    Examples
    --------
    >>> is_floating(np.float32(1)), is_floating(np.arange(3)), is_floating("nan")
    (True, False, False)
    """
    dtype = dtype_of(leaf)
    return dtype is not None and may_be_nan(dtype)


def is_finite(leaf: Any) -> bool:
    """Return True if all values of a floating leaf are finite."""
    return math.isfinite(leaf) if isinstance(leaf, float) else all_finite(np.asarray(leaf))


def health_of(leaf: Any) -> Health:
    """Count the values of a floating leaf that are not finite.

    Examples
    --------
    >>> print(health_of(np.array([0.0, np.nan, np.inf, -np.inf])))
    1 nan, 1 inf, 1 -inf of 4
    """
    array = np.asarray(leaf)
    if array.dtype.names is not None:
        parts = [health_of(each) for each in _fields(array)]
        return Health(*(sum(column) for column in zip(*map(astuple, parts), strict=True)))
    if is_finite(array):
        return Health(array.size)
    nan = np.isnan(array)
    negative = _negative(array) & ~nan
    positive = np.isinf(array) & ~nan & ~negative
    counts = (int(np.count_nonzero(each)) for each in (nan, positive, negative))
    return Health(array.size, *counts)


def first_bad(leaf: Any, most: int) -> tuple[tuple[int, ...], ...]:
    """Return indices of the first values that are not finite, in C order."""
    return first_of(_bad(np.asarray(leaf)), most)


def _bad(array: np.ndarray) -> np.ndarray:
    """Return where an array is not finite; a structure where one of its fields is not."""
    if array.dtype.names is None:
        return np.asarray(~np.isfinite(array))
    bad = np.zeros(array.shape, bool)
    for each in _fields(array):
        bad |= _bad(each).reshape(*array.shape, -1).any(-1)
    return bad


def may_be_nan(dtype: np.dtype) -> bool:
    """Return True if a dtype has nan, or is a structure with a field that has.

    Examples
    --------
    >>> may_be_nan(np.dtype([("id", "i4"), ("x", "f4", 2)])), may_be_nan(np.dtype("i4"))
    (True, False)
    """
    if dtype.names is None:
        return is_inexact(dtype.base)
    return any(may_be_nan(dtype[name]) for name in dtype.names)


def _fields(array: np.ndarray) -> list[np.ndarray]:
    names = array.dtype.names or ()
    return [array[name] for name in names if may_be_nan(array.dtype[name])]


def _negative(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "c":
        either: np.ndarray = (array.real == -np.inf) | (array.imag == -np.inf)
        return either
    with np.errstate(invalid="ignore"):  # bfloat16 and its kin warn where they compare nan
        found: np.ndarray = np.isinf(array) & (array < 0)
    return found
