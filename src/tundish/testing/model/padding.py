"""The reference of the operators that batch elements of different shapes."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.ragged import Ragged, Sparse
from tundish.testing.model.basic import Basic, Item, Pass, arguments, called
from tundish.testing.nests import is_tuple, misfit, stacked, taken_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Put = Callable[[list[Any]], Any]

_TOO_LARGE = (ValueError, MemoryError)
"""Raised by numpy for an array that no memory can hold."""


class PaddingModel(Basic):
    """The reference of padded, ragged and sparse batches."""

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        *,
        pad_to_multiple_of: int = 1,
        side: str = "right",
    ) -> Self:
        put = _padding(padded_shapes, padding_values, pad_to_multiple_of, side)
        return self._put_together(batch_size, put, drop=drop_remainder)

    def ragged_batch(
        self, batch_size: int, drop_remainder: bool = False, row_splits_dtype: Any = np.int64
    ) -> Self:
        def put(rows: list[Any]) -> Any:
            return _ragged(rows, row_splits_dtype)

        return self._put_together(batch_size, put, drop=drop_remainder)

    def sparse_batch(self, batch_size: int, row_shape: Any) -> Self:
        def put(rows: list[Any]) -> Any:
            return _sparse(rows, row_shape)

        return self._put_together(batch_size, put, drop=False)

    def batch_by_cost(
        self,
        max_cost: float,
        cost: Callable[..., Any],
        pad: bool = False,
        *,
        max_elements: float = float("inf"),
        drop_remainder: bool = False,
        **padding: Any,
    ) -> Self:
        put = _padding(**padding) if pad else _stacking

        def items(this: Pass) -> Iterator[Item]:
            rows: list[Any] = []
            costs: list[float] = []
            ordinal = itertools.count()
            for item in self.items(this):
                told = item if item.error else called(item, cost, *arguments(item.value))
                if not told.error and not told.value >= 0:
                    told = told._replace(error=SpecError("no cost"))
                if not told.error:
                    costs.append(told.value)
                    if rows and (len(costs) * max(costs) if pad else sum(costs)) > max_cost:
                        yield _batch(this, next(ordinal), put, rows)
                        rows, costs = [], costs[-1:]
                    if costs[-1] > max_cost:
                        told = told._replace(error=SpecError("too dear"))
                error = told.error or _problem(put, [*rows, item.value])
                if error:
                    rows, costs = [], []
                    yield this.at(0, error=error)
                    continue
                rows.append(item.value)
                if len(rows) == max_elements:
                    yield _batch(this, next(ordinal), put, rows)
                    rows, costs = [], []
            if rows and not drop_remainder:
                yield _batch(this, next(ordinal), put, rows)

        return type(self)(items, self)

    def _put_together(self, size: int, put: Put, *, drop: bool) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            rows: list[Any] = []
            ordinal = itertools.count()
            for item in self.items(this):
                error = item.error or _problem(put, [*rows, item.value])
                if error:
                    rows = []  # what was gathered is given up
                    yield this.at(0, error=error)
                    continue
                rows.append(item.value)
                if len(rows) == size:
                    yield _batch(this, next(ordinal), put, rows)
                    rows = []
            if rows and not drop:
                yield _batch(this, next(ordinal), put, rows)

        return type(self)(items, self)


def _problem(put: Put, rows: list[Any]) -> SpecError | None:
    """Return the error of a last row that does not fit the others, found by trying; None if it fits."""
    try:
        put(rows)
    except SpecError as error:
        return error
    except _TOO_LARGE:
        return None  # for any row: it is the batch's error
    return None


def _batch(this: Pass, ordinal: int, put: Put, rows: list[Any]) -> Item:
    try:
        return this.at(ordinal, put(rows))
    except _TOO_LARGE as error:
        return this.at(ordinal, error=error)


def _stacking(rows: list[Any]) -> Any:
    for row in rows:
        error = misfit(rows[0], row)
        if error:
            raise error
    return stacked(rows)


def _columns(rows: list[Any]) -> tuple[list[list[Any]], Callable[[list[Any]], Any]]:
    """Return the leaves of rows of one structure as columns, whatever their shapes."""
    _, build = taken_apart(rows[0])
    for row in rows:
        error = misfit(_without_shape(rows[0]), _without_shape(row))
        if error:
            raise error
    return [
        list(column) for column in zip(*[_in_order(rows[0], r) for r in rows], strict=True)
    ], build


def _in_order(first: Any, row: Any) -> list[Any]:
    """Return the leaves of a row, dicts in the first row's order."""
    if isinstance(first, dict):
        return [leaf for key in first for leaf in _in_order(first[key], row[key])]
    if is_tuple(first):
        return [leaf for a, b in zip(first, row, strict=True) for leaf in _in_order(a, b)]
    return [row]


def _without_shape(row: Any) -> Any:
    """Replace each array of a row by an empty one with its dtype and rank."""
    leaves, build = taken_apart(row)
    return build(
        [np.empty((0,) * x.ndim, x.dtype) if isinstance(x, np.ndarray) else x for x in leaves]
    )


def _padding(
    padded_shapes: Any = None,
    padding_values: Any = None,
    pad_to_multiple_of: int = 1,
    side: str = "right",
) -> Put:
    """Return a function that pads by the same shape, value and multiple everywhere."""

    def put(rows: list[Any]) -> Any:
        columns, build = _columns(rows)
        return build([column_of(column) for column in columns])

    def column_of(column: list[Any]) -> Any:
        first = column[0]
        if not isinstance(first, np.ndarray):
            return stacked(column)
        sizes = padded_shapes if padded_shapes is not None else [None] * first.ndim
        if len(sizes) != first.ndim:
            raise SpecError("another rank")
        shape = []
        for at, size in enumerate(sizes):
            largest = max(row.shape[at] for row in column)
            shape.append(largest + -largest % pad_to_multiple_of if size is None else size)
            if largest > shape[-1]:
                raise SpecError("too long")
        value = _default(column) if padding_values is None else padding_values
        padded = []
        for row in column:
            missing = [room - have for room, have in zip(shape, row.shape, strict=True)]
            before = missing if side == "left" else [0] * len(missing)
            filled = np.zeros(shape, row.dtype)
            filled[...] = value
            behind = map(operator.add, before, row.shape)
            filled[tuple(map(slice, before, behind))] = row
            padded.append(filled)
        return stacked(padded)

    return put


def _default(column: list[Any]) -> Any:
    if column[0].dtype != object:
        return np.zeros((), column[0].dtype)[()]
    there = [x for row in column for x in row.ravel().tolist()]
    return type(there[0])() if there and type(there[0]) in (str, bytes) else None if there else ""


def _ragged(rows: list[Any], splits: Any) -> Any:
    columns, build = _columns(rows)
    made = []
    for column in columns:
        if not isinstance(column[0], np.ndarray):
            made.append(stacked(column))
            continue
        if len({row.shape[1:] for row in column}) > 1:
            raise SpecError("other rows")
        ends = [0, *itertools.accumulate(map(len, column))]
        values = np.zeros((ends[-1], *column[0].shape[1:]), column[0].dtype)
        for row, end in zip(column, ends[1:], strict=True):
            values[end - len(row) : end] = row
        made.append(Ragged(values, np.array(ends, splits)))
    return build(made)


def _sparse(rows: list[Any], row_shape: list[int | None]) -> Sparse:
    first = rows[0]
    for row in rows:
        if not isinstance(row, np.ndarray | np.generic) or row.ndim != len(row_shape):
            raise SpecError("no such array")
        if row.dtype != first.dtype:
            raise SpecError("other rows")
        if any(
            room is not None and have > room
            for have, room in zip(row.shape, row_shape, strict=True)
        ):
            raise SpecError("too long")
    places = [(k, *at) for k, row in enumerate(rows) for at in np.ndindex(row.shape)]
    sizes = [
        max(row.shape[at] for row in rows) if room is None else room
        for at, room in enumerate(row_shape)
    ]
    return Sparse(
        np.array(places, np.int64).reshape(-1, 1 + len(row_shape)),
        np.concatenate([row.ravel() for row in rows]).astype(first.dtype),
        np.array([len(rows), *sizes]),
    )
