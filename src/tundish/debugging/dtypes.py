"""Checks of dtypes and of the kind of an object, without looking at entries of arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tundish.debugging.deciding import is_inexact
from tundish.debugging.leaves import check_message, dtype_name, dtype_of, is_nest, leaves_of
from tundish.errors import CheckTypeError
from tundish.ragged import Ragged, Sparse

_INTEGER = re.compile(r"u?int\d+")  # ml_dtypes' int4 is of numpy's kind V
_TEXTS = (str, bytes, object)


def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Any:
    """Fail if a value is not of an integer dtype.

    Parameters
    ----------
    x : array, number or nest
        Of a nest, every leaf is checked.
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
    CheckTypeError
        It is of another dtype; bool is no integer.

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
        Of a nest, every leaf is checked.
    tf_type : dtype
        As numpy takes it (``"float32"``, ``np.float32``), or ``str``, ``bytes``, ``object``.
    message : str, optional
        Stands first in the error.
    name : str, optional
        For tensorflow's sake; ignored.

    Returns
    -------
    object
        `tensor` itself (tensorflow: None).

    Raises
    ------
    CheckTypeError
        It is of another dtype.

    Notes
    -----
    Python numbers are of 64 bits here (tensorflow: of 32). Byte order counts.

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
    """Fail if values are not all of one float dtype; give that dtype.

    Parameters
    ----------
    tensors : iterable of arrays, or nest, optional
        None in it is left out.
    dtype : dtype, optional
        What they must be of; None: of the first one's.

    Returns
    -------
    numpy.dtype
        Theirs; without any, float32.

    Raises
    ------
    CheckTypeError
        They differ, or are no floats. A `ValueError`, too, as tensorflow's is.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.assert_same_float_dtype([np.zeros(2, "f4"), np.float32(1)])
    dtype('float32')
    """
    if tensors is None:
        named = []
    elif is_nest(tensors):
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
    """Fail if a value cannot be iterated over, or is an array or a text, which only seem to be meant so.

    Parameters
    ----------
    values : iterable
        Anything; a list, a tuple, a dict, a generator pass.

    Returns
    -------
    object
        `values` itself (tensorflow: None).

    Raises
    ------
    CheckTypeError
        It is no iterable, or an array, a `Ragged` or `Sparse`, ``str`` or ``bytes``.

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
        Python's own numbers are no arrays, bool are no numbers.

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
