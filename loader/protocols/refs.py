"""Taking refs apart, and many refs at once; a ref may come from an edited state, so its form is checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import CheckpointError

if TYPE_CHECKING:
    from tundish.loader.protocols.items import Ref

Positions = range | np.ndarray
Refs = Sequence[Any] | np.ndarray
"""Many refs: a range, an int64 array, a `Tuples`, or a list of any."""


def not_there(what: str) -> CheckpointError:
    """Return the error for an element that a state names but that cannot be computed; it is raised on use."""
    return CheckpointError(f"the loaded state names {what}, which does not exist")


def numbered(ref: Any, size: int = 2) -> tuple[Any, ...]:
    """Return the entries of a ref that begins with a number.

    Raises
    ------
    ValueError
        It has another number of entries, or begins with something else.
    """
    if type(ref) is not tuple or len(ref) != size or type(ref[0]) is not int or ref[0] < 0:
        raise ValueError(f"it must be a number of at least 0 and {size - 1} more")
    return ref


def some(refs: Any) -> Any:
    """Check that an element is made of at least one ref; return the refs.

    Raises
    ------
    ValueError
        There is none.
    """
    if type(refs) is int or not len(refs):
        raise ValueError("it must be made of at least one ref")
    return refs


def within_one(ref: Any) -> list[tuple[int, Any]]:
    """Return the parts of the ref of something inside one input element: ``(that element's ref, where)``.

    Raises
    ------
    ValueError
        It is not such a pair; the index -1 stands for an error in the element's place.
    """
    if type(ref) is not tuple or len(ref) != 2 or type(ref[1]) is not int or ref[1] < -1:
        raise ValueError("it must be a pair of a ref and an index of at least -1")
    return [(0, ref[0])]


def sliced(ref: Any) -> list[tuple[int, Any]]:
    """Return the parts of the ref of an element made of slices: ``(number, ((ref, first, stop), ...))``.

    Raises
    ------
    ValueError
        It is not such a pair, or a slice ends before it begins.
    """
    found = []
    for below, first, stop in some(numbered(ref)[1]):
        if type(first) is not int or type(stop) is not int or not 0 <= first <= stop:
            raise ValueError(
                "each of its slices must be (ref, first, stop) with 0 <= first <= stop"
            )
        found.append((0, below))
    return found


def ints(refs: Refs) -> Sequence[Any]:
    """Return refs as Python values."""
    return refs.tolist() if isinstance(refs, np.ndarray) else refs


def array_of(refs: Refs) -> np.ndarray:
    """Return numeric refs as an int64 array; a range is converted by arithmetic."""
    if isinstance(refs, range):
        return np.arange(refs.start, refs.stop, refs.step, dtype=np.int64)
    return np.asarray(refs, np.int64)


def run_of(refs: Refs) -> range | None:
    """Return numeric refs as a range if they are consecutive; else None."""
    first, last = int(refs[0]), int(refs[-1])
    if isinstance(refs, range):
        return refs if refs.step == 1 else None
    if last - first + 1 == len(refs) and (np.diff(refs) == 1).all():
        return range(first, last + 1)
    return None


def scaled(where: Positions, factor: int, offset: int) -> Positions:
    """Return ``where * factor + offset``."""
    if isinstance(where, range):
        return range(
            where.start * factor + offset, where.stop * factor + offset, where.step * factor
        )
    return where * factor + offset


def pieced(parts: list[tuple[Any, Refs]], count: int) -> Refs:
    """Merge the refs of several parts ``(places, refs)``, each at its places."""
    if not parts:
        return []
    if len(parts) == 1:
        return parts[0][1]
    if all(isinstance(refs, (np.ndarray, range)) for _, refs in parts):
        array = np.empty(count, np.int64)
        for at, refs in parts:
            array[at] = array_of(refs)
        return array
    filled: list[Any] = [None] * count
    for at, refs in parts:
        for k, ref in zip(at.tolist(), ints(refs), strict=True):
            filled[k] = ref
    return filled


class BatchedRefs(Sequence[Any]):
    """The refs of batches of one size, ``(number, rows)``; equivalent to a list of them.

    Parameters
    ----------
    rows : Refs
        The refs of all their rows.
    size : int
        The number of rows of each; the last may have fewer.
    numbers : Positions
        The numbers of the batches.
    """

    __slots__ = ("numbers", "rows", "size")

    def __init__(self, rows: Refs, size: int, numbers: Positions) -> None:
        self.rows, self.size, self.numbers = rows, size, numbers

    @property
    def at_once(self) -> bool:
        """True if the rows are one range, array or `Tuples`."""
        return isinstance(self.rows, _AT_ONCE)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, which: Any) -> Any:
        size = self.size
        if isinstance(which, slice):
            first, stop, _ = which.indices(len(self))
            return BatchedRefs(
                self.rows[first * size : stop * size], size, self.numbers[first:stop]
            )
        number = int(self.numbers[which])
        return number, named(self.rows[which * size : (which + 1) * size])


def joined(parts: Sequence[Any]) -> Refs:
    """Concatenate refs, by columns if all parts are columnar."""
    if all(isinstance(refs, Tuples) for refs in parts):
        return Tuples(*map(joined, zip(*[refs.columns for refs in parts], strict=True)))
    if all(isinstance(refs, (range, np.ndarray)) for refs in parts):
        return _run_of_ranges(parts) or np.concatenate([array_of(refs) for refs in parts])
    return [ref for refs in parts for ref in ints(refs)]


def _run_of_ranges(parts: Sequence[Any]) -> range | None:
    """Return ranges as one, if each begins where the one before it ends; else None."""
    if not all(isinstance(refs, range) and refs.step == 1 for refs in parts):
        return None
    if any(one.stop != other.start for one, other in pairwise(parts)):
        return None
    return range(parts[0].start, parts[-1].stop)


class Stretch:
    """A range of a file's records, or of numbers, as refs.

    Parameters
    ----------
    outer : Ref or None
        The file's ref: refs are (outer, offset); None: they are the numbers themselves.
    places : sequence of int
        The offsets of a whole run of records, or the numbers.
    first, stop : int
        The range in it.
    """

    __slots__ = ("first", "outer", "places", "stop")

    def __init__(
        self, outer: Ref, places: Sequence[int] | np.ndarray, first: int, stop: int
    ) -> None:
        self.outer, self.places, self.first, self.stop = outer, places, first, stop

    def __len__(self) -> int:
        return self.stop - self.first

    def __getitem__(self, which: slice) -> Stretch:
        first, stop, _ = which.indices(len(self))
        return Stretch(self.outer, self.places, self.first + first, self.first + stop)

    def __iter__(self) -> Iterator[Ref]:
        outer = self.outer
        for place in ints(self.places[self.first : self.stop]):
            yield place if outer is None else (outer, place)


class Tuples(Sequence[Any]):
    """Refs that are tuples, stored by columns; equivalent to a list of them.

    Parameters
    ----------
    *columns : Refs
        The first entries of all refs, the second ones, ...; all of one length.

    Examples
    --------
    >>> refs = Tuples(range(2, 5), np.array([7, 5, 6]))
    >>> refs[1], list(refs[1:])
    ((3, 5), [(3, 5), (4, 6)])
    """

    __slots__ = ("columns",)

    def __init__(self, *columns: Refs) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Any]:
        return zip(*map(ints, self.columns), strict=True)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return Tuples(*[column[which] for column in self.columns])
        return tuple([_one(column[which]) for column in self.columns])


def _one(ref: Any) -> Ref:
    return int(ref) if isinstance(ref, np.integer) else ref


def named(rows: Refs) -> BatchRefs | tuple[Ref, ...]:
    """Return a batch's ref of its rows: a tuple of their refs, or a `BatchRefs` in its place."""
    return BatchRefs([rows]) if isinstance(rows, _AT_ONCE) else tuple(rows)


def refs_of_rows(rows: Any) -> Refs | None:
    """Return the refs of a batch's rows for evaluators of columns; None if they are of mixed kinds."""
    if type(rows) is BatchRefs:
        return rows.at_once
    return np.array(rows, np.int64) if all(type(row) is int for row in rows) else None


class BatchRefs:
    """The refs of a batch's rows, in place of a tuple, which would take longer to make than the batch.

    `ref` is that tuple; it takes this object's place where refs are collected for a state.

    Parameters
    ----------
    parts : list of Refs or Stretch
        The refs of the parts, in order.
    """

    __slots__ = ("_parts", "_ref")

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts
        self._ref: tuple[Ref, ...] | None = None

    @property
    def ref(self) -> tuple[Ref, ...]:
        """The tuple of the refs."""
        if self._ref is None:
            self._ref = tuple([ref for part in self._parts for ref in ints(part)])
            if self.at_once is None:
                self._parts = []
        return self._ref

    @property
    def at_once(self) -> Refs | None:
        """The refs as one range, array or `Tuples`, if possible."""
        parts = self._parts
        return parts[0] if len(parts) == 1 and isinstance(parts[0], _AT_ONCE) else None

    def __len__(self) -> int:
        return len(self.ref) if self._ref is not None else sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Ref]:
        return iter(self.ref)

    def __getitem__(self, row: Any) -> Any:
        return self.ref[row]

    def __hash__(self) -> int:
        return hash(self.ref)

    def __eq__(self, other: object) -> bool:
        return self.ref == (other.ref if isinstance(other, BatchRefs) else other)


_AT_ONCE = (range, np.ndarray, Tuples)
