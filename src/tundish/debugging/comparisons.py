"""Checks that compare two values, or a value with zero, entry by entry; and the check of a condition."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.debugging.deciding import compare
from tundish.debugging.leaves import NUMBERS, TEXTS, array_of, check_summarize, show
from tundish.errors import CheckError


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
        The value. Every leaf of a nest is checked.
    y : array, number or nest
        The other value, broadcast with x: a nest of x's structure, or one value for every leaf.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
    CheckTypeError
        The values cannot be compared.

    Notes
    -----
    As in TensorFlow, nan equals nothing, but an object that is compared with itself passes
    without a look at its values. A ``str`` equals its ``bytes`` in UTF-8.

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
        The value. Every leaf of a nest is checked.
    y : array, number or nest
        The other value, broadcast with x: a nest of x's structure, or one value for every leaf.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    message : str, optional
        Text at the beginning of the error.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
    CheckTypeError
        The values cannot be compared.

    Notes
    -----
    Unlike in the other checks, `summarize` comes before `message`, as in TensorFlow.

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
        The value. Every leaf of a nest is checked.
    y : array, number or nest
        The other value, broadcast with x: a nest of x's structure, or one value for every leaf.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
    CheckTypeError
        The values cannot be compared.

    Notes
    -----
    Python's numbers, and lists of them, take the dtype of the other operand.

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
        The value. Every leaf of a nest is checked.
    y : array, number or nest
        The other value, broadcast with x: a nest of x's structure, or one value for every leaf.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
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
        The value. Every leaf of a nest is checked.
    y : array, number or nest
        The other value, broadcast with x: a nest of x's structure, or one value for every leaf.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
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
        The value. Every leaf of a nest is checked.
    y : array, number or nest
        The other value, broadcast with x: a nest of x's structure, or one value for every leaf.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
    CheckTypeError
        The values cannot be compared.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_greater_equal([3, 4], [3, 3])
    [3, 4]
    """
    return compare(">=", np.greater_equal, x, y, (message, summarize))


def assert_positive(
    x: Any, message: str | None = None, summarize: int | None = None, name: str | None = None
) -> Any:
    """Fail unless ``x > 0`` holds for every entry.

    Parameters
    ----------
    x : array, number or nest
        The value. Every leaf of a nest is checked.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
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
        The value. Every leaf of a nest is checked.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
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
        The value. Every leaf of a nest is checked.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
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
        The value. Every leaf of a nest is checked.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        The message has the first entries for which it does not hold, their indices, shapes and dtypes.
    CheckTypeError
        The values cannot be compared.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_non_positive(0)
    0
    """
    return compare("<=", np.less_equal, x, 0, (message, summarize))


def Assert(  # noqa: N802 - tf.debugging's name
    condition: Any, data: Any, summarize: int | None = None, name: str | None = None
) -> None:
    """Fail if a condition is false, and show the data.

    Parameters
    ----------
    condition : bool
        The condition: a bool, or an array of one entry.
    data : iterable
        Values to show.
    summarize : int, optional
        The number of entries to show of each. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Raises
    ------
    CheckError
        The condition is false.
    ValueError
        It is an array of several entries: use ``.all()`` or ``.any()``.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.Assert(False, [np.arange(5), "of step 3"])
    Traceback (most recent call last):
    tundish.errors.CheckError: the condition is false
      data[0]: int64 (5,): 0, 1, 2, ...
      data[1]: 'of step 3'
    """
    most = check_summarize(summarize)
    if isinstance(condition, np.ndarray) and condition.size != 1:
        raise ValueError(
            f"condition must be one bool, not an array of shape {condition.shape}; "
            "say which entries are meant with .all() or .any()"
        )
    if not condition:
        lines = [f"data[{k}]: {_summary(value, most)}" for k, value in enumerate(data)]
        raise CheckError("the condition is false", details=tuple(lines))


def _summary(value: Any, most: int | None) -> str:
    if isinstance(value, (*NUMBERS, *TEXTS)):
        return repr(value)
    array = array_of(value, "data")
    flat = [str(entry) for entry in array.reshape(-1)[:most]]
    more = ["..."] if len(flat) < array.size else []
    return f"{show(value)}: {', '.join(flat + more)}"
