"""Encoding of a task's input; `tundish.loader.protocols.task_inputs` decodes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.pieces import Pieces
from tundish.loader.protocols.rows import Row, Rows
from tundish.loader.protocols.task_inputs import InlineValues
from tundish.spec import LEAF

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class TaskInput:
    """An input other than an element, which may refer to rows in shared memory."""

    __slots__ = ()

    def roots(self) -> list[np.ndarray]:
        """Return the memory that the worker reads."""
        raise NotImplementedError

    def told(self) -> Any:
        """Return the encoded form; its ``opened(arena)`` returns the decoded object."""
        raise NotImplementedError


def roots_of(item: Any) -> list[np.ndarray]:
    """Return the shared memory that a worker reads for an item."""
    kind = type(item)
    if kind is tuple:
        return [root for x in item for root in roots_of(x)]
    if isinstance(item, TaskInput):
        return item.roots()
    blocks = [item.block] if kind is Row else []
    if kind is Rows:
        blocks = [run[0] for run in item.runs]
    return [block.root for block in blocks if block.root is not None]


def roots_of_all(items: Sequence[Any]) -> list[np.ndarray]:
    """Return the shared memory that a worker reads for items."""
    if isinstance(items, Pieces):
        sources = [source for source, _, _ in items.stretches]
        return [
            root
            for source in sources
            for root in (roots_of(source[0]) if type(source) is list else source.roots())
        ]
    return [root for item in items for root in roots_of(item)]


def tell_all(items: Sequence[Any], *, by_value: bool = False) -> list[Any]:
    """Encode items: rows of one block together, those without a fixed size as one `InlineValues`.

    With `by_value` for a worker without this process's shared memory.
    """
    told: list[Any] = []
    if isinstance(items, Pieces):
        for source, first, stop in items.stretches:
            if type(source) is list:
                told += tell_all(source, by_value=by_value)
            else:
                told.append(source.told(first, stop, by_value=by_value))
        return told
    for item in items:
        if type(item) is Row:
            layout = item.block.layout
            if layout is not None and layout.tree is LEAF and 0 in item.block.extras:
                value = item.block.element(item.row)
                if told and type(told[-1]) is InlineValues:
                    told[-1].refs.append(item.ref)
                    told[-1].values.append(value)
                else:
                    told.append(InlineValues([item.ref], [value]))
                continue
        told.append(tell(item, by_value=by_value))
    return told


def tell(item: Any, *, by_value: bool = False) -> Any:
    """Encode an item."""
    kind = type(item)
    if kind is tuple:
        return tuple([tell(x, by_value=by_value) for x in item])
    if kind is Row or kind is Rows:
        return item.told(by_value=by_value)
    return item.told() if isinstance(item, TaskInput) else item
