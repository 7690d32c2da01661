"""Several elements of a stream, taken at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.columns import slices
from tundish.loader.protocols.items import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence


class Chunk:
    """Computed elements that come next in a stream, in order, and the error that comes after them, if one does.

    Parameters
    ----------
    refs : Refs or Stretch
        Where the elements come from; that of an error is its own.
    columns : nest of (k, ...) ndarray, optional
        The elements, stacked.
    values : sequence, optional
        In their place the elements one by one: numbers of one numpy type, or one element of any kind. That one may be
        lent: it is good until the stream is asked again.
    failure : Failure, optional
        The error that comes after them.
    ours : bool
        True if nobody else holds the columns.
    """

    __slots__ = ("columns", "failure", "ours", "refs", "values")

    def __init__(
        self,
        refs: Any,
        *,
        columns: Any = None,
        values: Sequence[Any] = (),
        failure: Failure | None = None,
        ours: bool = True,
    ) -> None:
        self.refs, self.columns, self.values = refs, columns, values
        self.failure, self.ours = failure, ours

    def __len__(self) -> int:
        return len(self.refs)

    @property
    def alone(self) -> bool:
        """True if it is one element, which is no number."""
        return len(self.values) == 1 and not is_number(self.values[0])

    def after(self, count: int) -> Chunk | None:
        """Return the elements after the first ones, and the error; None if there is nothing more."""
        if count == len(self) and self.failure is None:
            return None
        refs = self.refs[count:]
        if self.columns is None:
            return Chunk(refs, values=self.values[count:], failure=self.failure)
        columns = slices(self.columns, count, len(self))
        return Chunk(refs, columns=columns, failure=self.failure, ours=False)


def is_number(value: Any) -> bool:
    """Return True for a number of numpy's, whose type says its dtype."""
    return isinstance(value, np.generic) and value.dtype.kind in "biufc"


def one(item: Any) -> Chunk:
    """Return a chunk of one computed item."""
    if type(item) is Failure:
        return Chunk((), failure=item)
    return Chunk((item.ref,), values=(item.value,))
