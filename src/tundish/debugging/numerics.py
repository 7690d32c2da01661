"""Checks for numbers that are none: nan and infinities."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.debugging.deciding import first_of
from tundish.debugging.finite import all_finite, health_of
from tundish.debugging.leaves import array_of, check_message, leaves_of, show
from tundish.errors import CheckError

SHOWN = 3


def check_numerics(tensor: Any, message: str | None = None, name: str | None = None) -> Any:
    """Fail if a value holds a nan or an infinity; give it back otherwise.

    Parameters
    ----------
    tensor : array, number or nest
        Of any dtype; in what has no nan there is nothing to find. Of a nest, every leaf.
    message : str, optional
        Stands first in the error.
    name : str, optional
        For tensorflow's sake; ignored.

    Returns
    -------
    object
        `tensor` itself.

    Raises
    ------
    CheckError
        With the numbers of nan, inf and -inf, the indices of the first ones, shape and dtype.

    Notes
    -----
    tensorflow wants a message, and refuses integers and strings; here they pass, so that a whole
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
    """Whether there may be a nan in a leaf: not in a text, None, or an object of the user's."""
    return isinstance(leaf, (float, complex, list, tuple)) or hasattr(leaf, "dtype")


def _fail(array: np.ndarray, leaf: Any, path: str, message: str) -> None:
    indices = first_of(~np.isfinite(array), SHOWN)
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
    """Fail if a value holds a nan or an infinity; another name of `check_numerics`.

    Parameters
    ----------
    x : array, number or nest
        What is checked.
    message : str, optional
        Stands first in the error.
    name : str, optional
        For tensorflow's sake; ignored.

    Returns
    -------
    object
        `x` itself.

    Raises
    ------
    CheckError
        As `check_numerics` does.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_all_finite([1.0, 2.0], "losses")
    [1.0, 2.0]
    """
    return check_numerics(x, message, name)
