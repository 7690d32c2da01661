"""Ownership of elements' memory: what is kept beyond the next call of a user's function must be ours.

A function may fill one buffer again and again, take buffers from a pool, return its argument or a view of something it
keeps. The number of references to an array shows whether it did: an array that only its element refers to belongs to
nobody else. See docs/design/014-ownership.md.

The caller gives up its own reference: ``owned(value(item))``, or ``owned(x, x := None)`` if the element is in a
variable. Then the callee has the only one. A reference that the caller keeps costs a copy, but is never wrong.
"""

from __future__ import annotations

import copy
import datetime as dt
import functools
import pathlib
import sys
import types
from sys import getrefcount
from typing import TYPE_CHECKING, Any
from weakref import getweakrefcount

import numpy as np

from tundish.gaps import copied
from tundish.loader.protocols.items import Dropped
from tundish.loader.protocols.results import checked
from tundish.spec import NUMBERS, Nested, is_namedtuple, is_nest

if TYPE_CHECKING:
    from collections.abc import Callable

COPY_BELOW = 65536
"""The largest leaf in bytes that is delivered as a private copy, which pins no slot."""

SCALARS = frozenset(
    {
        *(np.dtype(c).type for c in "?bhilqBHILQefdgFDGMm"),
        *(str, bytes, int, float, bool, complex, type(None), Dropped),
    }
)
"""Immutable types of leaves."""

_CONSTANT = (
    *(Nested, np.dtype, type, range, slice, dt.date, dt.time, dt.timedelta),
    *(dt.tzinfo, pathlib.PurePath),
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType),
)
"""Types of objects that are not copied, because they are immutable or cannot be copied."""

_CONSTANT_IF_LOADED = (("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"))
"""More such types, by module: a process with such an object has imported the module."""

_FIXED = SCALARS - {int, float, bool, complex, type(None)}
"""Types of results that already are elements."""

_OWN_DATA, _WRITABLE = 0x4, 0x400
_PRIVATE = _OWN_DATA | _WRITABLE

_NEVER = -1
_alone = _within = _under = _NEVER
"""The reference counts of values that nobody else refers to: an element, a part of one, and the base of a view.
`_calibrate` measures them; `_NEVER` makes everything be copied.
"""


def _at_once(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function with a fast path for arrays of numbers; it decides about everything else.

    Such arrays are the most common values, and this runs for each element: so it calls no Python function, except for
    read-only arrays that are to be kept.
    """
    ndarray = np.ndarray
    lends = otherwise.__name__.startswith("lent")

    @functools.wraps(otherwise)
    def hand(value: Any, _: None = None) -> Any:
        if type(value) is ndarray and value.dtype in NUMBERS and value.ndim:
            flags = value.flags.num
            if not flags & _WRITABLE:
                return value if lends or _is_immutable(value) else value.copy()
            if getrefcount(value) != _alone or getweakrefcount(value):
                return value.copy()
            if flags & _OWN_DATA:
                return value
            # A view's base is the object that holds the memory, never another view.
            base = value.base
            if (
                type(base) is ndarray
                and getrefcount(base) == _under
                and base.flags.owndata
                and not getweakrefcount(base)
            ):
                return value
            return value.copy()
        return otherwise(value, value := None)

    return hand


@_at_once
def owned(value: Any, _: None = None) -> Any:
    """Return an element that nobody else can change, for keeping: itself if that is certain, else a copy.

    Arrays are writable. Objects that no array can hold are deep-copied, or kept themselves if they cannot be copied.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    alone = getrefcount(value) == _alone
    if kind is np.ndarray:
        return _array_owned(value, alone)
    if kind is dict or kind is tuple or is_namedtuple(kind):
        return _nest(value, alone, _part_owned)
    return _object_copied(value)


@_at_once
def lent(value: Any, _: None = None) -> Any:
    """Return an element that a function may change: itself if nobody else would notice, else a copy.

    Read-only arrays stay as they are, unless they hold objects that can be changed, and so does an object without other
    references.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    alone = getrefcount(value) == _alone
    if kind is np.ndarray:
        return _array_lent(value, alone)
    if kind is dict or kind is tuple or is_namedtuple(kind):
        return _nest(value, alone, _part_lent)
    return _object_lent(value, alone)


@_at_once
def owned_result(result: Any, _: None = None) -> Any:
    """Convert a function's result to its numpy form, `owned`."""
    return result if type(result) in _FIXED else owned(checked(result), result := None)


@_at_once
def lent_result(result: Any, _: None = None) -> Any:
    """Convert a function's result to its numpy form, `lent`."""
    return result if type(result) in _FIXED else lent(checked(result), result := None)


def read_only(leaf: Any) -> Any:
    """Return a view of an array that nobody can write to; other leaves as they are."""
    if isinstance(leaf, np.ndarray):
        leaf = leaf.view()
        leaf.flags.writeable = False
    return leaf


def _array_owned(array: np.ndarray, alone: bool) -> Any:
    return array if alone and _is_fresh(array) and _is_plain(array) else _copied(array)


def _array_lent(array: np.ndarray, alone: bool) -> Any:
    if alone and _is_fresh(array):
        return array
    if not array.flags.num & _WRITABLE and _is_plain(array):
        return array
    return _copied(array)


def _object_lent(value: Any, alone: bool) -> Any:
    """Lend a value other than an array; a struct is a view, and its references do not tell whose memory it is."""
    if isinstance(value, np.void):
        return value if not value.flags.writeable else _object_copied(value)
    return value if alone else _object_copied(value)


def of_results(hand: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return the counterpart of `hand` for results of functions, which also converts them to numpy form."""
    return checked if hand is None else {owned: owned_result, lent: lent_result}[hand]


def lend(machine: Any) -> None:
    """Tell a machine that its elements are only read, not kept: each is copied into a row at once."""
    if getattr(machine, "owning", False):
        machine.lend()


def shared(value: Any) -> Any:
    """Return an element for several receivers, who all get the same read-only arrays."""
    kind = type(value)
    if kind is dict:
        return {key: shared(part) for key, part in value.items()}
    if kind is tuple or is_namedtuple(kind):
        return _like(value, [shared(part) for part in value])
    if kind is np.ndarray and not value.dtype.hasobject:
        return value
    return private(value)


def private(leaf: Any) -> Any:
    """Return a leaf that nobody else can change, whatever its type."""
    kind = type(leaf)
    if kind in SCALARS:
        return leaf
    return _copied(leaf) if kind is np.ndarray else _object_copied(leaf)


def _is_fresh(array: np.ndarray) -> bool:
    """Return True if nobody else can reach the memory of an array that only its element refers to."""
    if getweakrefcount(array):
        return False
    flags = array.flags.num & _PRIVATE
    if flags == _PRIVATE:
        return True
    if not flags & _WRITABLE:
        return False
    base = array.base  # the object that holds the memory, never another view
    return (
        type(base) is np.ndarray
        and getrefcount(base) == _under
        and not getweakrefcount(base)
        and bool(base.flags.num & _OWN_DATA)
    )


def _is_plain(array: np.ndarray) -> bool:
    """Return True if an array contains no mutable objects."""
    if not array.dtype.hasobject:
        return True
    return array.dtype.kind == "O" and all(type(x) in SCALARS for x in array.flat)


def _copied(array: np.ndarray) -> Any:
    """Return a copy of an array, or itself if its memory never changes, as that of a snapshot's file."""
    if not array.flags.writeable and _is_immutable(array):
        return array
    return copied(array) if _is_plain(array) else _object_copied(array)


def _is_immutable(array: np.ndarray) -> bool:
    base = array.base
    if isinstance(base, np.ndarray):
        base = base.base
    return bool(getattr(base, "immutable", False))


def _object_copied(value: Any) -> Any:
    if isinstance(value, np.void) and not value.dtype.hasobject:
        return copied(value)
    if isinstance(value, (*_CONSTANT, *_loaded_constants())):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - such as a lock or an open file, which is shared
        return value


def _loaded_constants() -> list[type]:
    loaded = sys.modules
    return [getattr(loaded[home], name) for home, name in _CONSTANT_IF_LOADED if home in loaded]


def _nest(nest: Any, mine: bool, hand: Callable[[Any, bool], Any]) -> Any:
    """Hand on the parts of a nest; the nest itself is changed in place if nobody else refers to it."""
    if type(nest) is dict:
        kept = nest if mine else dict.fromkeys(nest)
        for key in nest:
            part = nest[key]
            if not mine or type(part) not in SCALARS:
                kept[key] = hand(part, mine)
        return kept
    for part in nest:
        if type(part) not in SCALARS:
            del part
            return _like(nest, [hand(part, mine) for part in nest])
    return nest


def _part_owned(part: Any, mine: bool) -> Any:
    kind = type(part)
    if kind in SCALARS:
        return part
    mine = mine and getrefcount(part) == _within
    if kind is np.ndarray:
        return _array_owned(part, mine)
    if kind is dict or kind is tuple or is_namedtuple(kind):
        return _nest(part, mine, _part_owned)
    return _object_copied(part)


def _part_lent(part: Any, mine: bool) -> Any:
    kind = type(part)
    if kind in SCALARS:
        return part
    mine = mine and getrefcount(part) == _within
    if kind is np.ndarray:
        return _array_lent(part, mine)
    if kind is dict or kind is tuple or is_namedtuple(kind):
        return _nest(part, mine, _part_lent)
    return _object_lent(part, mine)


def _like(nest: Any, parts: list[Any]) -> Any:
    kind = type(nest)
    return tuple(parts) if kind is tuple else kind(*parts)


def _calibrate() -> None:
    """Measure the reference counts of values that nobody else refers to, on the very paths that test them.

    A debugger that inspects variables meanwhile adds references of its own. So counts that this code cannot need are not
    tried; without a count everything is copied.
    """
    if "t" in getattr(sys, "abiflags", ""):
        return  # free-threaded: counts are spread over threads there
    _find("_alone", 2, lambda array: array)
    _find("_within", 4, lambda array: {"x": array})
    _find("_under", 3, lambda array: array[:])


def _find(name: str, most: int, wrap: Callable[[np.ndarray], Any]) -> None:
    """Set the least reference count with which an unshared array is kept and a shared one is copied."""
    for count in range(1, most + 1):
        globals()[name] = count
        if _is_kept(wrap, []):
            if not _is_kept(wrap, [None]):
                return
            break
    globals()[name] = _NEVER


def _is_kept(wrap: Callable[[np.ndarray], Any], others: list[Any]) -> bool:
    """Return True if `owned` keeps an array; with entries in `others`, the array is also stored there, as a user might."""
    addresses = []

    def function() -> Any:
        array = np.zeros(1)
        addresses.append(array.ctypes.data)
        if others:
            others.append(array)
        return wrap(array)

    result = owned(function())
    kept = result["x"] if type(result) is dict else result
    return bool(kept.ctypes.data == addresses[0])


_calibrate()


def frozen(element: Any) -> Any:
    """Make an element's arrays read-only; return the element."""
    if isinstance(element, np.ndarray):
        element.flags.writeable = False
    elif is_nest(element):
        for part in element.values() if type(element) is dict else element:
            frozen(part)
    return element
