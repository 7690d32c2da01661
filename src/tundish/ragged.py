"""`Ragged` and `Sparse`: batches of rows of different shapes, as plain arrays."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tundish.errors import SpecError
from tundish.spec import is_namedtuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Ragged(NamedTuple):
    """Rows of different lengths in one array, as made by `Dataset.ragged_batch`.

    It is a NamedTuple, and so a nest of two arrays: `map` passes it as one argument, and its arrays travel
    between processes without a copy.

    Attributes
    ----------
    values : numpy.ndarray of shape (total, ...)
        The rows, one after the other.
    row_splits : numpy.ndarray of shape (rows + 1,)
        Row k is ``values[row_splits[k]:row_splits[k + 1]]``; the first is 0, the last `total`.

    Notes
    -----
    The two arrays are those of a ``tf.RaggedTensor`` of ragged rank 1. ``len`` is 2, that of the
    pair; `nrows` is the number of rows.

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
        """The number of rows."""
        return len(self.row_splits) - 1

    @property
    def row_lengths(self) -> np.ndarray:
        """The length of each row.

        Examples
        --------
        >>> Ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3])).row_lengths
        array([2, 0, 1])
        """
        return np.diff(self.row_splits)

    def rows(self) -> list[np.ndarray]:
        """Return the rows, as views of `values`.

        Raises
        ------
        SpecError
            `row_splits` does not divide all of `values`.

        Examples
        --------
        >>> Ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3])).rows()
        [array([7, 8]), array([], dtype=int64), array([9])]
        """
        self._check_splits()
        return np.split(self.values, self.row_splits[1:-1]) if self.nrows else []

    def to_list(self) -> list[Any]:
        """Return the rows as lists; if `values` is a `Ragged` itself, as lists of lists.

        Raises
        ------
        SpecError
            `row_splits` does not divide all of `values`.
        """
        inner: Any = self.values
        if not isinstance(inner, Ragged):
            return [row.tolist() for row in self.rows()]
        self._check_splits()
        values = inner.to_list()
        return [values[first:stop] for first, stop in pairwise(self.row_splits.tolist())]

    def to_tensor(
        self,
        default_value: Any = None,
        name: str | None = None,
        shape: Sequence[int | None] | None = None,
    ) -> np.ndarray:
        """Return the rows as one array, each padded to the same length.

        Parameters
        ----------
        default_value : scalar or array, optional
            The padding; it must broadcast to one value. None: zeros, empty text, or None among other
            objects.
        name : str, optional
            Ignored; tf's argument.
        shape : sequence of (int or None), optional
            The shape of the result; values beyond it are cut off. None, for the whole or for a dimension: as
            large as the longest row needs.

        Returns
        -------
        numpy.ndarray of shape (nrows, longest row, ...)

        Raises
        ------
        ValueError
            `shape` has another number of dimensions; `row_splits` does not divide all of `values` (a `SpecError`); or
            this is a batch of `Ragged`, whose `row_splits` have two dimensions.
        TypeError
            `default_value` does not fit the dtype of the values.

        Notes
        -----
        As ``tf.RaggedTensor.to_tensor``. Rows of rows (`values` is a `Ragged` itself) become an array of
        three dimensions.

        Examples
        --------
        >>> Ragged(np.array([7, 8, 9]), np.array([0, 2, 2, 3])).to_tensor(-1)
        array([[ 7,  8],
               [-1, -1],
               [ 9, -1]])
        """
        self._check_splits()
        inner: Any = self.values
        if isinstance(inner, Ragged):
            asked = None if shape is None else (None, *shape[2:])
            inner = inner.to_tensor(default_value, shape=asked)
        lengths = self.row_lengths
        sizes = (self.nrows, int(lengths.max(initial=0)), *inner.shape[1:])
        if shape is not None:
            if len(shape) != len(sizes):
                raise ValueError(
                    f"shape must have {len(sizes)} dimensions, not {len(shape)} ({shape})"
                )
            wanted = tuple(
                old if new is None else new for old, new in zip(sizes, shape, strict=True)
            )
        else:
            wanted = sizes
        dense = np.empty(wanted, inner.dtype)
        dense[...] = _filling(default_value, inner)
        row = np.repeat(np.arange(self.nrows), lengths)
        column = np.arange(len(row)) - np.repeat(self.row_splits[:-1], lengths)
        kept = (row < wanted[0]) & (column < wanted[1])
        within = tuple(slice(min(a, b)) for a, b in zip(sizes[2:], wanted[2:], strict=True))
        dense[(row[kept], column[kept], *within)] = inner[: len(row)][(kept, *within)]
        return dense

    def _check_splits(self) -> None:
        """Raise if the rows are not all of the values, one after the other."""
        splits = np.asarray(self.row_splits)
        if splits.ndim != 1:
            raise ValueError(
                f"row_splits must have one dimension, not {splits.ndim}: this is a batch of "
                "Ragged; unbatch() gives each"
            )
        inner: Any = self.values
        total = inner.nrows if isinstance(inner, Ragged) else len(inner)
        if not len(splits) or splits[0] or splits[-1] != total or (splits[1:] < splits[:-1]).any():
            raise SpecError(
                f"row_splits must begin with 0, never fall and end with {total}, the number of values, but is "
                f"{np.array2string(splits, threshold=20)}"
            )


def _filling(default_value: Any, values: np.ndarray) -> Any:
    """Return the default filling: zero, or an empty text of the values' type."""
    if default_value is None:
        if not values.dtype.hasobject:
            return np.zeros((), values.dtype)
        kind = type(values.flat[0]) if values.size else str
        return kind() if kind in (str, bytes) else None
    given = np.asarray(default_value)
    one = (
        given if given.ndim else default_value
    )  # a number of Python's takes the values' dtype, if it can
    if not values.dtype.hasobject and np.result_type(values.dtype, one) != values.dtype:
        raise TypeError(
            f"default_value must be of the values' dtype {values.dtype}, not {given.dtype} "
            f"({default_value!r})"
        )
    return given.astype(values.dtype)


class RaggedRows:
    """A `Ragged` treated as one leaf, with a length and rows like an array."""

    __slots__ = ("ragged",)
    ndim = 2

    def __init__(self, ragged: Ragged) -> None:
        self.ragged = ragged

    def check(self) -> None:
        """Raise a SpecError if the rows are not all of the values."""
        self.ragged._check_splits()  # noqa: SLF001 - ours

    def __len__(self) -> int:
        return self.ragged.nrows

    def __getitem__(self, k: int) -> np.ndarray:
        values, splits = self.ragged
        return values[splits[k] : splits[k + 1]]


def ragged_apart(value: Any) -> Any:
    """Replace every `Ragged` in a nest by one leaf, a `RaggedRows`.

    A batch of them, whose `row_splits` have two dimensions, stays a nest of two arrays.
    """
    kind = type(value)
    if kind is Ragged and len(value.row_splits.shape or ()) == 1:
        return RaggedRows(value)
    if kind is dict:
        return {key: ragged_apart(part) for key, part in value.items()}
    if kind is tuple or is_namedtuple(kind):
        parts = [ragged_apart(part) for part in value]
        return tuple(parts) if kind is tuple else kind(*parts)
    return value


class Sparse(NamedTuple):
    """Entries of an array with their indices, as made by `Dataset.sparse_batch`.

    Attributes
    ----------
    indices : numpy.ndarray of shape (entries, rank), int64
        The index of each entry, in C order.
    values : numpy.ndarray of shape (entries,)
        The entries.
    dense_shape : numpy.ndarray of shape (rank,), int64
        The shape of the whole array.

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
        """Return the whole array, with zeros (None in an array of objects) where it has no entry."""
        shape, dtype = tuple(self.dense_shape.tolist()), self.values.dtype
        dense = np.full(shape, None) if dtype.hasobject else np.zeros(shape, dtype)
        dense[tuple(self.indices.T)] = self.values
        return dense


def outer_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nest with their paths; a `Ragged` or `Sparse` is one leaf.

    Examples
    --------
    >>> ragged = Ragged(np.array([7, 8, 9]), np.array([0, 2, 3]))
    >>> [(path, type(part).__name__) for path, part in outer_leaves({"a": (1, ragged)})]
    [("['a'][0]", 'int'), ("['a'][1]", 'Ragged')]
    """
    if isinstance(value, (Ragged, Sparse)):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from outer_leaves(part, f"{path}[{key!r}]")
    elif is_namedtuple(type(value)):
        for key, part in zip(value._fields, value, strict=True):
            yield from outer_leaves(part, f"{path}.{key}")
    elif type(value) is tuple:
        for key, part in enumerate(value):
            yield from outer_leaves(part, f"{path}[{key}]")
    else:
        yield path, value
