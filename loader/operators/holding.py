"""The memory that an element takes: its arrays and strings, and everything that its objects refer to."""

from __future__ import annotations

import contextlib
import sys
import weakref
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.items import Failure
from tundish.spec import flatten

if TYPE_CHECKING:
    from tundish.loader.protocols.items import Made

_NOT_HELD = (type, ModuleType, FunctionType, weakref.ref)
_MOST_PARTS = 10_000


def item_nbytes(item: Failure | Made, seen: set[int]) -> int:
    """Return the approximate number of bytes that storing an item takes.

    Parameters
    ----------
    item : Failure or Made
        The item.
    seen : set of int
        The ids of objects that were counted with earlier items; those of this one are added.
    """
    if isinstance(item, Failure):
        return 1024
    return 200 + sum([_leaf_nbytes(leaf, seen) for leaf in flatten(item.value)[0]])


def _leaf_nbytes(leaf: Any, seen: set[int]) -> int:
    if isinstance(leaf, np.ndarray):
        if not leaf.dtype.hasobject:
            return leaf.nbytes
        if set(map(type, leaf.flat)) <= {str, bytes}:
            return leaf.nbytes + sum(map(sys.getsizeof, leaf.flat))
    elif isinstance(leaf, (np.generic, str, bytes)):
        return sys.getsizeof(leaf)
    return _held_nbytes(leaf, seen)


def _held_nbytes(value: Any, seen: set[int]) -> int:
    """Return the approximate size of an object and all that it refers to: items, attributes, elements of windows.

    After `_MOST_PARTS` objects, each object that is left counts with the average size of those before it.
    """
    total, parts, waiting = 0, 0, [value]
    while waiting and parts < _MOST_PARTS:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, _NOT_HELD):
            continue
        seen.add(id(each))
        parts += 1
        with contextlib.suppress(Exception):  # of a __sizeof__
            total += sys.getsizeof(each)
        if isinstance(each, np.ndarray):
            base: Any = each.base
            if isinstance(base, np.ndarray):
                waiting.append(base)
            elif base is not None:  # getsizeof counts only the header of a view
                total += each.nbytes
            waiting += each.ravel().tolist() if each.dtype.hasobject else ()
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, (list, tuple, set, frozenset)):
            waiting += each
        with contextlib.suppress(Exception):  # a proxy's, say
            waiting += vars(each).values()
    return total + total * len(waiting) // max(1, parts)
