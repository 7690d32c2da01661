"""Columns: rows gathered from arrays, and nests of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.gaps import copied, has_gaps, room
from tundish.loader.protocols.refs import array_of
from tundish.ragged import ragged_apart
from tundish.shm.layout import MOST_DIMENSIONS
from tundish.spec import flatten, unflatten

if TYPE_CHECKING:
    from tundish.loader.protocols.refs import Positions

_TEXT = ({str}, {bytes})


def rows_of(column: np.ndarray, places: Positions) -> np.ndarray | None:
    """Gather rows of an array into a new one; None if its rows are not a column of elements.

    Parameters
    ----------
    column : (n, ...) ndarray
        An array of any dtype; of object arrays only those of str or bytes are columns.
    places : range or (k,) int64 ndarray
        The numbers of the rows, at least one.
    """
    if column.ndim > MOST_DIMENSIONS:
        return None
    if isinstance(places, range) and places.step == 1:
        rows = column[places.start : places.stop]
        if len(rows) != len(places):
            return None
        rows = copied(rows)
    else:
        try:
            rows = _taken(column, array_of(places))
        except IndexError:  # a state names a row that does not exist, which is an element's error
            return None
    return _as_elements(rows)


def _taken(column: np.ndarray, places: np.ndarray) -> np.ndarray:
    if column.dtype.kind == "V" and has_gaps(column.dtype):
        rows = room((len(places), *column.shape[1:]), column.dtype)
        rows[...] = column[places]
        return rows
    # `take` is faster, but would copy the whole array if its memory is not laid out as `take` needs it.
    simple = column.flags.c_contiguous and column.flags.aligned and column.dtype.isnative
    return np.asarray(column.take(places, axis=0) if simple else column[places])


def _as_elements(rows: np.ndarray) -> np.ndarray | None:
    """Return rows as `collate` would stack them; None if it has to inspect each."""
    if rows.dtype.hasobject:
        return rows if rows.ndim == 1 and set(map(type, rows)) in _TEXT else None
    if rows.ndim == 1 and not rows.dtype.isnative and rows.dtype.kind != "V":
        return rows.astype(rows.dtype.newbyteorder("="))  # a number of numpy's is the machine's
    return rows


def nest_rows(nest: Any, places: Positions) -> Any:
    """Gather rows of the arrays of a nest into new ones; None if the arrays are not columns of elements."""
    leaves, tree = flatten(nest)
    rows = [rows_of(leaf, places) for leaf in leaves]
    return None if any(column is None for column in rows) else unflatten(tree, rows)


def slices(nest: Any, first: int, stop: int) -> Any:
    """Return views of rows of the arrays of a nest; None if the arrays are not columns of elements."""
    leaves, tree = flatten(ragged_apart(nest))
    if not all(isinstance(leaf, np.ndarray) for leaf in leaves):
        return None
    rows = [_as_elements(leaf[first:stop]) for leaf in leaves]
    return None if any(column is None for column in rows) else unflatten(tree, rows)
