"""The rows of several files of tables, by number: many at once, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tundish.errors import RecordCorruptError
from tundish.formats.files import RecordFiles
from tundish.formats.format import Columns
from tundish.formats.kept import Kept
from tundish.spec import flatten, map_leaves, unflatten

if TYPE_CHECKING:
    from tundish.formats.format import Reader
    from tundish.formats.tables.reader import Chunk, TableReader

_WHOLE = ""  # the key of all rows of all files
_FAR = np.iinfo(np.int64).max  # behind the last row of a file


class TableFiles(RecordFiles):
    """As `RecordFiles`, of a format that is tabular.

    What was decoded for rows here and there is kept, within a number of bytes, until the files are closed.
    Where that is all there is, it is put together, and rows are taken of it at once.
    """

    def _begin(self) -> None:
        super()._begin()
        self._kept, self._known = Kept(), 0

    def __getstate__(self) -> dict[str, Any]:
        kept = super().__getstate__()
        del kept["_kept"], kept["_known"]
        return kept

    def keep(self, nbytes: int) -> None:
        """Set how many bytes of decoded rows may be kept."""
        self._kept.room = nbytes

    def close(self) -> None:
        super().close()
        with self._lock:
            self._kept.clear()
            self._known = 0

    def _opened(self, reader: Reader, *, ahead: bool) -> None:
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
        return Columns((), 0, map_leaves(_read_only, columns)).part(0, len(indices))

    def _row(self, number: int) -> Any:
        """A row, or what stands in its place."""
        try:
            (chunk,), _ = self._picked(np.array([number]))
        except Exception as error:  # noqa: BLE001 - whatever a format, or a driver, raises
            return error
        problem = chunk.wrong(0)
        if problem is None:
            return Columns(chunk.places, chunk.after, chunk.nest)[0]
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
            return self._columns(numbers)

    def _columns(self, numbers: np.ndarray) -> Any:
        """Rows by their numbers; None where they do not stand in one batch."""
        try:
            chunks, rows = self._picked(numbers)
        except Exception:  # noqa: BLE001 - told at its record
            return None
        if any(chunk.bad or chunk.problem for chunk in chunks):
            return None
        found = joined([chunk.nest for chunk in chunks])
        return None if found is None else _stacked(found, rows)

    def _picked(self, numbers: np.ndarray) -> tuple[list[Chunk], Any]:
        """Rows of tables, in the order in which they lie, and where in it those of each number are."""
        whole = self._kept.get(_WHOLE)
        if whole is not None:
            return [whole.chunk(numbers)], slice(None)
        order = np.argsort(numbers)
        chunks = list(self._chunks(numbers[order]))
        if len(self._kept) != self._known:
            self._known = len(self._kept)
            self._join()
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return chunks, places

    def _join(self) -> None:
        """Put batches together to one where all there are are kept: rows are taken of one more quickly."""
        batches = self._kept.items()
        if sum(batch.stop - batch.first for _, batch in batches) != len(self):
            return
        at = {path: k for k, path in enumerate(self.paths)}
        batches.sort(key=lambda item: (at[item[0][0]], item[1].first))
        whole = batches[0][1].joined([batch for _, batch in batches])
        if whole is not None:
            self._kept.clear()
            self._kept.put(_WHOLE, whole)

    def _stretch(self, first: int, stop: int) -> Any:
        """Consecutive records; what was read beyond them is kept for who asks next."""
        pieces = []
        while first < stop:
            found = self.run(first, stop - first)
            if isinstance(found, Exception):
                return None
            run, start, end = found
            assert isinstance(run, Columns)
            pieces.append(run.stacked(start, end))
            first += end - start
        whole = joined(pieces)
        return None if whole is None else _stacked(whole, slice(None))

    def _chunks(self, numbers: np.ndarray) -> Iterator[Chunk]:
        """Rows of tables, by ascending numbers."""
        k = 0
        while k < len(numbers):
            file = int(np.searchsorted(self._starts, numbers[k], "right")) - 1
            if file in self._unreadable:
                raise self._again(file)
            behind = int(np.searchsorted(numbers, self._starts[file + 1]))
            places, stops = self._spans(file, numbers[k:behind])
            reader = cast("TableReader", self._reader(file, int(places[0]), ahead=False))
            yield from reader.picked(places, stops)
            k = behind

    def _spans(self, file: int, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places where rows of a file begin, and where they end."""
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
    """Values that do not stand in one array."""


def _stacked(columns: Any, rows: Any) -> Any:
    """Rows of columns in new arrays, as a batch has them; None if they do not stand in one."""
    try:
        return map_leaves(lambda column: _column(column, rows), columns)
    except _NoBatchError:
        return None


def _column(column: np.ndarray, rows: Any) -> np.ndarray:
    chosen: np.ndarray = column[rows]
    if column.dtype != object:
        return chosen.copy() if isinstance(rows, slice) else chosen
    kinds = set(map(type, chosen.ravel()))
    if kinds in ({str}, {bytes}):
        return chosen.copy()
    if kinds != {np.ndarray} or chosen.ndim > 1 or chosen[0].dtype == object:
        raise _NoBatchError
    if len({(value.dtype, value.shape) for value in chosen}) > 1:
        raise _NoBatchError
    return np.stack(list(chosen))


def joined(pieces: list[Any]) -> Any:
    """Batches put together to one, if their structures, dtypes and shapes of rows are the same; else None."""
    if len(pieces) == 1:
        return pieces[0]
    parts = [flatten(piece) for piece in pieces]
    tree = parts[0][1]
    if any(other != tree for _, other in parts):
        return None
    leaves = []
    for columns in zip(*(part for part, _ in parts), strict=True):
        if len({(column.dtype, column.shape[1:]) for column in columns}) > 1:
            return None
        leaves.append(np.concatenate(columns))
    return unflatten(tree, leaves)
