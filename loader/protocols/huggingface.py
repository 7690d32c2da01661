"""Columnar reads of Hugging Face datasets.

Hugging Face's own reader cuts a table into one table per row, which takes 30 microseconds per row. If all columns are
plain numbers without nulls, rows are taken from Arrow's memory instead. The types of the resulting numbers depend on
the format and on the library's version, so the dataset is asked for a few rows, and the columns must equal them bit for
bit.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.loader.protocols.plain import Allocate, is_plain_array, is_plain_tensor, within

_FORMATS = (None, "numpy", "torch")  # none of these calls a function of the user's
_FEATURES = ("Value", "ClassLabel")  # nothing is decoded
_COMPARED = 8


def table_gives_alike(source: Any) -> bool:
    """Return True if rows read together equal rows read one by one.

    With a format they differ: a single number keeps its dtype, but several numbers get the format's dtype. Also, a
    transform receives all rows of a call.
    """
    return source.format["type"] is None


def columns_of_table(source: Any, at: np.ndarray, allocate: Allocate | None, together: bool) -> Any:
    """Take rows of a dataset; see `columns_of`."""
    form = source.format
    if form["type"] not in _FORMATS or form["format_kwargs"] or not within(at, source):
        return None
    numbers = _numbers_of(source, form, at, together)
    if numbers is not None:
        return numbers.rows(at, allocate)
    if not together:
        return None
    return {name: _listed(column) for name, column in source[at.tolist()].items()}


def _listed(column: Any) -> Any:
    """Return a stacked column as it is, any other as a list."""
    return column if is_plain_array(column) or is_plain_tensor(column) else list(column)


# -- out of Arrow's memory ------------------------------------------------------------------------


class Chunks:
    """A column of numbers without nulls, in pieces.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    """

    def __init__(self, column: Any) -> None:
        self._pieces = [chunk.to_numpy() for chunk in column.chunks if len(chunk)]
        self._ends = np.cumsum([len(piece) for piece in self._pieces])

    def take(self, at: np.ndarray) -> np.ndarray:
        """Copy rows of the column."""
        if len(self._pieces) == 1:
            return np.asarray(self._pieces[0].take(at))
        which = np.searchsorted(self._ends, at, side="right")
        order = np.argsort(which, kind="stable")
        found = np.empty(len(at), self._pieces[0].dtype)
        first = 0
        for number, count in enumerate(np.bincount(which).tolist()):
            if count:
                piece, rows = self._pieces[number], order[first : first + count]
                found[rows] = piece[at[rows] - (self._ends[number] - len(piece))]
                first += count
        return found


@dataclass
class _Numbers:
    """A dataset with numeric columns only."""

    columns: dict[str, tuple[Chunks, np.dtype[Any]]]
    """The columns, each with the dtype of its rows."""

    selected: Chunks | None
    """The rows of the table that the dataset has, after a selection or a shuffle."""

    def rows(self, at: np.ndarray, allocate: Allocate | None) -> dict[str, np.ndarray]:
        """Copy rows of all columns."""
        if self.selected is not None:
            at = self.selected.take(at).astype(np.int64)
        found = {}
        for name, (chunks, dtype) in self.columns.items():
            column = chunks.take(at).astype(dtype, copy=False)
            if allocate is not None:
                into = allocate(column.shape, dtype)
                into[...] = column
                column = into
            found[name] = column
        return found


_known: weakref.WeakKeyDictionary[Any, dict[bool, tuple[Any, _Numbers | None]]]
_known = weakref.WeakKeyDictionary()


def _numbers_of(source: Any, form: Any, at: np.ndarray, together: bool) -> _Numbers | None:
    """Return the columns of a dataset as it is now, from a cache that is filled on first use."""
    selected = source._indices  # noqa: SLF001 - there is no other way to learn of a shuffle
    known = _known.setdefault(source, {})
    (data, order, was), numbers = known.get(together, ((None, None, None), None))
    if data is not source.data or order is not selected or was != form:
        numbers = _looked_through(source, at[:_COMPARED], together)
        known[together] = (source.data, selected, form), numbers
    return numbers


def _looked_through(source: Any, at: np.ndarray, together: bool) -> _Numbers | None:
    """Return the columns of a dataset; None unless their rows equal those that it gives itself."""
    given = _given(source, at, together)
    if given is None:
        return None
    columns = {}
    for name, values in given.items():
        column = source.data.column(name)
        if type(source.features[name]).__name__ not in _FEATURES or not _is_plain(column):
            return None
        columns[name] = Chunks(column), values.dtype
    order = source._indices  # noqa: SLF001 - as above
    numbers = _Numbers(columns, None if order is None else Chunks(order.column(0)))
    found = numbers.rows(at, None)
    alike = all(found[name].tobytes() == values.tobytes() for name, values in given.items())
    return numbers if alike else None


def _is_plain(column: Any) -> bool:
    pa: Any = sys.modules["pyarrow"]
    kind = column.type
    number = pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind != pa.uint64())
    return number and not column.null_count and len(column) > 0


def _given(source: Any, at: np.ndarray, together: bool) -> dict[str, np.ndarray] | None:
    """Return some rows as the dataset gives them; None if they are not all numbers."""
    if together:
        given = {name: _as_array(column) for name, column in source[at.tolist()].items()}
    else:
        rows = [source[place] for place in at.tolist()]
        given = {name: _as_array([row[name] for row in rows]) for name in rows[0]}
    numbers = {name: column for name, column in given.items() if column is not None}
    return numbers if len(numbers) == len(given) else None


def _as_array(values: Any) -> np.ndarray | None:
    """Return a column, or the values of several rows, as an array; None if it is not numeric."""
    if isinstance(values, list):
        if not all(isinstance(each, (int, float)) or hasattr(each, "dtype") for each in values):
            return None
        kept = [np.asarray(each) for each in values]
        if len({(each.dtype, each.shape) for each in kept}) > 1:
            return None
        values = np.stack(kept)
    array = np.asarray(values)
    return array if array.ndim == 1 and array.dtype.kind in "iuf" else None
