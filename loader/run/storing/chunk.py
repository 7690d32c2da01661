"""Elements that passed a snapshot and are not written yet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.run.items import Failure, Made
from tundish.loader.run.shared import Row, Rows
from tundish.snapshot.records import StoredError
from tundish.spec import flatten, map_leaves

if TYPE_CHECKING:
    from tundish.loader.run.shared import Block

MOST_ROWS = 65536


class Chunk:
    """Consecutive elements, in runs of rows where they lie in shared memory.

    Attributes
    ----------
    start : int
        The index of the first one.
    rows : int
        How many there are.
    nbytes : int
        About how large they are.
    """

    __slots__ = ("_block", "_parts", "_stop", "nbytes", "rows", "shards", "start")

    def __init__(self, start: int) -> None:
        self.start, self.rows, self.nbytes = start, 0, 0
        self.shards: list[int] = []
        self._parts: list[Any] = []
        self._block: Block | None = None
        self._stop = -1

    def add(self, item: Any) -> None:
        """Add an item; its rows stay where they are, a value is copied."""
        kind = type(item)
        if kind is Row and item.row not in item.block.elements:
            self.add_rows(item.block, item.row, item.row + 1)
            return
        self.rows += 1
        self._block = None
        if kind is Failure:
            # As text: an error that is kept keeps whoever it was raised to.
            self._parts.append(StoredError.of(self.start + self.rows - 1, item.error))
            self.nbytes += 1024
        elif kind is Rows and item.is_one:
            block, first, stop, _ = item.runs[0]
            self._parts.append((block, first, stop, True))
            self.nbytes += block.nbytes * (stop - first) // block.total
        else:
            self._add_value(item.value)

    def _add_value(self, value: Any) -> None:
        value = map_leaves(_own, value)
        self._parts.append(Made(0, value))
        self.nbytes += sum(map(_nbytes, flatten(value)[0]))

    def add_rows(self, block: Block, first: int, stop: int) -> None:
        """Add rows of the common layout of a block."""
        if block is self._block and first == self._stop:
            self._parts[-1] = (block, self._parts[-1][1], stop, False)
        else:
            self._parts.append((block, first, stop, False))
        self._block, self._stop = block, stop
        self.rows += stop - first
        assert block.layout is not None
        self.nbytes += block.layout.row_nbytes * (stop - first)
        for extra in block.extras.values():
            self.nbytes += sum([_nbytes(extra[row]) for row in range(first, stop)])

    def parts(self) -> tuple[Any, ...]:
        """What an order is given: (block, first, stop, as one batch?), values and errors."""
        return tuple(self._parts)


def _own(leaf: Any) -> Any:
    # Whoever made it may use its memory again, and what is above may be given it.
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _nbytes(leaf: Any) -> int:
    return leaf.nbytes if isinstance(leaf, (np.ndarray, np.generic)) else sys.getsizeof(leaf)
