"""Sequences composed of ranges of others: rows that a stage takes in runs, with their refs and marks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.chunk import Chunk, Wrapped
from tundish.loader.protocols.items import ref_of
from tundish.loader.protocols.rows import Row, as_ref, run_told
from tundish.loader.protocols.task_inputs import SharedBraid, SharedRun

if TYPE_CHECKING:
    import numpy as np

    from tundish.loader.protocols.block import Block
    from tundish.loader.protocols.contracts import Mark
    from tundish.loader.protocols.items import Ref

Stretch = tuple[Any, int, int]
"""An indexable by row, the first row, and the end of the range."""


class Pieces(Sequence[Any]):
    """A sequence composed of ranges of other sequences.

    Parameters
    ----------
    stretches : list of Stretch
        The ranges, in order, none of them empty.
    """

    __slots__ = ("_ends", "stretches")

    def __init__(self, stretches: list[Stretch]) -> None:
        self.stretches = stretches
        self._ends = list(accumulate(stop - first for _, first, stop in stretches))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return self._part(*at.indices(len(self)))
        k = bisect_right(self._ends, at)
        source, _, stop = self.stretches[k]
        return source[stop - (self._ends[k] - at)]

    def _part(self, start: int, end: int, step: int) -> Pieces:
        assert step == 1
        found = []
        for (source, begin, stop), behind in zip(self.stretches, self._ends, strict=True):
            shift = stop - behind  # from a place in here to a row
            first, last = max(start, begin - shift), min(end, behind)
            if first < last:
                found.append((source, first + shift, last + shift))
        return Pieces(found)

    def __iter__(self) -> Iterator[Any]:
        for source, first, stop in self.stretches:
            for row in range(first, stop):
                yield source[row]


class BlockRows:
    """The rows of a block, as a sequence of items.

    Parameters
    ----------
    block : Block
        A computed block in which each row is an element.
    """

    __slots__ = ("block",)

    def __init__(self, block: Block) -> None:
        self.block = block

    def __getitem__(self, row: int) -> Row:
        block = self.block
        return Row(ref_of(as_ref(block.refs[row])), block, row)

    @property
    def refs(self) -> Any:
        """The refs of the rows."""
        return self.block.refs

    def roots(self) -> list[np.ndarray]:
        """Return the memory of the rows, to keep it alive."""
        root = self.block.root
        return [] if root is None else [root]

    def told(self, first: int, stop: int, *, by_value: bool = False) -> SharedRun:
        """Encode a range of the rows for a task."""
        return run_told(self.block, first, stop, by_value=by_value)


class Braid:
    """Rows of several blocks, interleaved in turns of equal size, as a sequence of items.

    Parameters
    ----------
    strands : list of (BlockRows, int)
        The rows of each block, in the order of turns, and the first row.
    each : int
        The number of rows of a turn.
    """

    __slots__ = ("_each", "_strands")

    def __init__(self, strands: list[tuple[Any, int]], each: int) -> None:
        self._strands, self._each = strands, each

    def __getitem__(self, at: int) -> Any:
        turn, row = divmod(at, self._each)
        around, k = divmod(turn, len(self._strands))
        source, first = self._strands[k]
        return source[first + around * self._each + row]

    @property
    def refs(self) -> Braid:
        """The refs of the rows."""
        return Braid([(source.refs, first) for source, first in self._strands], self._each)

    def roots(self) -> list[np.ndarray]:
        """The memory of the rows, to keep it alive."""
        return [root for source, _ in self._strands for root in source.roots()]

    def told(self, first: int, stop: int, *, by_value: bool = False) -> SharedBraid:
        """Encode a range of the rows for a task: whole rounds of turns, and the range within them."""
        around = self._each * len(self._strands)
        begin, end = first // around, -(-stop // around)
        runs = [
            source.told(at + begin * self._each, at + end * self._each, by_value=by_value)
            for source, at in self._strands
        ]
        return SharedBraid(runs, self._each, first - begin * around, stop - begin * around)


class RowChunk(Chunk):
    """The next rows of a stream, computed by workers; none of them is an error.

    Parameters
    ----------
    source : Block or Braid
        The source of the rows.
    first, stop : int
        The range of rows in it.
    marks : Stretch or dict
        The marks after each row; for a stage's own block, the counts up to there.
    refs : sequence of Ref, optional
        The refs of the rows, if the source does not have them: `own_refs`.
    """

    __slots__ = ("_marks", "first", "own_refs", "source", "stop")

    def __init__(self, source: Any, first: int, stop: int, marks: Any, refs: Any = None) -> None:
        self.source, self.first, self.stop = source, first, stop
        self._marks, self.own_refs = marks, refs

    def __len__(self) -> int:
        return self.stop - self.first

    @property
    def refs(self) -> Any:
        """The refs of the rows."""
        if self.own_refs is not None:
            return self.own_refs
        return Wrapped(Pieces([(self.source.refs, self.first, self.stop)]), _named)

    @refs.setter
    def refs(self, refs: Any) -> None:
        self.own_refs = refs

    @property
    def columns(self) -> Any:
        """Always None: a batch refers to the rows, and leaves them in their slots."""
        return None

    @property
    def values(self) -> list[Any]:
        """Private copies of the elements, which are small."""
        values: list[Any] = self.source.elements_of(self.first, self.stop)
        return values

    @property
    def marks(self) -> Stretch:
        """The marks after each row."""
        found = self._marks
        if type(found) is tuple:
            return found
        return (BlockMarks(found, self.source.marks), self.first, self.stop)

    @property
    def items(self) -> Stretch:
        """The rows as items."""
        source = self.source
        return (source if type(source) is Braid else BlockRows(source), self.first, self.stop)

    def after(self, count: int) -> RowChunk | None:
        if count == len(self):
            return None
        refs = None if self.own_refs is None else self.own_refs[count:]
        return RowChunk(self.source, self.first + count, self.stop, self._marks, refs)


class BlockMarks:
    """The marks of a stage after each row of a block.

    Parameters
    ----------
    counts : dict of str to int
        The counts up to the block.
    marks : int or sequence of Mark
        The position of the stage's input before the block, or the input's mark for each row.
    """

    __slots__ = ("_counts", "_marks")

    def __init__(self, counts: dict[str, int], marks: Any) -> None:
        self._counts, self._marks = counts, marks

    def __getitem__(self, row: int) -> Mark:
        return (self._counts, mark_behind(self._marks, row))


def mark_behind(marks: Any, row: int) -> Mark:
    """Return the mark of a stage's input after a row of a block."""
    return marks + row + 1 if type(marks) is int else marks[row]


def _named(item: Any) -> Ref:
    return ref_of(as_ref(item))


def refs_only(rows: Pieces) -> Pieces:
    """Return the refs of rows, without keeping the rows' inputs alive."""
    return Pieces(
        [
            ([ref_of(source[0])], 0, 1) if type(source) is list else (source.refs, first, stop)
            for source, first, stop in rows.stretches
        ]
    )
