"""Formats of files of records: what each of them can do, and what its readers give.

A *place* is an int that names a record within its file: the offset of its first byte (of the
decompressed stream, where the file is compressed), or its number where the format counts. Places rise
from record to record, and depend on nothing but the file and the format's arguments. So a record is
named by its file and its place, and reading goes on from there, in any process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from tundish.spec import ArraySpec, Tree, flatten, normalise, unflatten

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
        Of each.
    after : int
        The place behind the last: reading goes on there.
    """

    __slots__ = ("after", "places")

    def __init__(self, places: Sequence[int] | np.ndarray, after: int) -> None:
        self.places, self.after = places, after

    def __len__(self) -> int:
        return len(self.places)

    @abstractmethod
    def __getitem__(self, k: int) -> Any:
        """Record k, in its normal form (`tundish.spec.normalise`)."""

    @abstractmethod
    def part(self, first: int, stop: int) -> list[Any]:
        """Return some of them."""

    def records(self) -> list[Any]:
        """Return all of them."""
        return self.part(0, len(self))

    def columns(self, first: int, stop: int) -> Any:
        """Return some of them as `batch` stacks them; None where it has to look at each."""
        return None


class Records(Run):
    """Records that are at hand one by one, in their normal form: bytes, str, dicts, ..."""

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


class Columns(Run):
    """Records that lie in columns.

    Attributes
    ----------
    nest : nest of (n, ...) arrays
        What `batch` would make of the records: a record's leaves are the rows. Columns of str, bytes
        and of arrays of several shapes are object arrays.
    """

    __slots__ = ("_flat", "nest")

    def __init__(self, places: Sequence[int] | np.ndarray, after: int, nest: Any) -> None:
        super().__init__(places, after)
        self.nest = nest
        self._flat: tuple[list[Any], Tree] | None = None

    @property
    def flat(self) -> tuple[list[Any], Tree]:
        """The columns, and their structure."""
        if self._flat is None:
            self._flat = flatten(self.nest)
        return self._flat

    def __getitem__(self, k: int) -> Any:
        columns, tree = self.flat
        return unflatten(tree, [normalise(column[k]) for column in columns])

    def part(self, first: int, stop: int) -> list[Any]:
        columns, tree = self.flat
        # Rows of an array of numbers are numpy's scalars, as they are to be.
        parts = [column[first:stop] for column in columns]
        if not parts:
            return [unflatten(tree, []) for _ in range(first, stop)]
        return [unflatten(tree, list(row)) for row in zip(*parts, strict=True)]

    def columns(self, first: int, stop: int) -> Any:
        for column in self.flat[0]:
            # Arrays of several shapes do not stand in one batch: it has to look at each.
            if column.dtype == object and type(column[first]) not in (str, bytes):
                return None
        return self.stacked(first, stop)

    def stacked(self, first: int, stop: int) -> Any:
        """Some of the records as views of the columns."""
        columns, tree = self.flat
        return unflatten(tree, [column[first:stop] for column in columns])


class Reader(ABC):
    """Reads the records of one file, one after another.

    Attributes
    ----------
    path : str
        Of the file.
    place : int
        Of the next record.
    identity : Identity or None
        Of the file, as it was when it was opened; None where nobody knows.
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
            How many at most; fewer where they are many bytes (`RUN_BYTES`) or the file ends.

        Returns
        -------
        Run
            An empty one only at the end of the file.

        Raises
        ------
        RecordCorruptError, OSError
            For the *first* record that is to be read: those before it have been given. `place` is then
            that of the next record, where that is known; if it is as it was, this file can be read no
            further.
        """

    def seek(self, place: int) -> None:
        """Go to a record, of a format that is `seekable`."""
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
    """A way in which records stand in a file: arguments only, which travel to workers and are compared."""

    name: ClassVar[str] = ""
    """As its dataset is called: "TFRecordDataset"."""

    unit: ClassVar[str] = "byte"
    """What a place counts: "byte", or "row"."""

    tabular: ClassVar[bool] = False
    """Whether its runs are `Columns`: then elements are read-only, as views of them are."""

    grouped: ClassVar[bool] = False
    """True if a record is decoded together with many others: one here and one there costs many times its size."""

    tuning: ClassVar[frozenset[str]] = frozenset()
    """Arguments that say how fast, not what."""

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that say what its records are, where they are not the defaults."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in self.tuning and getattr(self, each.name) != each.default
        }

    @property
    def leaf(self) -> type | None:
        """The type of every record, if it is ``bytes`` or ``str``; None: something else."""
        return None

    @property
    def spec(self) -> Any:
        """The nest of `ArraySpec` of every record, where the format says it; else None."""
        return None if self.leaf is None else ArraySpec((), self.leaf)

    @property
    def seekable(self) -> bool:
        """True if reading may begin at any place for no more than it costs to open the file."""
        return not getattr(self, "compression", "")

    @property
    def cheap(self) -> bool:
        """True if `places` looks at no more than the file's size, or a table in the file."""
        return False

    @abstractmethod
    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> Reader:
        """Open a file at a place.

        Parameters
        ----------
        path : str
            A local path or a URL.
        place : int
            Of the first record that is wanted. A format that is not `seekable` reads up to there.
        ahead : bool
            Whether records are wanted one after another; False: a few here and there, so nothing is
            read that was not asked for.

        Raises
        ------
        OSError
            It cannot be opened: it is not there, a folder, not ours to read, ...
        RecordCorruptError
            It is no such file at all, or no record can begin at this place.
        """

    def places(self, path: str) -> Places:
        """Return where all the records of a file are, of a format that is `seekable`.

        Records that turn out to be damaged when they are read are among them. Where it shows that the
        file can be read no further, the place of what is damaged is the last: reading there raises
        what reading on would have raised.

        Raises
        ------
        OSError, RecordCorruptError
            As `open`.
        """
        raise NotImplementedError(f"{self.name} has no places")

    def look(self, path: str) -> tuple[Places, np.ndarray | None]:
        """Return `places`, and the sizes of the groups in which records are stored, in order; None where there are none.

        Raises
        ------
        OSError, RecordCorruptError
            As `open`.
        """
        return self.places(path), None


def runs_of(places: Places) -> np.ndarray:
    """Return the sizes of runs of records that are stored in no groups: about as many bytes each.

    Examples
    --------
    >>> runs_of(range(0, 4 << 20, 300_000)).tolist()
    [4, 3, 4, 3]
    """
    if not len(places):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(np.diff(np.asarray(places, np.int64) >> UNIT_BITS)) + 1
    return np.diff(ends, prepend=0, append=len(places))
