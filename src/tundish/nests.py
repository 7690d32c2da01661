"""Nests as frameworks and loaders make them: with lists, and with any mapping."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from tundish.spec import is_namedtuple

__all__ = ["map_nest"]


def _never(_: Any) -> bool:
    return False


def map_nest(
    function: Callable[[Any], Any], value: Any, is_leaf: Callable[[Any], bool] = _never
) -> Any:
    """Apply a function to every leaf of a nest; containers keep their types.

    Unlike `tundish.spec.map_leaves` this takes a list for a container, as a DataLoader's batches
    have them, not for an array.

    Parameters
    ----------
    function : callable
        Of a leaf.
    value : nest
        Of mappings, lists, tuples and namedtuples.
    is_leaf : callable
        What is a leaf though it looks like a container.

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
