"""Conversion of values to their one numpy form."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np

from tundish.arraylikes import plain
from tundish.errors import SpecError
from tundish.gaps import copied, has_gaps
from tundish.spec import NUMBERS, Nested, is_namedtuple, is_nest, map_leaves

_KEEP = frozenset(
    {
        *(np.dtype(c).type for c in "?bhilqBHILQefdgFDG"),
        np.datetime64,
        np.timedelta64,
        str,
        bytes,
    }
)
_ARRAY = np.ndarray
_WITHOUT_INTS = frozenset(
    {float, bool, complex, str, bytes, type(None), list, np.float64, np.float32}
)
_SIMPLE = _KEEP | _WITHOUT_INTS | {int, tuple, np.ndarray}
"""Types of values in a list that need not be inspected."""
_ROWS = frozenset({list, tuple})
_TEXTS = "UST"
"""The kinds of numpy's dtypes of text."""
_DEEPEST = 64
"""The deepest nesting of lists that numpy looks into."""
_INT64 = range(-(2**63), 2**63)


def normalise(value: Any) -> Any:
    """Convert a value to its numpy form; nests keep their structure.

    Ints become int64, floats float64, bools bool_, complex complex128; lists become arrays,
    an ``OrderedDict`` or ``defaultdict`` a dict;
    zero-dimensional arrays become scalars; ``str`` and ``bytes`` stay. Arrays of a class derived from
    numpy's become plain ones, what is like an array an array, and a table a dict of its columns
    (`tundish.arraylikes`). An object of another type is a leaf as it is.

    Raises
    ------
    SpecError
        An int does not fit 64 bits, or would be rounded in a list; a list is ragged; values of an array are
        masked or missing, also of one in a list; or what is like an array cannot become one.

    Examples
    --------
    >>> normalise({"a": 1, "b": [1.0, 2.0]})
    {'a': np.int64(1), 'b': array([1., 2.])}
    """
    kind = type(value)
    if kind in _KEEP:
        return value
    if kind is np.ndarray:
        return value if value.dtype in NUMBERS and value.ndim else _odd_array(value)
    if kind is dict:
        for x in value.values():
            inner = type(x)
            if inner in _KEEP or (inner is _ARRAY and x.dtype in NUMBERS and x.ndim):
                continue
            return {k: normalise(v) for k, v in value.items()}
        return value
    if kind is tuple:
        return tuple([normalise(x) for x in value])
    maker = _SCALARS.get(kind)
    if maker is not None:
        return maker(value)
    if isinstance(value, np.ndarray):
        return normalise(_plain_array(value))
    if is_namedtuple(kind):
        return kind(*[normalise(x) for x in value])
    if isinstance(value, Nested):
        return value._as_element()  # noqa: SLF001 - ours
    if kind is OrderedDict or kind is defaultdict:  # others may have more than their keys
        return normalise(dict(value))
    found = plain(value)
    return value if found is value else normalise(found)


def _plain_array(array: np.ndarray) -> np.ndarray:
    """Convert an array of a derived class to numpy's own, as it would come out of shared memory."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        masked = np.count_nonzero(np.ma.getmaskarray(array))
        raise SpecError(
            f"{masked} of {array.size} values of a masked array are masked, and elements have no masks; "
            "give filled(value), or the mask beside the data: (x.data, np.ma.getmaskarray(x))"
        )
    return np.asarray(array)


def _odd_array(array: np.ndarray) -> Any:
    if array.dtype.kind in _TEXTS:  # trailing zeros are lost in some; Python strings keep them
        array = array.astype(object)
    elif array.dtype.kind == "V" and has_gaps(array.dtype):
        array = copied(array)
    elif array.dtype.kind in "mM":
        array = _native(array)
    if array.ndim == 0:
        return array[()] if array.dtype != object else normalise(array.item())
    return array


def _struct(value: np.void) -> np.void:
    return copied(value) if has_gaps(value.dtype) else value


def _int64(value: int) -> np.int64:
    if value in _INT64:
        return np.int64(value)
    raise SpecError(f"the int {value} does not fit 64 bits; use a float or a numpy type that does")


def _array(value: list[Any]) -> np.ndarray:
    if not value:
        return np.zeros(0, np.float64)
    kinds = _kinds_in(value)
    if not kinds <= _SIMPLE:
        # numpy would take one for a sequence
        if any(isinstance(x, (Nested, Mapping)) for x in value):
            array = np.empty(len(value), object)
            for k, x in enumerate(value):
                array[k] = x if isinstance(x, Mapping) else normalise(x)
            return array
        value = [_part(x) for x in value]
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as problem:
        shown = repr(value) if len(repr(value)) < 80 else f"{repr(value)[:80]}..."
        raise SpecError(
            f"a list means an array, so its rows must have equal shapes, and {shown} is ragged; "
            "a tuple holds arrays of different shapes, and Dataset.from_list takes elements of different shapes"
        ) from problem
    if array.dtype.kind in "fuO" and not kinds <= _WITHOUT_INTS:
        _check_ints(value, array)
    if array.dtype.kind in "mM":
        return _native(array)
    return array if array.dtype.kind not in _TEXTS else np.array(value, dtype=object)


def _native(times: np.ndarray) -> np.ndarray:
    """Convert times to the machine's byte order, which they would have after passing shared memory."""
    return times if times.dtype.isnative else times.astype(times.dtype.newbyteorder("="))


def _kinds_in(value: Iterable[Any]) -> set[type]:
    """Return the types of what is in a list, and in the lists and tuples in it."""
    kinds = found = set(map(type, value))
    for _ in range(_DEEPEST):
        if found.isdisjoint(_ROWS):
            break
        rows = value if found <= _ROWS else [x for x in value if type(x) in _ROWS]
        value = list(chain.from_iterable(rows))
        found = set(map(type, value))
        kinds = kinds | found
    return kinds


def _part(value: Any) -> Any:
    """Replace array-likes in a part of a list by arrays: numpy would drop a mask, or take NaN for a missing value."""
    kind = type(value)
    if kind in _ROWS:
        return [_part(x) for x in value]
    if kind in _SIMPLE or not (kind is bytearray or hasattr(kind, "__array__")):
        return value
    found = normalise(value)
    return found if isinstance(found, (np.ndarray, np.generic, str, bytes)) else value


def _check_ints(value: list[Any], array: np.ndarray) -> None:
    """Check the ints of a list that numpy has converted to floats, objects or uint64, as it does if some exceed int64."""
    if array.dtype.kind != "f":
        if array.dtype in (object, np.uint64):
            _check_python_ints(value)
        return
    large = array[np.abs(array) >= 2.0**53]
    if not large.size:
        return
    if (np.abs(large) >= 2.0**63).any():
        _check_python_ints(value)
    whole = np.array(value, object)
    if whole.shape == array.shape and all(isinstance(x, (int, np.integer)) for x in whole.flat):
        for x, rounded in zip(whole.flat, array.flat, strict=True):
            if int(x) != int(rounded):
                raise SpecError(
                    f"numpy makes floats of a list of uint64 and signed ints, and rounds {x} to {int(rounded)}; "
                    "give an array of one dtype: np.array(values, np.uint64)"
                )


def _check_python_ints(value: Iterable[Any]) -> None:
    for x in value:
        if type(x) is int:
            _int64(x)
        elif isinstance(x, (list, tuple)):
            _check_python_ints(x)


_SCALARS: dict[type, Callable[[Any], Any]] = {
    int: _int64,
    float: np.float64,
    bool: np.bool_,
    complex: np.complex128,
    list: _array,
    np.str_: str,
    np.bytes_: bytes,
    np.void: _struct,
}


def copy_element(value: Any) -> Any:
    """Copy what must not be shared with the caller: read-only arrays are copied to writable ones."""
    kind = type(value)
    if kind in _KEEP:
        return value
    if kind is np.ndarray:
        return value if value.flags.writeable or _is_immutable(value) else copied(value)
    if is_nest(value):
        for leaf in value.values() if kind is dict else value:
            kind = type(leaf)
            if kind not in _KEEP and not (kind is np.ndarray and leaf.flags.writeable):
                return map_leaves(copy_element, value)
    return value


def _is_immutable(value: np.ndarray) -> bool:
    """Return True if an array's memory never changes (a file's, an Arrow table's), so that it may be shared."""
    base = value.base
    if isinstance(base, np.ndarray):
        base = base.base
    return getattr(base, "immutable", False) or type(base).__module__ == "pyarrow.lib"
