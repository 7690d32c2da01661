"""Division of values into rows, the inner dimensions of a `RaggedFeature`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tundish.errors import SpecError
from tundish.formats.example.features import (
    KeyedPartition,
    Partition,
    RaggedFeature,
    RowLengths,
    RowSplits,
    RowStarts,
    UniformRowLength,
    ValueRowIds,
)
from tundish.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Callable


class WantedList(NamedTuple):
    """A list of values to parse.

    Attributes
    ----------
    key : bytes
        The feature's name.
    kind : numpy.dtype or type
        float32, int64, or `bytes`.
    dense : bool
        True if an empty entry counts as missing, so that an earlier one of the same name is used: tensorflow's rule
        for features of a fixed length.
    """

    key: bytes
    kind: Any
    dense: bool


class Lists(NamedTuple):
    """The values of one feature in many examples.

    Attributes
    ----------
    counts : numpy.ndarray of shape (examples,), int64
        The number of values in each example.
    present : numpy.ndarray of shape (examples,), bool
        True for examples that have the feature.
    values : numpy.ndarray of shape (total,)
        The values of all examples, concatenated; objects for `bytes`. The array is not shared.
    """

    counts: np.ndarray
    present: np.ndarray
    values: np.ndarray


def splits_of(counts: np.ndarray) -> np.ndarray:
    """Return the start of each list, followed by the end of the last."""
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def joined_arrays(arrays: list[np.ndarray | None], kind: Any) -> Lists:
    """Concatenate the values of several examples; None stands for a missing feature."""
    present = np.array([array is not None for array in arrays], bool)
    found = [array for array in arrays if array is not None]
    counts = np.zeros(len(arrays), np.int64)
    counts[present] = [len(array) for array in found]
    if len(found) == 1:
        values = found[0]
    elif found:
        values = np.concatenate(found)
    else:
        values = np.empty(0, object if kind is bytes else kind)
    return Lists(counts, present, values)


def rows_of(values: Any) -> int:
    """Return the number of rows of an array or a `Ragged`."""
    return values.nrows if isinstance(values, Ragged) else len(values)


_MANY = 1 << 27
"""So many rows no batch has: one number must not take a gigabyte."""


def ragged(values: Any, splits: np.ndarray, dtype: np.dtype) -> Ragged:
    """Make a `Ragged` of the rows of an array or `Ragged`, with splits of a dtype."""
    if splits[-1] > np.iinfo(dtype).max:
        raise SpecError(f"{splits[-1]:,} values are too many for row_splits of {dtype}")
    return Ragged(values, splits.astype(dtype))


def partitioned(
    values: Any, counts: np.ndarray, feature: RaggedFeature, find: Callable[[str], Lists], name: str
) -> tuple[Any, np.ndarray]:
    """Divide the values of each example into rows, and these into rows of rows.

    Parameters
    ----------
    values : numpy.ndarray
        The values of all examples.
    counts : numpy.ndarray
        The number of values of each example.
    feature : RaggedFeature
        The feature, with its partitions.
    find : callable
        Returns the values of a feature by name.
    name : str
        The feature's name, for messages.

    Returns
    -------
    numpy.ndarray or Ragged
        The rows of all examples.
    numpy.ndarray
        The number of rows of each example.
    """
    dtype = feature.row_splits_dtype
    for part in reversed(feature.partitions):
        if isinstance(part, UniformRowLength):
            values, counts = _uniform(values, counts, part.length, dtype, name)
        elif isinstance(part, KeyedPartition):
            lengths, counts = _lengths(counts, part, find(part.key), name)
            values = ragged(values, splits_of(lengths), dtype)
    return values, counts


def _uniform(
    values: Any, counts: np.ndarray, length: int, dtype: np.dtype, name: str
) -> tuple[Any, np.ndarray]:
    uneven = np.flatnonzero(counts % length)
    if len(uneven):
        k = int(uneven[0])
        raise SpecError(
            f"example {k}: feature {name!r} has {counts[k]} values or rows, "
            f"which rows of {length} do not divide"
        )
    rows = rows_of(values) // length
    if isinstance(values, Ragged):
        return ragged(values, np.arange(rows + 1) * length, dtype), counts // length
    return values.reshape(rows, length, *values.shape[1:]), counts // length


def _lengths(
    counts: np.ndarray, part: Partition, by: Lists, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the length of each row, and the number of rows of each example."""
    rows, values, len_all = by.counts, by.values, counts.sum()
    first, last = splits_of(rows)[:-1], splits_of(rows)[1:] - 1  # of each example in `values`
    some = rows > 0
    if isinstance(part, RowLengths):
        lengths = values
    elif isinstance(part, ValueRowIds):
        return _lengths_by_rows(counts, part, by, name)
    elif isinstance(part, RowStarts):
        ends = np.empty_like(values)
        ends[:-1] = values[1:]
        ends[last[some]] = counts[some]
        lengths = ends - values
        _refuse((values[first[some]] != 0), None, part, name, "do not begin with 0", among=some)
        _refuse((counts > 0) & ~some, None, part, name, "are missing, but there are values")
    else:
        steps = _steps(values, first, some)
        if isinstance(part, RowSplits):
            _refuse((values[first[some]] != 0), None, part, name, "do not begin with 0", among=some)
            inner = np.ones(len(values), bool)
            inner[first[some]] = False
            lengths, rows = steps[inner], np.maximum(rows - 1, 0)
        else:
            lengths = steps
    _refuse(lengths < 0, rows, part, name, "do not rise")
    # None is longer than all values, so that their sum is what it seems.
    _refuse(lengths > len_all, rows, part, name, "do not match the number of values")
    sums = np.diff(np.concatenate([[0], np.cumsum(lengths)])[splits_of(rows)])
    _refuse(sums != counts, None, part, name, "do not match the number of values")
    return lengths, rows


def _lengths_by_rows(
    counts: np.ndarray, part: Partition, by: Lists, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the length of each row, and the number of rows of each example, from each value's row number."""
    numbers, some = by.values, by.counts > 0
    splits = splits_of(by.counts)
    _refuse(_steps(numbers, splits[:-1], some) < 0, by.counts, part, name, "do not rise")
    _refuse(by.counts != counts, None, part, name, "are not one per value")
    _refuse(numbers >= _MANY, by.counts, part, name, f"are of more than {_MANY:,} rows")
    rows = np.zeros_like(counts)
    rows[some] = numbers[splits[1:][some] - 1] + 1  # they rise, so that the last is the greatest
    if rows.sum() > _MANY:
        raise SpecError(f"feature {name!r}: more than {_MANY:,} rows in a batch")
    begins = np.repeat(splits_of(rows)[:-1], by.counts)
    return np.bincount(numbers + begins, minlength=int(rows.sum())), rows


def _steps(values: np.ndarray, first: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Return the difference of each value to the previous one, and of each example's first value to 0."""
    before = np.zeros_like(values)
    before[1:] = values[:-1]
    before[first[some]] = 0
    steps: np.ndarray = values - before
    return steps


def _refuse(
    wrong: np.ndarray,
    rows: np.ndarray | None,
    part: Any,
    name: str,
    problem: str,
    *,
    among: np.ndarray | None = None,
) -> None:
    """Raise if anything is wrong, with the number of the first example concerned."""
    if not wrong.any():
        return
    k = int(np.flatnonzero(wrong)[0])
    if rows is not None:  # of a row
        k = int(np.searchsorted(splits_of(rows), k, "right")) - 1
    elif among is not None:
        k = int(np.flatnonzero(among)[k])
    kind = type(part).__name__
    raise SpecError(f"example {k}: feature {name!r}: the {kind} in {part.key!r} {problem}")
