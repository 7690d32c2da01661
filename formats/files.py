"""The records of several files, by number."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from tundish.errors import RecordCorruptError

if TYPE_CHECKING:
    from tundish.formats.format import Format, RecordReader, Run
    from tundish.formats.index import Index

UNREADABLE = -1
"""The place of the record that represents a file that cannot be opened."""

_MOST_OPEN = 16
_AT_ONCE = 1 << 16
_HOP = 1 << 12  # bytes that take less time to read than another call


_ALL: WeakSet[RecordFiles] = WeakSet()


class RecordFiles:
    """A source (`tundish.source.Source`) of the records of several files in sequence.

    A file that cannot be opened counts as one record, which is its error. Files are opened when needed, a few at a time. It
    may be copied to other processes, and used by several threads.

    Parameters
    ----------
    form : Format
        The files' format.
    paths : sequence of str
        The files.
    indexes : sequence of Index
        The index of each file.

    Attributes
    ----------
    units : (units,) int64 ndarray
        The number of records in each unit of storage: a row group, a record batch, a run of records.
    """

    def __init__(self, form: Format, paths: Sequence[str], indexes: Sequence[Index]) -> None:
        self.form, self.paths = form, tuple(paths)
        counts = [1 if index.error is not None else len(index.places) for index in indexes]
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
        units = [index.units for index in indexes]
        joined = np.concatenate(units) if units else np.zeros(0, np.int64)
        self.units = joined[joined > 0].astype(np.int64)
        self._unreadable = {k: x.error for k, x in enumerate(indexes) if x.error is not None}
        self._identities = [index.identity for index in indexes]
        self._ranges: list[range] | None = None
        self._places = np.zeros(0, np.int64)
        parts = [
            range(UNREADABLE, UNREADABLE + 1) if index.error is not None else index.places
            for index in indexes
        ]
        if all(isinstance(part, range) for part in parts):
            self._ranges = [part for part in parts if isinstance(part, range)]
        elif len(parts) == 1:
            self._places = np.asarray(parts[0], np.int64)
        else:
            # One array: it is put into shared memory once, for all workers.
            self._places = np.concatenate([np.asarray(part, np.int64) for part in parts])
        self._begin()

    def opens_paths(self) -> Sequence[str]:
        """Return the files, for code that sends this to other processes."""
        return self.paths

    def _begin(self) -> None:
        _ALL.add(self)
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[int, bool], RecordReader] = OrderedDict()
        self._next = 0
        self._run: tuple[int, Run] | None = None  # the number of its first record, and the run

    def __getstate__(self) -> dict[str, Any]:
        kept = self.__dict__.copy()
        for name in ("_lock", "_open", "_next", "_run"):
            del kept[name]
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def check_readable(self) -> None:
        """Raise the error of the first file that cannot be opened, if there is one."""
        for file in sorted(self._unreadable):
            self.form.open(self.paths[file]).close()

    def origin(self, index: int) -> tuple[int, int]:
        """Return a record's file number, and its offset in the file."""
        file = int(np.searchsorted(self._starts, index, "right")) - 1
        return file, self._place(file, index - int(self._starts[file]))

    def _place(self, file: int, at: int) -> int:
        if self._ranges is not None:
            return self._ranges[file][at]
        return int(self._places[int(self._starts[file]) + at])

    def close(self) -> None:
        """Close all files, unless they are being read; they are opened again when needed.

        A reader may be further up the stack of this very thread: an iterator that is garbage is closed wherever it is.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._clear()
            finally:
                self._lock.release()

    def _clear(self) -> None:
        """Close all files and forget what was read of them, with the lock held."""
        while self._open:
            self._open.popitem()[1].close()
        self._run = None

    def keep(self, nbytes: int) -> None:
        """Set the size of the cache of decoded records."""

    # -- records -------------------------------------------------------------------------------

    def __getitem__(self, index: int) -> Any:
        with self._lock:
            run = self._run
            if run is not None and 0 <= index - run[0] < len(run[1]):
                return run[1][index - run[0]]
            (found,) = self._get([index], ahead=index == self._next)
        if isinstance(found, Exception):
            raise found
        return found

    def get(self, indices: Sequence[int]) -> list[Any]:
        """Return records by number; an exception in place of one that cannot be read."""
        with self._lock:
            return self._get(indices, ahead=False)

    def _get(self, indices: Sequence[int], *, ahead: bool) -> list[Any]:
        """Return records by number; with `ahead`, records that follow a requested one are cached."""
        order = np.argsort(np.asarray(indices, np.int64), kind="stable").tolist()
        numbers = [int(indices[each]) for each in order]
        found: list[Any] = [None] * len(order)
        k = 0
        while k < len(order):
            first = last = numbers[k]
            file = int(np.searchsorted(self._starts, first, "right")) - 1
            behind = k + 1
            while behind < len(order) and self._near(file, last, numbers[behind]):
                last = numbers[behind]
                behind += 1
            most = _AT_ONCE if ahead else last + 1 - first
            run = self._read(file, first, most, ahead=ahead)
            if isinstance(run, Exception):
                found[order[k]] = run
                k += 1
                continue
            if ahead:
                self._run, self._next = (first, run), first + len(run)
            stop = min(first + len(run), last + 1)
            while k < len(order) and numbers[k] < stop:
                found[order[k]] = run[numbers[k] - first]
                k += 1
        if not ahead and len(order):
            self._next = int(indices[-1]) + 1
        return found

    def _near(self, file: int, number: int, other: int) -> bool:
        """Return True if a record and a later one are read together, discarding those between."""
        start, stop = int(self._starts[file]), int(self._starts[file + 1])
        if other >= stop or other - number <= 1:
            return other < stop
        return self._place(file, other - start) - self._place(file, number - start) <= _HOP

    def _read(self, file: int, first: int, most: int, *, ahead: bool) -> Run | Exception:
        """Read records of a file from a number on; return the first one's error if it cannot be read."""
        if file in self._unreadable:
            return self._again(file)
        at = first - int(self._starts[file])
        place = self._place(file, at)
        try:
            reader = self._reader(file, place, ahead=ahead)
            run = reader.read(most)
        except Exception as error:  # noqa: BLE001 - whatever a format, or a driver, raises
            return error
        if not len(run) or int(run.places[0]) != place:
            return self._changed(file, place)
        count = min(len(run), int(self._starts[file + 1]) - first)
        if int(run.places[count - 1]) != self._place(file, at + count - 1):
            return self._changed(file, place)
        return run

    def _reader(self, file: int, place: int, *, ahead: bool) -> RecordReader:
        key = (file, ahead)
        reader = self._open.pop(key, None)
        if reader is None:
            reader = self.form.open(self.paths[file], place, ahead=ahead)
            known = self._identities[file]
            if known is not None and reader.identity is not None and reader.identity != known:
                reader.close()
                raise self._changed(file, place)
            self._opened(reader, ahead=ahead)
        elif reader.place != place:
            reader.seek(place)
        self._open[key] = reader
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        return reader

    def _opened(self, reader: RecordReader, *, ahead: bool) -> None:
        """Register an opened file."""

    def _changed(self, file: int, place: int) -> Exception:
        problem = "the file has changed since it was opened; make a new iterator"
        return RecordCorruptError(self.paths[file], place, problem, self.form.unit)

    def _again(self, file: int) -> Exception:
        """Return the error of a file that could not be opened, as opening it raises it."""
        try:
            self.form.open(self.paths[file]).close()
        except Exception as error:  # noqa: BLE001 - the file's
            return error
        return self._changed(file, 0)

    def run(self, first: int, most: int) -> tuple[Run, int, int] | Exception:
        """Return consecutive records as a run and the range in it, or the error of the first.

        Records that were read beyond `most` are cached.
        """
        with self._lock:
            kept = self._run
            if kept is None or not 0 <= first - kept[0] < len(kept[1]):
                file = int(np.searchsorted(self._starts, first, "right")) - 1
                found = self._read(file, first, max(most, _AT_ONCE), ahead=True)
                if isinstance(found, Exception):
                    return found
                kept = self._run = (first, found)
            at = first - kept[0]
            return kept[1], at, min(len(kept[1]), at + most)

    def gather(self, numbers: range | np.ndarray) -> Any:
        """Return records as columns, equal to those of a batch of them.

        Parameters
        ----------
        numbers : range or (k,) int64 array
            The numbers of the records, in any order, with repetitions.

        Returns
        -------
        nest of (k, ...) arrays or None
            New arrays. None: one of the records cannot be read, or they do not fit one batch; reading them one by one
            shows why.
        """
        if self.form.leaf is None or not len(numbers) or not self._has(numbers):
            return None
        values: list[Any] = []
        if isinstance(numbers, range) and numbers.step == 1:
            while len(values) < len(numbers):
                found = self.run(numbers[len(values)], len(numbers) - len(values))
                if isinstance(found, Exception):
                    return None
                values += found[0].part(*found[1:])
        else:
            values = self.get(numbers.tolist() if isinstance(numbers, np.ndarray) else numbers)
            if any(isinstance(value, Exception) for value in values):
                return None
        column = np.empty(len(values), object)
        column[:] = values
        return column

    def _has(self, numbers: range | np.ndarray) -> bool:
        """Return True if all numbers are in range; a state may name others, which are errors of their elements."""
        if isinstance(numbers, range):
            return min(numbers[0], numbers[-1]) >= 0 and max(numbers[0], numbers[-1]) < len(self)
        return bool(numbers.min() >= 0 and numbers.max() < len(self))


def _after_fork() -> None:
    """Open files again: the position of an open one would be shared with the parent process."""
    for each in list(_ALL):
        each._begin()  # noqa: SLF001 - a constructor


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
