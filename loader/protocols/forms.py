"""Forms of computed elements: their structure, dtypes and shapes, told without reading their memory.

A coordinator decides order by lengths and dtypes alone: rows that workers made know theirs from
the layout of their block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.loader.protocols.collate import Key
from tundish.loader.protocols.rows import Row, Rows
from tundish.spec import Tree, flatten, leaf_key

__all__ = ["Form", "form_of", "form_of_value"]

Form = tuple[Tree, tuple[Key, ...]]
"""A nest's structure, and the keys of its leaves."""

_OBJECT = np.dtype(object)


def form_of(item: Any) -> Form:
    """Return the form of a computed item's element."""
    kind = type(item)
    if kind is Rows:
        block, first, stop, _ = item.runs[0]
        tree, keys = block.key_of(first)
        return tree, tuple([_stacked(key, stop - first) for key in keys])
    if kind is Row:
        known: Form | None = item.block.key_of(item.row)
        if known is not None:
            return known
        return form_of_value(item.block.elements[item.row])
    return form_of_value(item.value)


def form_of_value(value: Any) -> Form:
    """Return the form of an element that is at hand."""
    leaves, tree = flatten(value)
    return tree, tuple([leaf_key(leaf) for leaf in leaves])


def _stacked(key: Key, rows: int) -> Key:
    return (_OBJECT, (rows,)) if isinstance(key, type) else (key[0], (rows, *key[1]))
