"""Checks that compare two values entry by entry."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.debugging.deciding import compare


def assert_equal(
    x: Any,
    y: Any,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Any:
    """Fail unless ``x == y`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    y : array, number or nest
        Broadcast with x; a nest of x's structure, or one value for every leaf.
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

    Notes
    -----
    As in tensorflow, nan equals nothing, but what is compared with itself (the same object) passes
    unseen. A ``str`` equals the ``bytes`` that are it in UTF-8.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.assert_equal(np.array([1, 2, 3]), [1, 0, 3], "ids")
    Traceback (most recent call last):
    tundish.errors.CheckError: ids: x == y does not hold for 1 of 3 entries
      x: int64 (3,), y: int64 (3,)
      at [1]: 2, 0
    """
    return x if x is y else compare("==", np.equal, x, y, (message, summarize))


def assert_none_equal(
    x: Any,
    y: Any,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Any:
    """Fail unless ``x != y`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    y : array, number or nest
        Broadcast with x; a nest of x's structure, or one value for every leaf.
    summarize : int, optional
        How many entries the error shows: 3; -1: all.
    message : str, optional
        Stands first in the error.
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

    Notes
    -----
    `summarize` comes before `message` here, as it does in tensorflow, and only here.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_none_equal([1, 2], 0)
    [1, 2]
    """
    return compare("!=", np.not_equal, x, y, (message, summarize))


def assert_less(
    x: Any,
    y: Any,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Any:
    """Fail unless ``x < y`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    y : array, number or nest
        Broadcast with x; a nest of x's structure, or one value for every leaf.
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

    Notes
    -----
    Python's numbers, and lists of them, take the dtype of the other side.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_less({"label": 12}, 10)
    Traceback (most recent call last):
    tundish.errors.CheckError: x['label'] < 10 does not hold
      x['label']: 12, int
    """
    return compare("<", np.less, x, y, (message, summarize))


def assert_less_equal(
    x: Any,
    y: Any,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Any:
    """Fail unless ``x <= y`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    y : array, number or nest
        Broadcast with x; a nest of x's structure, or one value for every leaf.
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
    >>> td.debugging.assert_less_equal(1, 1)
    1
    """
    return compare("<=", np.less_equal, x, y, (message, summarize))


def assert_greater(
    x: Any,
    y: Any,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Any:
    """Fail unless ``x > y`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    y : array, number or nest
        Broadcast with x; a nest of x's structure, or one value for every leaf.
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
    >>> td.debugging.assert_greater(2, 1)
    2
    """
    return compare(">", np.greater, x, y, (message, summarize))


def assert_greater_equal(
    x: Any,
    y: Any,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Any:
    """Fail unless ``x >= y`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        What is checked; of a nest, every leaf.
    y : array, number or nest
        Broadcast with x; a nest of x's structure, or one value for every leaf.
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
    >>> td.debugging.assert_greater_equal([3, 4], [3, 3])
    [3, 4]
    """
    return compare(">=", np.greater_equal, x, y, (message, summarize))
