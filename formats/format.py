"""The interface of formats of record files, and of their readers.

A *place* is an int that identifies a record within its file: the offset of its first byte (in the
decompressed stream, if the file is compressed), or its number if the format counts. Places ascend
from record to record, and depend on nothing but the file and the format's arguments. So a record is
identified by its file and its place, and any process can continue reading there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from tundish.normalising import normalise
from tundish.spec import ArraySpec, Tree, flatten, unflatten

RUN_BYTES = 1 << 20
"""About so much is read at once, though never less than a record."""

UNIT_BITS = 20
"""Records that begin in the same 2**20 bytes of a file are a unit. Orders hang on it: it stays what it is."""

Identity = tuple[int, int]
"""A file's size, and when it was changed (in ns; or a digest of what a remote store says of it)."""

Places = range | np.ndarray
"""The places of all records of a file, rising: arithmetic, or int64."""


class Run(ABC):
    """Consecutive records of a file.

    Attributes
    ----------
    places : sequence of int
        The place of each record.
    after : int
        The place after the last record, where reading continues.
    """

    __slots__ = ("after", "places")

    def __init__(self, places: Sequence[int] | np.ndarray, after: int) -> None:
        self.places, self.after = places, after

    def __len__(self) -> int:
        return len(self.places)

    @abstractmethod
    def __getitem__(self, k: int) -> Any:
        """Return record k, in its normal form (`tundish.normalising.normalise`)."""

    @abstractmethod
    def part(self, first: int, stop: int) -> list[Any]:
        """Return a range of the records."""

    def records(self) -> list[Any]:
        """Return all records."""
        return self.part(0, len(self))

    def columns(self, first: int, stop: int) -> Any:
        """Return a range of the records stacked as by `batch`; None if `batch` has to inspect each."""
        return None


class RecordRun(Run):
    """Records held one by one, in their normal form: bytes, str, dicts, ..."""

    __slots__ = ("_text", "values")

    def __init__(self, places: Sequence[int] | np.ndarray, after: int, values: list[Any]) -> None:
        super().__init__(places, after)
        self.values = values
        self._text: bool | None = None

    def __getitem__(self, k: int) -> Any:
        return self.values[k]

    def part(self, first: int, stop: int) -> list[Any]:
        return self.values[first:stop]

    def columns(self, first: int, stop: int) -> Any:
        if self._text is None:
            self._text = set(map(type, self.values)) in ({str}, {bytes})
        return np.array(self.values[first:stop], object) if self._text else None


class ColumnRun(Run):
    """Records held in columns.

    Attributes
    ----------
    nest : nest of (n, ...) arrays
        The batch of the records: a record's leaves are the rows. Columns of str, bytes
        and of arrays of several shapes are object arrays.
    """

    __slots__ = ("_flat", "nest")

    def __init__(self, places: Sequence[int] | np.ndarray, after: int, nest: Any) -> None:
        super().__init__(places, after)
        self.nest = nest
        self._flat: tuple[list[Any], Tree] | None = None

    @property
    def flat(self) -> tuple[list[Any], Tree]:
        """Return the columns, and their structure."""
        if self._flat is None:
            self._flat = flatten(self.nest)
        return self._flat

    def __getitem__(self, k: int) -> Any:
        columns, tree = self.flat
        return unflatten(tree, [normalise(column[k]) for column in columns])

    def part(self, first: int, stop: int) -> list[Any]:
        columns, tree = self.flat
        # Rows of an array of numbers are numpy scalars, as elements should be.
        parts = [column[first:stop] for column in columns]
        if not parts:
            return [unflatten(tree, []) for _ in range(first, stop)]
        return [unflatten(tree, list(row)) for row in zip(*parts, strict=True)]

    def columns(self, first: int, stop: int) -> Any:
        for column in self.flat[0]:
            # Arrays of different shapes cannot be in one batch, so each has to be inspected.
            if column.dtype == object and type(column[first]) not in (str, bytes):
                return None
        return self.stacked(first, stop)

    def stacked(self, first: int, stop: int) -> Any:
        """Return a range of the records as views of the columns."""
        columns, tree = self.flat
        return unflatten(tree, [column[first:stop] for column in columns])


class RecordReader(ABC):
    """Reads the records of one file in sequence.

    Attributes
    ----------
    path : str
        The file's path.
    place : int
        The place of the next record.
    identity : Identity or None
        The file's identity when it was opened; None if unknown.
    """

    path: str
    place: int
    identity: Identity | None = None

    @abstractmethod
    def read(self, most: int) -> Run:
        """Return the next records.

        Parameters
        ----------
        most : int
            Their largest number; fewer are returned if they exceed `RUN_BYTES` or the file ends.

        Returns
        -------
        Run
            An empty one only at the end of the file.

        Raises
        ------
        RecordCorruptError, OSError
            Raised for the *first* of these records only: those before it have been returned. `place` is then
            that of the next readable record, if it is known; if it has not changed, the rest of the file cannot be
            read.
        """

    def seek(self, place: int) -> None:
        """Go to the record at a place, if the format is `seekable`."""
        self.place = place

    @abstractmethod
    def close(self) -> None:
        """Close the file; may be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Format(ABC):
    """A description of how records are stored in a file: only arguments, which are sent to workers and compared."""

    name: ClassVar[str] = ""
    """As its dataset is called: "TFRecordDataset"."""

    unit: ClassVar[str] = "byte"
    """The unit of a place: "byte" or "row"."""

    tabular: ClassVar[bool] = False
    """True if its runs are `ColumnRun`, whose elements are read-only views."""

    grouped: ClassVar[bool] = False
    """True if a record is decoded together with many others: one here and one there costs many times its size."""

    tuning: ClassVar[frozenset[str]] = frozenset()
    """Arguments that say how fast, not what."""

    @property
    def given(self) -> dict[str, Any]:
        """Return the arguments that affect records, if they differ from the defaults."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in self.tuning and getattr(self, each.name) != each.default
        }

    @property
    def leaf(self) -> type | None:
        """The type of every record, if it is ``bytes`` or ``str``; None for anything else."""
        return None

    @property
    def spec(self) -> Any:
        """The nest of `ArraySpec` of every record, if the format determines it; else None."""
        return None if self.leaf is None else ArraySpec((), self.leaf)

    @property
    def seekable(self) -> bool:
        """True if reading may begin at any place for the cost of opening the file."""
        return not getattr(self, "compression", "")

    @property
    def cheap(self) -> bool:
        """True if `places` only needs the file's size, or a table in the file."""
        return False

    @abstractmethod
    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> RecordReader:
        """Open a file at a place.

        Parameters
        ----------
        path : str
            A local path or a URL.
        place : int
            The place of the first record to read. A format that is not `seekable` reads up to there.
        ahead : bool
            True if records are read in sequence; False if only a few here and there are, so that nothing else is
            read.

        Raises
        ------
        OSError
            The file cannot be opened: it does not exist, is a folder, cannot be accessed, ...
        RecordCorruptError
            The file is of another kind, or no record can begin at this place.
        """

    def places(self, path: str) -> Places:
        """Return the places of all records of a file, if the format is `seekable`.

        They include records that turn out to be damaged when they are read. If the file visibly cannot be read
        further, the last place is that of the damage: reading there raises what sequential reading would
        have raised.

        Raises
        ------
        OSError, RecordCorruptError
            As from `open`.
        """
        raise NotImplementedError(f"{self.name} has no places")

    def look(self, path: str) -> tuple[Places, np.ndarray | None]:
        """Return `places`, and the sizes of the groups in which records are stored, in order; None without groups.

        Raises
        ------
        OSError, RecordCorruptError
            As from `open`.
        """
        return self.places(path), None


def runs_of(places: Places) -> np.ndarray:
    """Return the sizes of runs of about equal bytes, for records that are not stored in groups.

    Examples
    --------
    >>> runs_of(range(0, 4 << 20, 300_000)).tolist()
    [4, 3, 4, 3]
    """
    if not len(places):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(np.diff(np.asarray(places, np.int64) >> UNIT_BITS)) + 1
    return np.diff(ends, prepend=0, append=len(places))
