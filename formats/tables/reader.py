"""Readers of table files: rows of pieces that are decoded at once."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from tundish.errors import RecordCorruptError
from tundish.formats.format import ColumnRun, RecordReader, RecordRun, Run
from tundish.formats.kept import ByteCache
from tundish.formats.tables.form import TableFormat
from tundish.formats.tables.source import ARROW_ERRORS
from tundish.spec import flatten, map_leaves, unflatten

if TYPE_CHECKING:
    from tundish.formats.format import Places
    from tundish.formats.tables.columns import Bad
    from tundish.formats.tables.form import TableLayout
    from tundish.spec import Tree

PIECE_BYTES = 4 << 20
"""The approximate number of bytes that are converted at once when records are read in sequence."""

MOST_ROWS = 1 << 16

_NOWHERE = np.iinfo(np.int64).max  # more than any row's number


class TableRows:
    """Consecutive decoded rows of a file.

    Parameters
    ----------
    places : sequence of int
        The place of each row.
    after : int
        The place after the last row.
    nest : nest of arrays
        The rows' columns.
    bad : dict of int to str
        Rows that cannot be returned, with the problem.
    problem : str
        The reason why none of them can be returned; "" if they can.
    batch : TableBatch or None
        The batch that they were made from, if it is cached.
    """

    def __init__(
        self,
        places: Sequence[int] | np.ndarray,
        after: int,
        nest: Any,
        bad: Bad | None = None,
        problem: str = "",
        *,
        batch: TableBatch | None = None,
    ) -> None:
        self.places, self.after, self.nest = places, after, nest
        self.bad = bad or {}
        self.problem, self.batch = problem, batch
        self._stops = sorted(self.bad)

    def __len__(self) -> int:
        return len(self.places)

    def place(self, row: int) -> int:
        """Return the place of a row; after the last row, the place that follows."""
        return int(self.places[row]) if row < len(self) else self.after

    def wrong(self, row: int) -> str | None:
        """Return the problem of a row; None if it has none."""
        return self.problem or self.bad.get(row)

    def good(self, row: int, most: int) -> int:
        """Return the end of the range of valid rows that begins at a row."""
        stop = bisect_left(self._stops, row)
        end = self._stops[stop] if stop < len(self._stops) else len(self)
        return min(end, row + max(1, most))


class TableReader(RecordReader):
    """Reads rows; a format supplies the next ones."""

    unit: ClassVar[str] = "byte"
    """The unit of its places."""

    kept: ByteCache
    """The decoded rows, if the format decodes several together."""

    def __init__(self, path: str, place: int) -> None:
        self.path, self.place = path, place
        self._chunk: TableRows | None = None
        self._row = 0

    @abstractmethod
    def _find(self, place: int) -> tuple[TableRows, int] | None:
        """Return rows that include the one at a place, and its index in them; None at the end of the file."""

    @abstractmethod
    def picked(self, places: np.ndarray, stops: np.ndarray) -> list[TableRows]:
        """Return chosen rows.

        Parameters
        ----------
        places : (k,) int64 array
            The place of each row, ascending, with repetitions.
        stops : (k,) int64 array
            The place after each row.

        Returns
        -------
        list of TableRows
            All of the rows, in order.

        Raises
        ------
        RecordCorruptError, OSError
            One of them cannot be read; reading them one by one shows which.
        """

    def read(self, most: int) -> Run:
        chunk, row = self._chunk, self._row
        if chunk is None or row >= len(chunk):
            self._chunk = None
            found = self._find(self.place)
            if found is None:
                return RecordRun((), self.place, [])
            chunk, row = self._chunk, self._row = found
        problem = chunk.wrong(row)
        if problem is not None:
            self._row, self.place = row + 1, chunk.place(row + 1)
            raise RecordCorruptError(self.path, chunk.place(row), problem, self.unit)
        end = chunk.good(row, most)
        self._row, self.place = end, chunk.place(end)
        nest = map_leaves(lambda column: column[row:end], chunk.nest)
        return ColumnRun(chunk.places[row:end], self.place, nest)

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
class TableBatch:
    """Arrow rows that were read at once.

    Attributes
    ----------
    first, stop : int
        The range of row numbers.
    rows : pyarrow.RecordBatch or None
        None if they cannot be decoded.
    layout : TableLayout
        Converts the rows to a nest.
    problem : str
        The reason why they cannot be decoded.
    """

    first: int
    stop: int
    rows: Any
    layout: TableLayout
    problem: str = ""

    @property
    def nbytes(self) -> int:
        """The size of the rows in bytes."""
        return 0 if self.rows is None else int(self.rows.nbytes)

    def chunk(self, places: range | np.ndarray) -> TableRows:
        """Convert some of the rows, with repetitions."""
        count, after = len(places), int(places[-1]) + 1
        if self.rows is None:
            return TableRows(places, after, None, problem=self.problem)
        first, bad = int(places[0]), dict[int, str]()
        if after - first == count and (isinstance(places, range) or (np.diff(places) == 1).all()):
            nest = self.layout.nest(self.rows.slice(first - self.first, count), bad)
        else:
            at = np.asarray(places) - self.first
            nest = self.taken(at)
            if nest is None:
                nest = self.layout.nest(self.rows.take(pa.array(at)), bad)
        return TableRows(places, after, nest, bad, batch=self)

    def taken(self, at: np.ndarray) -> Any:
        """Gather rows by index into new arrays; None unless they are numbers without nulls."""
        if self._views is None:
            return None
        columns, tree = self._views
        return unflatten(tree, [column.take(at, axis=0) for column in columns])

    @cached_property
    def _views(self) -> tuple[list[Any], Tree] | None:
        """Return all rows as columns, and their structure, if the columns are Arrow's own memory; else None."""
        plain = all(pa.types.is_primitive(c.type) and not c.null_count for c in self.rows.columns)
        bad: dict[int, str] = {}
        found = flatten(self.layout.nest(self.rows, bad)) if plain else None
        own = found is None or bad or any(column.flags.owndata for column in found[0])
        return None if own else found

    @staticmethod
    def together(batches: Mapping[int, TableBatch]) -> MergedBatches | None:
        """Merge batches, by the numbers of their first rows; None if one cannot be decoded, or they differ."""
        firsts = np.array(sorted(batches), np.int64)
        parts = [batches[first].rows for first in firsts.tolist()]
        if any(rows is None or not rows.schema.equals(parts[0].schema) for rows in parts):
            return None
        try:
            found = pa.Table.from_batches(parts).combine_chunks().to_batches()
        except ARROW_ERRORS:
            return None
        if len(found) != 1:  # texts beyond what one array can have
            return None
        counts = np.array([len(rows) for rows in parts], np.int64)
        # A run that begins where another ends continues that one.
        edges = np.setxor1d(firsts, firsts + counts)
        before = np.full(len(edges) + 1, _NOWHERE)
        before[1::2] = (firsts + counts - np.cumsum(counts))[firsts.searchsorted(edges[::2])]
        batch = TableBatch(0, len(found[0]), found[0], batches[int(firsts[0])].layout)
        return MergedBatches(edges, before, batch)


@dataclass(frozen=True)
class MergedBatches:
    """Batches of one or more files, merged into one.

    Attributes
    ----------
    edges : (2 k,) int64 ndarray
        The bounds of ranges of consecutive row numbers, ascending.
    before : (2 k + 1,) int64 ndarray
        For the gaps before, between and after these ranges: the difference between a row's number and its index in
        the batch.
    batch : TableBatch
        The merged batch.
    """

    edges: np.ndarray
    before: np.ndarray
    batch: TableBatch

    def __len__(self) -> int:
        return self.batch.stop

    @property
    def nbytes(self) -> int:
        """The size of the rows in bytes."""
        return self.batch.nbytes

    def rows(self, numbers: np.ndarray) -> np.ndarray | None:
        """Return the indices of rows in the batch; None if one is not in it."""
        found: np.ndarray = numbers - self.before.take(self.edges.searchsorted(numbers, "right"))
        return None if found.min() < 0 else found


class BatchReader(TableReader):
    """Reads rows by number, from Arrow batches that are cached for a while.

    Attributes
    ----------
    layout : TableLayout
        Converts a batch to a nest.
    rows : int
        The number of rows of the file.
    groups : list of int
        The number of rows of each row group or record batch.
    """

    unit = "row"
    layout: TableLayout
    rows: int
    groups: list[int]

    def __init__(self, path: str, place: int, ahead: bool) -> None:
        super().__init__(path, place)
        self.kept = ByteCache(0) if ahead else ByteCache()

    def check(self, place: int) -> None:
        """Check that reading can begin at a place."""
        if not 0 <= place <= self.rows:
            raise RecordCorruptError(
                self.path, place, f"no row begins here; the file has {self.rows:,}", self.unit
            )

    @abstractmethod
    def batch(self, key: Any) -> TableBatch:
        """Read a batch."""

    @abstractmethod
    def key_of(self, place: int) -> Any:
        """Return the key of the batch that contains a row; None at the end of the file."""

    def around(self, place: int) -> TableBatch | None:
        """Return the batch that contains a row; None at the end of the file."""
        key = self.key_of(place)
        batch: TableBatch | None = None if key is None else self.kept.get((self.path, key))
        if batch is None and key is not None:
            batch = self.batch(key)
            self.keep(key, batch)
        return batch

    def keep(self, key: Any, batch: TableBatch) -> None:
        """Cache a batch while there is room."""
        self.kept.put((self.path, key), batch)

    def _find(self, place: int) -> tuple[TableRows, int] | None:
        batch = self.around(place)
        if batch is None:
            return None
        stop = batch.stop
        if batch.rows is not None:  # a suitable number at a time
            step = PIECE_BYTES * (stop - batch.first) // max(1, batch.nbytes)
            stop = min(stop, place + max(1, min(MOST_ROWS, step)))
        return batch.chunk(range(place, stop)), 0

    def picked(self, places: np.ndarray, stops: np.ndarray) -> list[TableRows]:
        chunks, k = [], 0
        while k < len(places):
            batch = self.around(int(places[k]))
            if batch is None:
                self.check(int(places[k]) + 1)
            assert batch is not None
            stop = int(np.searchsorted(places, batch.stop))
            chunks.append(batch.chunk(places[k:stop]))
            k = stop
        return chunks

    def close(self) -> None:
        super().close()
        self.kept = ByteCache(0)


@dataclass(frozen=True)
class BatchFormat(TableFormat):
    """A format of tables that are stored in groups of rows with known sizes."""

    unit = "row"
    cheap = True

    @abstractmethod
    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> BatchReader: ...

    def places(self, path: str) -> Places:
        return self.look(path)[0]

    def look(self, path: str) -> tuple[Places, np.ndarray]:
        with self.open(path, ahead=False) as reader:
            groups = np.array(reader.groups, np.int64)
            return range(int(groups.sum())), groups
