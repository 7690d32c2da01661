"""Conversion of array-like objects and tables of other libraries.

A pandas Series, an xarray DataArray, a tensor, an Arrow or a polars column becomes an array, and a table a dict
of its columns, when `tundish.normalising.normalise` makes an element of what a function or a source returned. Nothing
downstream has to handle them, and results do not depend on where a function ran.

None of these libraries is imported or named here: objects are recognised by their attributes.
"""

from __future__ import annotations

from array import array
from types import CoroutineType
from typing import Any

import numpy as np

from tundish.errors import SpecError

_HAVE_NAN = ("float", "double", "halffloat", "time", "date", "duration")
"""The beginnings of the names of Arrow's, polars' and pandas' types whose values may be NaN or NaT."""
_BUFFERS = (memoryview, array)


def plain(value: Any) -> Any:
    """Convert an object to the array, or the dict of columns, that it represents.

    Parameters
    ----------
    value : object
        Anything except numpy's own arrays and numbers.

    Returns
    -------
    object
        An array for what has ``__array__``, a dtype and a shape, or Arrow's interface, and for a ``memoryview`` or
        an ``array.array``; ``bytes`` for a ``bytearray``; a dict of columns, each as it is, for a table; else the
        value itself.

    Raises
    ------
    SpecError
        It cannot be converted to an array, some of its values are missing, or it is a coroutine.

    Examples
    --------
    >>> plain(memoryview(b"ab"))
    array([97, 98], dtype=uint8)
    """
    kind = type(value)
    if kind is bytearray:
        return bytes(value)
    if isinstance(value, _BUFFERS):
        return _array(value, np.asarray)
    if kind is CoroutineType:
        value.close()  # else Python warns of it, long after
        raise SpecError(
            f"{value.__qualname__} is asynchronous, and nothing awaits its result; call asyncio.run({value.__name__}(...))"
        )
    if getattr(kind, "__array__", None) is None:
        return value
    if _is_table(value):
        return _columns(value)
    if _has(value, "dtype", "shape") or _has(value, "null_count", "type"):
        if getattr(value, "requires_grad", False) is True:
            value = value.detach()
        found = _array(value, _told)
        if found.dtype == object and not found.ndim:  # an object that numpy only wraps
            return value
        _check_none_missing(value, found)
        return found
    return value


def is_read_by_rows(source: Any) -> bool:
    """Return True if ``source[i]`` of a table or column in memory is not row i as an element.

    It may be a column of a table, a lookup by label in a pandas Series, or a scalar of an Arrow array.

    Examples
    --------
    >>> is_read_by_rows([1, 2])
    False
    """
    if getattr(type(source), "__array__", None) is None:
        return False
    return _is_table(source) or _has(source, "iloc") or _has(source, "null_count", "type")


def _is_table(value: Any) -> bool:
    return _has(value, "shape", "columns") and not _has(value, "dtype")


def _has(value: Any, *names: str) -> bool:
    """Return True if an object has all of some attributes; one that raises another error counts as missing."""
    try:
        return all(hasattr(value, name) for name in names)
    except Exception:  # noqa: BLE001 - an object's attributes are its own affair
        return False


def _told(value: Any) -> Any:
    return value.__array__()


def _array(value: Any, make: Any) -> np.ndarray:
    try:
        found = make(value)
    except Exception as problem:
        raise SpecError(
            f"a {_name(value)} must be an array to be in an element, and cannot become one: "
            f"{type(problem).__name__}: {problem}"
        ) from problem
    if not isinstance(found, np.ndarray):
        raise SpecError(
            f"__array__ of a {_name(value)} must return a numpy array, not {type(found).__name__}"
        )
    return found


def _check_none_missing(value: Any, found: np.ndarray) -> None:
    """Raise if values are missing, since numpy would change the dtype to floats or objects.

    As in columns of files, what is missing among floats is NaN, among times NaT.
    """
    if found.dtype.kind in "fmM" and _type_of(value).startswith(_HAVE_NAN):
        return
    missing = getattr(value, "null_count", 0)  # Arrow's; a method in polars
    if callable(missing):
        missing = missing()
    elif not isinstance(getattr(value, "dtype", None), np.dtype) and hasattr(value, "isna"):
        missing = int(value.isna().sum())  # pandas', of a dtype that is not numpy's
    if missing:
        raise SpecError(
            f"{missing} of {len(found)} values of a {_name(value)} are missing, and elements have no missing values; "
            "fill them (fillna, fill_null), or give a leaf that says which they are"
        )


def _type_of(value: Any) -> str:
    return str(getattr(value, "type", None) or getattr(value, "dtype", "")).lower()


def _columns(table: Any) -> dict[Any, Any]:
    names = list(getattr(table, "column_names", table.columns))
    twice = (
        {name for name in names if names.count(name) > 1} if len({*names}) < len(names) else None
    )
    if twice:
        raise SpecError(
            f"a {_name(table)} is a dict of its columns, and {len(twice)} names are those of several columns: "
            f"{sorted(map(repr, twice))}; rename them"
        )
    return {name: table[name] for name in names}


def _name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__.partition('.')[0]} {kind.__name__}"
