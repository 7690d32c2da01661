"""Rows of what is read at once."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tundish.errors import RecordCorruptError
from tundish.formats.format import Columns, Reader, Records, Run
from tundish.spec import map_leaves

if TYPE_CHECKING:
    import numpy as np

    from tundish.formats.tables.columns import Bad
    from tundish.formats.tables.form import Layout

__all__ = ["MOST_ROWS", "PIECE_BYTES", "Batch", "BatchReader", "Chunk", "TableReader"]

PIECE_BYTES = 4 << 20
"""About so much is made of Arrow's rows at once, where records are read one after another."""

FEW_BYTES = 1 << 14
"""The same for records here and there."""

MOST_ROWS = 1 << 16

KEPT_BYTES = 64 << 20
"""So much that was decoded is kept for records here and there."""


class Chunk:
    """Consecutive rows of a file that are at hand.

    Parameters
    ----------
    places : sequence of int
        Of each.
    after : int
        The place behind them.
    nest : nest of arrays
        Their columns.
    bad : dict of int to str
        Rows that cannot be given, and why.
    problem : str
        Why none of them can be given; "" if they can.
    """

    def __init__(
        self,
        places: Sequence[int] | np.ndarray,
        after: int,
        nest: Any,
        bad: Bad | None = None,
        problem: str = "",
    ) -> None:
        self.places, self.after, self.nest = places, after, nest
        self.bad = bad or {}
        self.problem = problem
        self._stops = sorted(self.bad)

    def __len__(self) -> int:
        return len(self.places)

    def place(self, row: int) -> int:
        """Where a row begins; behind the last row, what comes after them."""
        return int(self.places[row]) if row < len(self) else self.after

    def wrong(self, row: int) -> str | None:
        """Why a row cannot be given; None if it can."""
        return self.problem or self.bad.get(row)

    def good(self, row: int, most: int) -> int:
        """The end of the rows from one on that can be given."""
        stop = bisect_left(self._stops, row)
        end = self._stops[stop] if stop < len(self._stops) else len(self)
        return min(end, row + max(1, most))


class TableReader(Reader):
    """Reads rows: a format says where the next ones are."""

    unit: ClassVar[str] = "byte"
    """What its places count."""

    def __init__(self, path: str, place: int) -> None:
        self.path, self.place = path, place
        self._chunk: Chunk | None = None
        self._row = 0

    @abstractmethod
    def _find(self, place: int) -> tuple[Chunk, int] | None:
        """Rows among which the one at a place is, and its number there; None at the end of the file."""

    def read(self, most: int) -> Run:
        chunk, row = self._chunk, self._row
        if chunk is None or row >= len(chunk):
            self._chunk = None
            found = self._find(self.place)
            if found is None:
                return Records((), self.place, [])
            chunk, row = self._chunk, self._row = found
        problem = chunk.wrong(row)
        if problem is not None:
            self._row, self.place = row + 1, chunk.place(row + 1)
            raise RecordCorruptError(self.path, chunk.place(row), problem, self.unit)
        end = chunk.good(row, most)
        self._row, self.place = end, chunk.place(end)
        nest = map_leaves(lambda column: column[row:end], chunk.nest)
        return Columns(chunk.places[row:end], self.place, nest)

    def seek(self, place: int) -> None:
        if place == self.place:
            return
        chunk, self.place = self._chunk, place
        places = () if chunk is None else chunk.places
        if isinstance(places, range) and place in places:
            self._row = place - places[0]
        else:
            self._chunk = None

    def close(self) -> None:
        self._chunk = None


@dataclass(frozen=True)
class Batch:
    """Rows of Arrow's that were read at once.

    Attributes
    ----------
    first, stop : int
        The numbers of the first row, and of that behind the last.
    rows : pyarrow.RecordBatch or None
        None where they cannot be decoded.
    problem : str
        Why.
    """

    first: int
    stop: int
    rows: Any
    problem: str = ""

    @property
    def nbytes(self) -> int:
        """How many bytes the rows are."""
        return 0 if self.rows is None else int(self.rows.nbytes)


class BatchReader(TableReader):
    """Reads rows by their numbers, of batches of Arrow's that are kept for a while.

    Attributes
    ----------
    layout : Layout
        What is made of a batch.
    rows : int
        How many rows the file has.
    """

    unit = "row"
    layout: Layout
    rows: int

    def __init__(self, path: str, place: int, ahead: bool) -> None:
        super().__init__(path, place)
        self._kept: OrderedDict[Any, Batch] = OrderedDict()
        self._used = 0  # bytes of them
        self._room = 0 if ahead else KEPT_BYTES
        self._bytes = PIECE_BYTES if ahead else FEW_BYTES

    def check(self, place: int) -> None:
        """See that reading can begin at a place."""
        if not 0 <= place <= self.rows:
            raise RecordCorruptError(
                self.path, place, f"no row begins here; the file has {self.rows:,}", self.unit
            )

    @abstractmethod
    def batch(self, key: Any) -> Batch:
        """Read a batch."""

    def slice(self, key: Any, place: int) -> Chunk:
        """Rows of a batch from a place on, as many as are good to have at once."""
        batch = self._kept.get(key)
        if batch is None:
            batch = self.batch(key)
            self.keep(key, batch)
        self._kept.move_to_end(key)
        if batch.rows is None:
            return Chunk(range(place, batch.stop), batch.stop, None, problem=batch.problem)
        count = batch.stop - batch.first
        step = max(1, min(MOST_ROWS, self._bytes * count // max(1, batch.rows.nbytes)))
        stop = min(batch.stop, place + step)
        bad: Bad = {}
        rows = batch.rows.slice(place - batch.first, stop - place)
        return Chunk(range(place, stop), stop, self.layout.nest(rows, bad), bad)

    def keep(self, key: Any, batch: Batch) -> None:
        """Keep a batch, and of those before it what there is room for."""
        self._used += batch.nbytes - (self._kept[key].nbytes if key in self._kept else 0)
        self._kept[key] = batch
        while len(self._kept) > 1 and self._used > self._room:
            self._used -= self._kept.popitem(last=False)[1].nbytes

    def close(self) -> None:
        super().close()
        self._kept.clear()
        self._used = 0
