"""The rows of several table files by number, many at once, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import numpy as np

from tundish.errors import RecordCorruptError
from tundish.formats.files import RecordFiles
from tundish.formats.format import ColumnRun
from tundish.formats.kept import ROOM, ByteCache
from tundish.merging import merged
from tundish.spec import map_leaves

if TYPE_CHECKING:
    from tundish.formats.format import RecordReader
    from tundish.formats.tables.reader import MergedBatches, TableBatch, TableReader, TableRows

_TOGETHER = ""  # the key of combined batches
_FAR = np.iinfo(np.int64).max  # after the last row of a file

_between: WeakSet[TableFiles] = WeakSet()
"""The source whose rows are kept for its next iterator: at most one."""


class TableFiles(RecordFiles):
    """The rows of files of a tabular format, by number.

    Decoded rows are cached, up to a number of bytes, until the files are closed. If they are all the rows, or the same
    ones are requested again (a window of `shuffle(None, units=)`), they are merged into one batch, from which rows are taken
    at once.

    All rows of a small table stay when the files are closed, so that the next epoch does not decode them again, until
    another table is read by number. Who makes an iterator looks at the files first: changed ones are another source.
    """

    def _begin(self) -> None:
        super()._begin()
        self._kept, self._known = ByteCache(), 0
        self._asked = list[int]()  # the batches of the last requested rows
        self._tried = False  # whether combining those batches was tried

    def __getstate__(self) -> dict[str, Any]:
        kept = super().__getstate__()
        del kept["_kept"], kept["_known"], kept["_asked"], kept["_tried"]
        return kept

    def keep(self, nbytes: int) -> None:
        """Set the size of the cache of decoded rows; what another table has left is dropped."""
        self._alone()
        _between.discard(self)
        if self._kept.used > nbytes:
            self.drop()
        self._kept.room = nbytes

    def _alone(self) -> None:
        """Drop what other tables have left."""
        for other in [each for each in _between if each is not self]:
            other.drop()

    def drop(self) -> None:
        """Drop the rows that wait for another iterator, unless one is reading them."""
        if self._lock.acquire(blocking=False):
            try:
                _between.discard(self)
                self._kept.clear()
                self._known = 0
            finally:
                self._lock.release()

    def _clear(self) -> None:
        super()._clear()
        whole = self._kept.get(_TOGETHER)
        self._kept.clear()
        if whole is not None and self._stays(whole):
            self._alone()
            _between.add(self)
            self._kept.put(_TOGETHER, whole)
        self._known = len(self._kept)

    def _stays(self, batch: MergedBatches) -> bool:
        """Return True if decoded rows may stay without an iterator: all of them, few bytes, of files that are known."""
        return (
            len(batch) == len(self)
            and batch.nbytes <= min(ROOM, self._kept.room)
            and None not in self._identities
        )

    def _opened(self, reader: RecordReader, *, ahead: bool) -> None:
        if not ahead:
            cast("TableReader", reader).kept = self._kept

    # -- records -------------------------------------------------------------------------------

    def _get(self, indices: Sequence[int], *, ahead: bool) -> list[Any]:
        if ahead or not len(indices):
            return super()._get(indices, ahead=ahead)
        self._next = int(indices[-1]) + 1
        columns = self._columns(np.asarray(indices, np.int64)) if len(indices) > 1 else None
        if columns is None:
            return [self._row(int(number)) for number in indices]
        return ColumnRun((), 0, map_leaves(_read_only, columns)).part(0, len(indices))

    def _row(self, number: int) -> Any:
        """Return a row, or its error."""
        try:
            ((_, chunk),) = self._picked(np.array([number]))
        except Exception as error:  # noqa: BLE001 - whatever a format, or a driver, raises
            return error
        problem = chunk.wrong(0)
        if problem is None:
            return ColumnRun(chunk.places, chunk.after, chunk.nest)[0]
        file, place = self.origin(number)
        return RecordCorruptError(self.paths[file], place, problem, self.form.unit)

    # -- columns -------------------------------------------------------------------------------

    def gather(self, numbers: range | np.ndarray) -> Any:
        if not len(numbers) or not self._has(numbers):
            return None
        if isinstance(numbers, range):
            if numbers.step == 1:
                return self._stretch(numbers.start, numbers.stop)
            numbers = np.arange(numbers.start, numbers.stop, numbers.step)
        with self._lock:
            together = self._kept.get(_TOGETHER)
            rows = None if together is None else together.rows(numbers)
            found = None if rows is None else together.batch.taken(rows)
            return self._columns(numbers) if found is None else found

    def _columns(self, numbers: np.ndarray) -> Any:
        """Return rows by number as columns; None if they do not fit one batch."""
        try:
            parts = self._picked(numbers)
        except Exception:  # noqa: BLE001 - raised again at its record
            return None
        if any(chunk.bad or chunk.problem for _, chunk in parts):
            return None
        return _stacked([(places, chunk.nest) for places, chunk in parts], len(numbers))

    def _picked(self, numbers: np.ndarray) -> list[tuple[Any, TableRows]]:
        """Return rows of tables by number, and the indices of `numbers` that they belong to."""
        together = self._kept.get(_TOGETHER)
        if together is not None:
            rows = together.rows(numbers)
            if rows is not None:
                return [(slice(None), together.batch.chunk(rows))]
            if len(numbers) > 1:  # other rows are requested now, and need its memory
                self._kept.pop(_TOGETHER)
        order = np.argsort(numbers)
        parts, k = list[tuple[Any, Any]](), 0
        batches: dict[int, TableBatch] = {}
        for file, chunk in self._chunks(numbers[order]):
            parts.append((order[k : k + len(chunk)], chunk))
            k += len(chunk)
            if chunk.batch is not None:
                batches[int(self._starts[file]) + chunk.batch.first] = chunk.batch
        if batches:
            self._put_together(batches)
        return parts

    def _put_together(self, asked: dict[int, TableBatch]) -> None:
        """Merge cached batches into one if they are all rows, or are requested again: taking rows from one is faster.

        Parameters
        ----------
        asked : dict of int to TableBatch
            The batches from which rows were just taken, by the numbers of their first rows.
        """
        again, self._asked = list(asked) == self._asked, list(asked)
        whole = False
        if len(self._kept) != self._known:
            self._known = len(self._kept)
            at = dict(zip(self.paths, self._starts[:-1].tolist(), strict=True))
            every = {
                at[key[0]] + one.first: one for key, one in self._kept.items() if key != _TOGETHER
            }
            whole = sum(one.stop - one.first for one in every.values()) == len(self)
            asked = every if whole else asked
        if not whole and (not again or self._tried):
            self._tried = self._tried and again
            return
        self._tried = True
        # Besides the combined batches, there must be room for the next request.
        if whole or 2 * sum(one.nbytes for one in asked.values()) <= self._kept.room:
            found = next(iter(asked.values())).together(asked)
            if found is not None:
                if whole:
                    self._kept.clear()
                self._kept.put(_TOGETHER, found)
                self._known = len(self._kept)

    def _stretch(self, first: int, stop: int) -> Any:
        """Return consecutive records; rows that were read beyond them are cached."""
        parts, count = list[tuple[slice, Any]](), 0
        while first < stop:
            found = self.run(first, stop - first)
            if isinstance(found, Exception):
                return None
            run, start, end = found
            assert isinstance(run, ColumnRun)
            parts.append((slice(count, count + end - start), run.stacked(start, end)))
            count += end - start
            first += end - start
        return _stacked(parts, count)

    def _chunks(self, numbers: np.ndarray) -> Iterator[tuple[int, TableRows]]:
        """Yield rows of tables by ascending numbers, with the file of each."""
        k = 0
        while k < len(numbers):
            file = int(np.searchsorted(self._starts, numbers[k], "right")) - 1
            if file in self._unreadable:
                raise self._again(file)
            behind = int(np.searchsorted(numbers, self._starts[file + 1]))
            places, stops = self._spans(file, numbers[k:behind])
            reader = cast("TableReader", self._reader(file, int(places[0]), ahead=False))
            for chunk in reader.picked(places, stops):
                yield file, chunk
            k = behind

    def _spans(self, file: int, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of rows of a file, and the places where they end."""
        if self._ranges is not None:
            places = numbers - self._starts[file] + self._ranges[file].start
            return places, places + 1
        ends = np.minimum(numbers + 1, len(self._places) - 1)
        stops = np.where(numbers + 1 < self._starts[file + 1], self._places[ends], _FAR)
        return self._places[numbers], stops


def _read_only(column: np.ndarray) -> np.ndarray:
    column.flags.writeable = False
    return column


class _NoBatchError(Exception):
    """Values cannot be stacked in one array."""


def _stacked(parts: list[tuple[Any, Any]], count: int) -> Any:
    """Concatenate rows of several parts in new arrays, as in a batch; None if they do not fit one batch."""
    columns = merged(parts, count)
    try:
        return None if columns is None else map_leaves(_column, columns)
    except _NoBatchError:
        return None


def _column(column: np.ndarray) -> np.ndarray:
    kinds = set(map(type, column.ravel())) if column.dtype == object else {str}
    if kinds in ({str}, {bytes}):
        # Arrays that were read are read-only, or views; any other was made just now of scattered rows.
        return column if column.flags.owndata and column.flags.writeable else column.copy()
    if kinds != {np.ndarray} or column.ndim > 1 or column[0].dtype == object:
        raise _NoBatchError
    if len({(value.dtype, value.shape) for value in column}) > 1:
        raise _NoBatchError
    return np.stack(list(column))
