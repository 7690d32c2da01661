"""What a worker is told of computed items that are the input of a task, and what it makes of that.

Rows that lie in shared memory are named (`Shared`, `Gather`), others come by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.gaps import copied
from tundish.loader.protocols.collate import collate
from tundish.loader.protocols.items import Made, Ref
from tundish.shm.layout import Layout
from tundish.spec import map_leaves, normalise, unflatten

if TYPE_CHECKING:
    from tundish.shm.memory import Arena


class Shared:
    """A computed item whose rows lie in shared memory, as a task tells it.

    Parameters
    ----------
    ref : Ref
        Of the item.
    slot : int
        Where.
    layout : (Tree, keys, rows)
        Of the block.
    row : int or (int, int)
        The element's row; or a run of rows, which are a batch.
    extras : dict
        Leaves without a fixed size.
    """

    __slots__ = ("extras", "layout", "ref", "row", "slot")

    def __init__(self, ref: Ref, slot: int, layout: tuple[Any, ...], row: Any, extras: Any) -> None:
        self.ref, self.slot, self.layout, self.row, self.extras = ref, slot, layout, row, extras

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (self.ref, self.slot, self.layout, self.row, self.extras)

    def made(self, arena: Arena) -> Made:
        """The item with its value: read-only views of the slot."""
        layout = Layout(*self.layout)
        root = arena.root(self.slot, layout.nbytes)
        root.flags.writeable = False
        row = self.row
        leaves = []
        for at, column in enumerate(layout.columns(root)):
            if column is None:
                leaves.append(self.extras[at])
            elif type(row) is int:
                leaves.append(normalise(column[row]))
            else:
                leaves.append(column[row[0] : row[1]])
        return Made(self.ref, unflatten(layout.tree, leaves))


class Gather:
    """A batch whose rows lie in several places: the worker that is told of it stacks them.

    Parameters
    ----------
    ref : Ref
        Of the batch.
    rows : list
        Each `Shared` or `Made`.
    """

    __slots__ = ("ref", "rows")

    def __init__(self, ref: Ref, rows: list[Any]) -> None:
        self.ref, self.rows = ref, rows

    def __reduce__(self) -> tuple[Any, ...]:
        return Gather, (self.ref, self.rows)


class Loose:
    """Rows that are bytes, str or another single object, told by value: many in one, which is quick.

    Parameters
    ----------
    refs : list of Ref
        Of the rows.
    values : list
        Their elements.
    """

    __slots__ = ("refs", "values")

    def __init__(self, refs: list[Ref], values: list[Any]) -> None:
        self.refs, self.values = refs, values

    def __reduce__(self) -> tuple[Any, ...]:
        return Loose, (self.refs, self.values)


class Told:
    """What an `Ordered` is told as."""

    __slots__ = ()

    def opened(self, arena: Arena | None) -> Any:
        """What was meant, its rows opened."""
        raise NotImplementedError


def open_all(told: list[Any], arena: Arena | None) -> list[Any]:
    """What `tell_all` told, as a worker's evaluators take it."""
    items: list[Any] = []
    for each in told:
        if type(each) is Loose:
            items += map(Made, each.refs, each.values)
        else:
            items.append(open_item(each, arena))
    return items


def open_item(item: Any, arena: Arena | None) -> Any:
    """An item as a worker's evaluators take it."""
    if type(item) is tuple:
        return tuple([open_item(x, arena) for x in item])
    if type(item) is Shared:
        assert arena is not None
        return item.made(arena)
    if isinstance(item, Told):
        return item.opened(arena)
    if type(item) is Gather:
        rows = [open_item(row, arena).value for row in item.rows]
        return Made(item.ref, collate(rows, len(rows)))
    return item


def kept(item: Any) -> Any:
    """An item that was opened, with copies of the arrays that lie in shared memory."""
    if type(item) is tuple:
        return tuple([kept(x) for x in item])
    if type(item) is Made:
        return Made(item.ref, map_leaves(_own, item.value), item.note)
    return item


def _own(leaf: Any) -> Any:
    return copied(leaf) if isinstance(leaf, (np.ndarray, np.void)) else leaf
