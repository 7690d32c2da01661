"""Batches of rows that differ in length, as plain arrays."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Ragged", "Sparse"]


class Ragged(NamedTuple):
    """Rows of different length in one array: what `Dataset.ragged_batch` makes of a leaf.

    A NamedTuple, so a nest of two arrays: it passes through `map` as one argument, and between
    processes as its arrays do, without a copy.

    Attributes
    ----------
    values : numpy.ndarray of shape (total, ...)
        The rows, one behind the other.
    row_splits : numpy.ndarray of shape (rows + 1,)
        Row k is ``values[row_splits[k]:row_splits[k + 1]]``; the first is 0, the last `total`.

    Notes
    -----
    The two arrays are those of a ``tf.RaggedTensor`` of ragged rank 1. ``len`` is that of the
    pair, 2; `nrows` says how many rows there are.

    Examples
    --------
    >>> import tundish as td
    >>> ragged = td.Ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3]))
    >>> ragged.to_list()
    [[7, 8], [], [9]]
    """

    values: np.ndarray
    row_splits: np.ndarray

    @property
    def nrows(self) -> int:
        """How many rows there are."""
        return len(self.row_splits) - 1

    @property
    def row_lengths(self) -> np.ndarray:
        """How long each row is.

        Examples
        --------
        >>> Ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3])).row_lengths
        array([2, 0, 1])
        """
        return np.diff(self.row_splits)

    def rows(self) -> list[np.ndarray]:
        """Give the rows, as views of `values`.

        Examples
        --------
        >>> Ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3])).rows()
        [array([7, 8]), array([], dtype=int64), array([9])]
        """
        return np.split(self.values, self.row_splits[1:-1]) if self.nrows else []

    def to_list(self) -> list[Any]:
        """Give the rows as lists; of rows of rows (`values` is a `Ragged` itself), lists of lists."""
        inner: Any = self.values
        if not isinstance(inner, Ragged):
            return [row.tolist() for row in self.rows()]
        values = inner.to_list()
        return [values[first:stop] for first, stop in pairwise(self.row_splits.tolist())]


class RaggedRows:
    """A `Ragged` as one leaf: something with a length and rows, as an array has them."""

    __slots__ = ("ragged",)
    ndim = 2

    def __init__(self, ragged: Ragged) -> None:
        self.ragged = ragged

    def __len__(self) -> int:
        return self.ragged.nrows

    def __getitem__(self, k: int) -> np.ndarray:
        values, splits = self.ragged
        return values[splits[k] : splits[k + 1]]


def ragged_apart(value: Any) -> Any:
    """A nest whose every `Ragged` is one leaf, a `RaggedRows`.

    A batch of them, whose `row_splits` have two dimensions, is a nest of two arrays as it stands.
    """
    kind = type(value)
    if kind is Ragged and len(value.row_splits.shape or ()) == 1:
        return RaggedRows(value)
    if kind is dict:
        return {key: ragged_apart(part) for key, part in value.items()}
    if isinstance(value, tuple):
        parts = [ragged_apart(part) for part in value]
        return tuple(parts) if kind is tuple else kind(*parts)
    return value


class Sparse(NamedTuple):
    """Entries of an array and where they stand: what `Dataset.sparse_batch` makes.

    Attributes
    ----------
    indices : numpy.ndarray of shape (entries, rank), int64
        Where each entry stands, in the order of rows and within a row in C order.
    values : numpy.ndarray of shape (entries,)
        The entries.
    dense_shape : numpy.ndarray of shape (rank,), int64
        The shape of the array they stand in.

    Notes
    -----
    The three arrays are those of a ``tf.SparseTensor``.

    Examples
    --------
    >>> import tundish as td
    >>> td.Sparse(np.array([[0, 1], [2, 0]]), np.array([5, 6]), np.array([3, 2])).to_dense()
    array([[0, 5],
           [0, 0],
           [6, 0]])
    """

    indices: np.ndarray
    values: np.ndarray
    dense_shape: np.ndarray

    def to_dense(self) -> np.ndarray:
        """Give the array, with zeros (None in an array of objects) where no entry stands."""
        shape, dtype = tuple(self.dense_shape.tolist()), self.values.dtype
        dense = np.full(shape, None) if dtype.hasobject else np.zeros(shape, dtype)
        dense[tuple(self.indices.T)] = self.values
        return dense
