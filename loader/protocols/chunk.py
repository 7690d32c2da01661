"""Several elements of a stream, taken at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.columns import slices
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.refs import ints, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tundish.loader.protocols.items import Ref


class Chunk:
    """Computed elements that come next in a stream, in order; or an error.

    Parameters
    ----------
    refs : Refs or Stretch
        Where the elements come from.
    columns : nest of (k, ...) ndarray, optional
        The elements, stacked.
    values : sequence, optional
        In their place the elements one by one: numbers of one numpy type, or one element of any kind. That one may be
        lent: it is good until the stream is asked again.
    failure : Failure, optional
        In place of elements.
    ours : bool
        True if nobody else holds the columns.
    """

    __slots__ = ("columns", "failure", "ours", "refs", "values")

    def __init__(
        self,
        refs: Any = (),
        *,
        columns: Any = None,
        values: Sequence[Any] = (),
        failure: Failure | None = None,
        ours: bool = True,
    ) -> None:
        self.refs, self.columns, self.values = refs, columns, values
        self.failure, self.ours = failure, ours

    def __len__(self) -> int:
        return len(self.refs) + (self.failure is not None)

    @property
    def alone(self) -> bool:
        """True if it is one element, which is no number."""
        return len(self.values) == 1 and not is_number(self.values[0])

    def after(self, count: int) -> Chunk | None:
        """Return the elements after the first ones; None if there is none."""
        if count == len(self):
            return None
        refs = self.refs[count:]
        if self.columns is None:
            return Chunk(refs, values=self.values[count:])
        return Chunk(refs, columns=slices(self.columns, count, len(self)), ours=False)


def is_number(value: Any) -> bool:
    """Return True for a number of numpy's, whose type says its dtype."""
    return isinstance(value, np.generic) and value.dtype.kind in "biufc"


def one(item: Any) -> Chunk:
    """Return a chunk of one computed item."""
    if type(item) is Failure:
        return Chunk(failure=item)
    return Chunk((item.ref,), values=(item.value,))


def taken(machine: Any, most: int) -> Any:
    """Return what a machine gives of several items: refs, or a chunk; None where it gives one by one.

    Raises
    ------
    End, NotReady
        As of its `next`.
    """
    take = getattr(machine, "take", None)
    found = None if take is None else take(most)
    if found is not None and not isinstance(found, Chunk) and not len(found):
        raise End
    return found


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
        if found.failure is not None:
            found.failure.ref = wrap(found.failure.ref)
        else:
            found.refs = renamed(found.refs, wrap, shift)
        return found
    if shift is not None and isinstance(found, (range, np.ndarray)):
        return scaled(found, 1, shift)
    return [wrap(ref) for ref in ints(found)]
