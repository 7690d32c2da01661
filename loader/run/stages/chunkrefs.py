"""Refs of the rows of a chunk of an inner dataset: by ordinal, or by offsets in the file, which a worker reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.records import ENDED

if TYPE_CHECKING:
    from tundish.loader.protocols.block import Block
    from tundish.loader.protocols.items import Ref


class InnerRefs(Sequence[Any]):
    """Refs (outer ref, ordinal) of the rows of a chunk."""

    __slots__ = ("first", "outer", "size")

    def __init__(self, outer: Ref, first: int, size: int) -> None:
        self.outer, self.first, self.size = outer, first, size

    def after(self, row: int) -> int:
        """Return the ordinal that follows a row's."""
        return self.first + row + 1

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            first, stop, _ = row.indices(self.size)
            return InnerRefs(self.outer, self.first + first, stop - first)
        return (self.outer, self.first + row)

    def __iter__(self) -> Iterator[Any]:
        return zip(repeat(self.outer), range(self.first, self.first + self.size))

    def __reduce__(self) -> tuple[Any, ...]:
        return InnerRefs, (self.outer, self.first, self.size)


class PlacedRefs(Sequence[Any]):
    """Refs (outer ref, offset in the file) of the rows of a chunk.

    Until the chunk is computed, only the offset of its first row is known.
    """

    __slots__ = ("_places", "_size", "first", "outer")

    def __init__(self, outer: Ref, first: int, size: int) -> None:
        self.outer, self.first, self._size = outer, first, size
        self._places: list[int] = []

    def made(self, places: list[int]) -> None:
        """Set the offsets of the computed chunk's rows, and the one that follows the last row."""
        self._places = places

    def after(self, row: int) -> int:
        """Return the offset that follows a row's."""
        return self._places[row + 1]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [(self.outer, place) for place in self._places[:-1][row]]
        return (self.outer, self._places[row])


def told_places(block: Block, refs: PlacedRefs, rows: int) -> list[int]:
    """Return the offsets of a chunk's rows, and the one that follows them, as the worker reported them.

    If workers died on the chunk, or the system had no memory for it, no offsets were reported: only its first one
    is known, and its single row stands for everything that follows.
    """
    told = block.notes.pop(0, None)
    return [refs.first] * rows + [ENDED] if told is None else told.tolist()
