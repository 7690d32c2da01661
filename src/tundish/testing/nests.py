"""Elements of the reference: their numpy form, their leaves, and batches of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["by_row", "misfit", "normal", "stacked", "taken_apart"]


def normal(value: Any) -> Any:
    """The numpy form of a value."""
    match value:
        case dict():
            return {key: normal(part) for key, part in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*map(normal, value))
        case tuple():
            return tuple(map(normal, value))
        case np.str_() | np.bytes_():
            return value.item()
        case bool():
            return np.bool_(value)
        case int():
            if not -(2**63) <= value < 2**63:
                raise SpecError("an int of more than 64 bits")
            return np.int64(value)
        case float() if not isinstance(value, np.generic):
            return np.float64(value)
        case complex() if not isinstance(value, np.generic):
            return np.complex128(value)
        case list():
            try:
                return normal(np.asarray(value))
            except ValueError as error:
                raise SpecError("a ragged list") from error
        case np.ndarray() if value.dtype.kind in "US":
            return normal(value.astype(object))
        case np.ndarray() if value.ndim == 0:
            return normal(value[()])
    return value


def taken_apart(nest: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The leaves of a nest, and how to build it of others."""
    rebuild: Callable[[Any], Any]
    if isinstance(nest, dict):
        parts, rebuild = list(nest.values()), lambda values: dict(zip(nest, values, strict=True))
    elif isinstance(nest, tuple):
        parts = list(nest)
        rebuild = getattr(type(nest), "_make", tuple)
    else:
        return [nest], lambda leaves: leaves[0]
    inner = [taken_apart(part) for part in parts]

    def build(leaves: list[Any]) -> Any:
        rest = iter(leaves)
        return rebuild([make(list(itertools.islice(rest, len(own)))) for own, make in inner])

    return [leaf for own, _ in inner for leaf in own], build


def by_row(nest: Any) -> Any:
    """The same with each `Ragged` made a column of its rows, but for a batch of several."""
    if isinstance(nest, Ragged) and nest.row_splits.ndim == 1:
        ends = nest.row_splits.tolist()
        column = np.empty(len(ends) - 1, object)
        for k in range(len(column)):
            column[k] = nest.values[ends[k] : ends[k + 1]]
        return column
    if isinstance(nest, dict):
        return {key: by_row(part) for key, part in nest.items()}
    if isinstance(nest, tuple):
        return getattr(type(nest), "_make", tuple)([by_row(part) for part in nest])
    return nest


def misfit(first: Any, row: Any) -> SpecError | None:
    """Why a row does not fit the batch that another one began."""
    match first, row:
        case dict(), dict():
            pairs = (
                [(first[key], row[key]) for key in first] if first.keys() == row.keys() else None
            )
        case tuple(), tuple() if type(first) is type(row):
            pairs = list(zip(first, row, strict=True)) if len(first) == len(row) else None
        case (dict() | tuple(), _) | (_, dict() | tuple()):
            pairs = None
        case _:
            return SpecError("other rows") if _form(first) != _form(row) else None
    if pairs is None:
        return SpecError("another structure")
    return next(filter(None, itertools.starmap(misfit, pairs)), None)


def _form(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype, leaf.shape
    return object  # str, bytes and whatever else there is stand in one array of objects


def stacked(rows: list[Any]) -> Any:
    """The batch of rows that fit."""
    first = rows[0]
    if isinstance(first, dict):
        return {key: stacked([row[key] for row in rows]) for key in first}
    if isinstance(first, tuple):
        columns = [stacked(list(column)) for column in zip(*rows, strict=True)]
        return getattr(type(first), "_make", tuple)(columns)
    numeric = isinstance(first, np.ndarray | np.generic)
    column = np.empty(
        (len(rows), *(first.shape if numeric else ())), first.dtype if numeric else object
    )
    for i, row in enumerate(rows):
        column[i] = row
    return column
