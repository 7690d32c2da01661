"""Elements that have passed a snapshot and are not written yet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.gaps import copied
from tundish.loader.protocols.items import Failure, Made
from tundish.loader.protocols.raised import opened
from tundish.loader.protocols.rows import Row, Rows
from tundish.snapshot.records import StoredError
from tundish.spec import flatten, unflatten

if TYPE_CHECKING:
    from tundish.loader.protocols.block import Block

MOST_ROWS = 65536


class PendingElements:
    """Consecutive elements; those that lie in shared memory are kept as runs of rows.

    Attributes
    ----------
    start : int
        The index of the first one.
    rows : int
        The number of elements.
    nbytes : int
        Their approximate size.
    """

    __slots__ = ("_block", "_parts", "_stop", "nbytes", "rows", "shards", "start")

    def __init__(self, start: int) -> None:
        self.start, self.rows, self.nbytes = start, 0, 0
        self.shards: list[int] = []
        self._parts: list[Any] = []
        self._block: Block | None = None
        self._stop = -1

    def add(self, item: Any, made: tuple[Any, int] | None) -> None:
        """Append an item: its rows in shared memory, or the value that `part_of` returned."""
        if made is None:
            self.add_rows(item.block, item.row, item.row + 1)
            return
        part, nbytes = made
        if type(item) is Failure:
            # As text: an error object would keep the frames that it was raised through.
            part = StoredError.of(self.start + self.rows, opened(item.error))
        self._block = None
        self.nbytes += nbytes
        self.rows += 1
        self._parts.append(part)

    def add_rows(self, block: Block, first: int, stop: int) -> None:
        """Append rows of a block with one layout; they stay in shared memory until they are written."""
        block.keep()
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
        """Return the parts for an `Order`: values, errors, and runs of rows as (block, first, stop, whether they are one batch)."""
        return tuple(self._parts)


def part_of(item: Any) -> tuple[Any, int] | None:
    """Return what a chunk keeps of an item, and its approximate size; None for a row, which stays in its block."""
    kind = type(item)
    if kind is Row and item.row not in item.block.elements:
        return None
    if kind is Failure:
        return item, 1024
    if kind is Rows and item.is_one:
        block, first, stop, _ = item.runs[0]
        return (block, first, stop, True), block.nbytes * (stop - first) // block.total
    leaves, tree = flatten(item.value)
    # The function that made it may reuse its memory, and functions downstream may be given it.
    own = [copied(leaf) if type(leaf) is np.ndarray else leaf for leaf in leaves]
    value = own[0] if tree is None else unflatten(tree, own)
    return Made(0, value), sum(map(_nbytes, own))


def _nbytes(leaf: Any) -> int:
    return leaf.nbytes if isinstance(leaf, (np.ndarray, np.generic)) else sys.getsizeof(leaf)
