"""Checks that compare every entry with zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.debugging.deciding import compare


def assert_positive(
    x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
) -> Any:
    """Fail unless ``x > 0`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    message : str, optional
        Stands first in the error.
    summarize : int, optional
        How many entries the error shows: 3; -1: all.
    name : str, optional
        For tensorflow's sake; ignored.

    Returns
    -------
    object
        `x` itself (tensorflow: None).

    Raises
    ------
    CheckError
        With the first entries for which it does not hold, their indices, shapes and dtypes.
    CheckTypeError
        The values cannot be compared.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_positive([1, 0], "lengths")
    Traceback (most recent call last):
    tundish.errors.CheckError: lengths: x > 0 does not hold for 1 of 2 entries
      x: int64 (2,)
      at [1]: 0
    """
    return compare(">", np.greater, x, 0, (message, summarize))


def assert_negative(
    x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
) -> Any:
    """Fail unless ``x < 0`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    message : str, optional
        Stands first in the error.
    summarize : int, optional
        How many entries the error shows: 3; -1: all.
    name : str, optional
        For tensorflow's sake; ignored.

    Returns
    -------
    object
        `x` itself (tensorflow: None).

    Raises
    ------
    CheckError
        With the first entries for which it does not hold, their indices, shapes and dtypes.
    CheckTypeError
        The values cannot be compared.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_negative(-1)
    -1
    """
    return compare("<", np.less, x, 0, (message, summarize))


def assert_non_negative(
    x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
) -> Any:
    """Fail unless ``x >= 0`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    message : str, optional
        Stands first in the error.
    summarize : int, optional
        How many entries the error shows: 3; -1: all.
    name : str, optional
        For tensorflow's sake; ignored.

    Returns
    -------
    object
        `x` itself (tensorflow: None).

    Raises
    ------
    CheckError
        With the first entries for which it does not hold, their indices, shapes and dtypes.
    CheckTypeError
        The values cannot be compared.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.Dataset.range(3).map(td.debugging.assert_non_negative)
    >>> [int(x) for x in ds]
    [0, 1, 2]
    """
    return compare(">=", np.greater_equal, x, 0, (message, summarize))


def assert_non_positive(
    x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
) -> Any:
    """Fail unless ``x <= 0`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    message : str, optional
        Stands first in the error.
    summarize : int, optional
        How many entries the error shows: 3; -1: all.
    name : str, optional
        For tensorflow's sake; ignored.

    Returns
    -------
    object
        `x` itself (tensorflow: None).

    Raises
    ------
    CheckError
        With the first entries for which it does not hold, their indices, shapes and dtypes.
    CheckTypeError
        The values cannot be compared.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_non_positive(0)
    0
    """
    return compare("<=", np.less_equal, x, 0, (message, summarize))
