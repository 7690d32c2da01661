"""Several elements of a stream, taken at once."""

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
    """Computed elements that come next in a stream, in order; none of them is an error.

    Parameters
    ----------
    refs : Refs or Stretch
        Where the elements come from.
    columns : nest of (k, ...) ndarray, optional
        The elements, stacked.
    values : sequence, optional
        The elements one by one. There is one of the two at least.
    ours : bool
        True if nobody else writes into the columns, or reads them.
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
        """The elements, stacked; None where they do not stand in one batch, or nobody has looked."""
        return self._columns

    @property
    def values(self) -> Sequence[Any]:
        """The elements one by one, where there are no columns."""
        return self._values

    def after(self, count: int) -> Chunk | None:
        """Return the elements after the first ones; None if there is none."""
        if count == len(self):
            return None
        columns = self._columns
        if columns is not None:
            columns = slices(columns, count, len(self))
        return Chunk(self.refs[count:], columns=columns, values=self._values[count:], ours=False)


class RunChunk(Chunk):
    """Consecutive records of a file: columns and values are made when they are asked for.

    Parameters
    ----------
    refs : Refs or Stretch
        Where they come from.
    run : Run
        What they are a part of.
    first, stop : int
        Which part.
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
    """Refs in the terms of an operator that passes elements on; nobody may ever ask for them.

    Parameters
    ----------
    refs : Refs, Stretch or Wrapped
        Those of its input.
    wrap : callable
        Gives the operator's ref for one of the input's.
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
    """Return what a machine gives of several items: refs, or a chunk; None: its next item comes from `next`.

    Raises
    ------
    End, NotReady
        As of its `next`.
    """
    take = getattr(machine, "take", None)
    found = None if take is None else take(most)
    if found is not None and not len(found):
        raise End
    return found


def at_once(machine: Any) -> int:
    """Return how many elements may be taken of a machine when one is asked for: 1 if a user's function would run early."""
    return getattr(machine, "at_once", 1)


def renamed(found: Any, wrap: Callable[[Ref], Ref], shift: int | None = None) -> Any:
    """Put refs, or those of a chunk, into the terms of an operator that passes them on.

    Parameters
    ----------
    found : Refs or Chunk
        What was taken of the input.
    wrap : callable
        Gives the operator's ref for one of the input's.
    shift : int, optional
        What `wrap` adds, if it adds a number to an int.
    """
    if isinstance(found, Chunk):
        found.refs = Wrapped(found.refs, wrap)
        return found
    if shift is not None and isinstance(found, (range, np.ndarray)):
        return scaled(found, 1, shift)
    return [wrap(ref) for ref in ints(found)]
