"""Chunks: several elements of a stream, taken at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.columns import slices
from tundish.loader.protocols.items import End
from tundish.loader.protocols.refs import ints, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tundish.formats.format import Run
    from tundish.loader.protocols.items import Ref


class Chunk:
    """The next computed elements of a stream, in order; none of them is an error.

    Parameters
    ----------
    refs : Refs or Stretch
        The elements' refs.
    columns : nest of (k, ...) ndarray, optional
        The elements, stacked, in the nest of one element.
    values : sequence, optional
        The elements one by one. At least one of columns and values is given.
    ours : bool
        True if nobody else reads the columns or writes into them.
    """

    __slots__ = ("_columns", "_values", "ours", "refs")

    def __init__(
        self, refs: Any, *, columns: Any = None, values: Sequence[Any] = (), ours: bool = True
    ) -> None:
        self.refs, self._columns, self._values, self.ours = refs, columns, values, ours

    def __len__(self) -> int:
        return len(self.refs)

    @property
    def columns(self) -> Any:
        """The elements, stacked; None if they do not fit one batch, or this has not been tried."""
        return self._columns

    @property
    def values(self) -> Sequence[Any]:
        """The elements one by one, if there are no columns."""
        return self._values

    def after(self, count: int) -> Chunk | None:
        """Return the chunk without its first `count` elements; None if none is left."""
        if count == len(self):
            return None
        columns = self._columns
        if columns is not None:
            columns = slices(columns, count, len(self))
        return Chunk(self.refs[count:], columns=columns, values=self._values[count:], ours=False)


class RunChunk(Chunk):
    """Consecutive records of a file; columns and values are made on first use.

    Parameters
    ----------
    refs : Refs or Stretch
        The records' refs.
    run : Run
        The run of records that they are part of.
    first, stop : int
        The range within the run.
    """

    __slots__ = ("_first", "_run", "_stop")

    def __init__(self, refs: Any, run: Run, first: int, stop: int) -> None:
        self.refs, self._run, self._first, self._stop, self.ours = refs, run, first, stop, True

    def __len__(self) -> int:
        return self._stop - self._first

    @property
    def columns(self) -> Any:
        return self._run.columns(self._first, self._stop)

    @property
    def values(self) -> Sequence[Any]:
        return self._run.part(self._first, self._stop)

    def after(self, count: int) -> Chunk | None:
        if count == len(self):
            return None
        return RunChunk(self.refs[count:], self._run, self._first + count, self._stop)


class Wrapped:
    """Refs of an operator that passes elements on, computed from its input's refs on first use.

    Parameters
    ----------
    refs : Refs, Stretch or Wrapped
        The input's refs.
    wrap : callable
        Returns the operator's ref for one of the input's.
    """

    __slots__ = ("_refs", "_wrap")

    def __init__(self, refs: Any, wrap: Callable[[Ref], Ref]) -> None:
        self._refs, self._wrap = refs, wrap

    def __len__(self) -> int:
        return len(self._refs)

    def __getitem__(self, which: slice) -> Wrapped:
        return Wrapped(self._refs[which], self._wrap)

    def __iter__(self) -> Iterator[Ref]:
        return map(self._wrap, ints(self._refs))


def taken(machine: Any, most: int) -> Any:
    """Take up to `most` items of a machine: refs, or a chunk; None if the next item has to come from `next`.

    Raises
    ------
    End, NotReady
        As from `next`.
    """
    take = getattr(machine, "take", None)
    found = None if take is None else take(most)
    if found is not None and not len(found):
        raise End
    return found


def at_once(machine: Any) -> int:
    """Return how many elements may be taken at once: 1 if taking more would run a user's function early."""
    return getattr(machine, "at_once", 1)


def renamed(found: Any, wrap: Callable[[Ref], Ref], shift: int | None = None) -> Any:
    """Convert refs, or those of a chunk, to refs of an operator that passes elements on.

    Parameters
    ----------
    found : Refs or Chunk
        What was taken from the input.
    wrap : callable
        Returns the operator's ref for one of the input's.
    shift : int, optional
        The number that `wrap` adds, if that is all it does to an int.
    """
    if isinstance(found, Chunk):
        found.refs = Wrapped(found.refs, wrap)
        return found
    if shift is not None and isinstance(found, (range, np.ndarray)):
        return scaled(found, 1, shift)
    return [wrap(ref) for ref in ints(found)]
