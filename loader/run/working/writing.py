"""Writing of elements into the rows of a block, or separately if they have no common layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.gaps import copied
from tundish.loader.protocols.ownership import owned
from tundish.spec import NUMBERS, unflatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.watch.watch import Noted
    from tundish.shm.layout import Layout


class SlotTooSmall(Exception):  # noqa: N818 - a message, not a mistake
    """A block needs a larger slot.

    Parameters
    ----------
    nbytes : int
        The number of bytes it needs.
    alone : bool
        True if the slot is large enough, but not this task's share of it, so that the block has to be one task.
    """

    def __init__(self, nbytes: int, *, alone: bool = False) -> None:
        super().__init__(nbytes)
        self.nbytes, self.alone = nbytes, alone


class TaskOutput:
    """The rows that one task has computed.

    ``elements[k]`` holds row k when the rows have no common layout. With ``private``, ``parts`` are the
    bytes of the columns, to be sent; with ``sent``, they belong to no slot.
    """

    __slots__ = (
        "columns",
        "drops",
        "elements",
        "errors",
        "events",
        "extras",
        "items",
        "layout",
        "not_opened",
        "notes",
        "number",
        "parts",
        "private",
        "sent",
        "told",
    )

    def __init__(self) -> None:
        self.items: Sequence[Any] = ()  # from which they were computed, if known
        self.layout: Layout | None = None
        self.number = 0  # under which the layout was sent
        self.columns: list[np.ndarray | None] = []
        self.parts: list[np.ndarray] = []
        self.extras: dict[int, dict[int, Any]] = {}
        self.elements: dict[int, Any] | None = None
        self.drops: list[int] = []
        self.errors: dict[int, bytes] = {}
        self.events: dict[int, list[str]] = {}
        self.notes: dict[int, Any] = {}
        self.private = self.sent = self.not_opened = False
        self.told: Noted | None = None

    @property
    def plain(self) -> bool:
        """True if everything in the columns is in numpy form: arrays of numbers, and numbers."""
        layout = self.layout
        return layout is not None and all(
            not isinstance(key, type) and key[0] in NUMBERS for key in layout.keys
        )

    @property
    def has_more(self) -> bool:
        """True if there is anything outside the columns."""
        told = self.drops or self.errors or self.events or self.extras or self.notes or self.told
        return bool(told) or self.elements is not None


def scatter(rows: TaskOutput, first: int, upto: int) -> Any:
    """Keep each element separately from now on, since they have no common layout.

    Parameters
    ----------
    rows : TaskOutput
        The rows of the task.
    first, upto : int
        The task's first row, and the one that did not fit.

    Returns
    -------
    callable
        Writes any element.
    """
    layout = rows.layout
    assert layout is not None
    shift = first if rows.private else 0
    gone = {*rows.drops, *rows.errors}
    elements: dict[int, Any] = {}
    for k in range(first, upto):
        if k not in gone:
            leaves = [
                rows.extras[at][k] if column is None else _own(column[k - shift])
                for at, column in enumerate(rows.columns)
            ]
            elements[k] = unflatten(layout.tree, leaves)
    rows.elements = elements
    rows.layout = None

    def write(k: int, element: Any) -> bool:
        elements[k] = owned(element)
        return True

    return write


def _own(value: Any) -> Any:
    """Return a value that shares no memory with its block."""
    return copied(value) if isinstance(value, (np.ndarray, np.void)) else value
