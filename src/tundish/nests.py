"""Mapping over nests of frameworks and loaders, which may contain lists and any mappings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from tundish.spec import is_namedtuple


def _never(_: Any) -> bool:
    return False


def map_nest(
    function: Callable[[Any], Any], value: Any, is_leaf: Callable[[Any], bool] = _never
) -> Any:
    """Apply a function to every leaf of a nest; containers keep their types.

    Unlike `tundish.spec.map_leaves` this treats a list as a container, as in a DataLoader's batches, not as an array.

    Parameters
    ----------
    function : callable
        Called with each leaf.
    value : nest
        A nest of mappings, lists, tuples and namedtuples.
    is_leaf : callable
        Returns True for a leaf that looks like a container.

    Examples
    --------
    >>> map_nest(str, {"a": [1, (2, 3)]})
    {'a': ['1', ('2', '3')]}
    """

    def of(value: Any) -> Any:
        if is_leaf(value):
            return function(value)
        if isinstance(value, Mapping):
            changed = {key: of(inner) for key, inner in value.items()}
            if type(value) is dict or not isinstance(value, MutableMapping):
                return changed
            clone = copy.copy(value)
            clone.update(changed)
            return clone
        if isinstance(value, tuple):
            inside = [of(inner) for inner in value]
            return type(value)(*inside) if is_namedtuple(type(value)) else tuple(inside)
        if isinstance(value, list):
            return [of(inner) for inner in value]
        return function(value)

    return of(value)
