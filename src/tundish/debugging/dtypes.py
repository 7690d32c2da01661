"""Checks of dtypes and of the kind of an object, without looking at entries of arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tundish.debugging.deciding import is_inexact
from tundish.debugging.leaves import check_message, dtype_name, dtype_of, has_named_parts, leaves_of
from tundish.errors import CheckTypeError
from tundish.ragged import Ragged, Sparse

_INTEGER = re.compile(r"u?int\d+")  # ml_dtypes' int4 is of numpy's kind V
_TEXTS = (str, bytes, object)


def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Any:
    """Fail if a value is not of an integer dtype.

    Parameters
    ----------
    x : array, number or nest
        The value. Every leaf of a nest is checked.
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
    CheckTypeError
        It has another dtype; bool is not an integer dtype.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_integer(1.5)
    Traceback (most recent call last):
    tundish.errors.CheckTypeError: x must be of an integer dtype, not float64
    """
    said = check_message(message)
    for path, leaf in leaves_of(x):
        dtype = dtype_of(leaf, f"x{path}")
        if isinstance(dtype, type) or not _INTEGER.fullmatch(dtype.name):
            raise CheckTypeError(
                f"x{path} must be of an integer dtype, not {dtype_name(dtype)}", said, path
            )
    return x


def assert_type(
    tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None
) -> Any:
    """Fail if a value is not of a dtype.

    Parameters
    ----------
    tensor : array, number or nest
        The value. Every leaf of a nest is checked.
    tf_type : dtype
        The dtype, as in NumPy (``"float32"``, ``np.float32``), or ``str``, ``bytes``, ``object``.
    message : str, optional
        Text at the beginning of the error.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `tensor` itself (TensorFlow returns None).

    Raises
    ------
    CheckTypeError
        It has another dtype.

    Notes
    -----
    Python numbers have 64 bits here, and 32 in TensorFlow. Byte orders are compared, too.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.assert_type({"label": np.int64(3)}, "int32", "labels")
    Traceback (most recent call last):
    tundish.errors.CheckTypeError: labels: x['label'] must be int32, not int64
    """
    said = check_message(message)
    if tf_type is None:  # which numpy takes for float64
        raise TypeError("tf_type must be a dtype, not None")
    wanted = tf_type if tf_type in _TEXTS else np.dtype(tf_type)
    for path, leaf in leaves_of(tensor):
        dtype = dtype_of(leaf, f"x{path}")
        if dtype != wanted:
            raise CheckTypeError(
                f"x{path} must be {dtype_name(wanted)}, not {dtype_name(dtype)}", said, path
            )
    return tensor


def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> np.dtype:
    """Fail if values do not all have the same float dtype; return that dtype.

    Parameters
    ----------
    tensors : iterable of arrays, or nest, optional
        The values; None is ignored.
    dtype : dtype, optional
        The required dtype. Default: that of the first value.

    Returns
    -------
    numpy.dtype
        The common dtype; float32 if there are no values.

    Raises
    ------
    CheckTypeError
        The dtypes differ, or are not floats. The error is a `ValueError`, too, as in TensorFlow.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.assert_same_float_dtype([np.zeros(2, "f4"), np.float32(1)])
    dtype('float32')
    """
    if tensors is None:
        named = []
    elif has_named_parts(tensors):
        named = list(leaves_of(tensors))
    else:
        named = [(f"[{k}]", tensor) for k, tensor in enumerate(tensors)]
    wanted: Any = None if dtype is None else np.dtype(dtype)
    source = "as asked for"
    for path, leaf in named:
        if leaf is None:
            continue
        found = dtype_of(leaf, f"tensors{path}")
        if wanted is None:
            wanted, source = found, f"as tensors{path}"
        elif found != wanted:
            raise CheckTypeError(
                f"tensors{path} must be {dtype_name(wanted)}, {source}, not {dtype_name(found)}",
                "",
                path,
            )
    if wanted is None:
        return np.dtype(np.float32)
    if not isinstance(wanted, np.dtype) or wanted.kind == "c" or not is_inexact(wanted):
        raise CheckTypeError(f"a float dtype was expected, not {dtype_name(wanted)}")
    return wanted


def assert_proper_iterable(values: Any) -> Any:
    """Fail if a value is not iterable, or is an array, a str or bytes, which are rarely meant to be iterated over.

    Parameters
    ----------
    values : iterable
        The value. A list, a tuple, a dict or a generator passes.

    Returns
    -------
    object
        `values` itself (TensorFlow returns None).

    Raises
    ------
    CheckTypeError
        It is not iterable, or it is an array, a `Ragged`, a `Sparse`, a ``str`` or ``bytes``.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_proper_iterable("abc")
    Traceback (most recent call last):
    tundish.errors.CheckTypeError: values must be an iterable of values, such as a list, not str
    """
    single = (np.ndarray, np.generic, Ragged, Sparse, str, bytes)
    if isinstance(values, single) or not hasattr(values, "__iter__"):
        raise CheckTypeError(
            f"values must be an iterable of values, such as a list, not {type(values).__name__}"
        )
    return values


def is_numeric_tensor(tensor: Any) -> bool:
    """Return True if a value is an array, or a numpy scalar, of numbers.

    Parameters
    ----------
    tensor : object
        The value. Python's own numbers are not arrays, and bools are not numbers.

    Returns
    -------
    bool
        True for integers, floats and complex numbers of any width.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> [td.debugging.is_numeric_tensor(x) for x in (np.arange(3), np.array([True]), 3)]
    [True, False, False]
    """
    if not isinstance(tensor, (np.ndarray, np.generic)):
        return False
    dtype = tensor.dtype
    return dtype.kind in "iufc" or is_inexact(dtype) or bool(_INTEGER.fullmatch(dtype.name))
