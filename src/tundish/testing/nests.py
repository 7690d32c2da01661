"""Elements of the reference: numpy form, leaves, batches."""

from __future__ import annotations

import itertools
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_DIMENSIONS = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""An array of numpy has no more."""

__all__ = ["MOST_DIMENSIONS", "by_row", "is_tuple", "misfit", "normal", "stacked", "taken_apart"]


def is_tuple(value: object) -> bool:
    """Return True for a tuple that is a nest: one of a class of its own, not a namedtuple's, is a leaf."""
    return type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_fields"))


def normal(value: Any) -> Any:
    """Return the numpy form of a value."""
    match value:
        case dict():
            return {key: normal(part) for key, part in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*map(normal, value))
        case tuple() if is_tuple(value):
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
            parts = list(_parts(value))
            for x in parts:
                normal(x)
            try:
                found = np.asarray(_without_gradients(value))
            except ValueError as error:
                raise SpecError("a ragged list") from error
            wholes = [x for x in parts if np.asarray(x).dtype.kind in "iu"]
            rounded = (int(e) != int(float(e)) for x in wholes for e in np.ravel(x))
            if found.dtype.kind == "f" and len(wholes) == len(parts) and any(rounded):
                raise SpecError("an int would be rounded")
            return normal(found)
        case np.ndarray() if value.dtype.kind in "US":
            return normal(value.astype(object))
        case np.ma.MaskedArray():
            if np.ma.getmaskarray(value).any():
                raise SpecError("values are masked")
            return normal(np.array(value.data))
        case np.ndarray() if type(value) is not np.ndarray:
            return normal(np.array(value))
        case np.ndarray() if value.dtype.kind in "mM" and not value.dtype.isnative:
            return normal(value.astype(value.dtype.newbyteorder("=")))
        case np.ndarray() | np.void() if value.dtype.names and not value.dtype.hasobject:
            return _fields_copied(value)
        case np.ndarray() if value.ndim == 0:
            return normal(value[()])
        case np.ndarray() | np.generic() | str() | bytes():
            return value
        case bytearray():
            return bytes(value)
        case memoryview() | array():
            return np.asarray(value)
    return _of_another_library(value)


def _parts(value: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
    """Yield what is in a list, and in the lists and tuples in it."""
    for x in value:
        if isinstance(x, list | tuple):
            yield from _parts(x)
        else:
            yield x


def _without_gradients(value: Any) -> Any:
    """Give a list with tensors detached."""
    if isinstance(value, list | tuple):
        return [_without_gradients(x) for x in value]
    return value.detach() if getattr(value, "requires_grad", False) is True else value


def _fields_copied(value: Any) -> Any:
    """Copy structs field by field, with zeros in their padding."""
    made = np.zeros(value.shape, value.dtype)
    made[...] = value
    return made if made.ndim else made[()]


def _of_another_library(value: Any) -> Any:
    """Return the numpy form of other libraries' objects, recognised by the name of a class or base."""
    match next((base.__name__ for base in type(value).__mro__ if base.__name__ in _OTHERS), None):
        case "DataFrame" | "Table" | "RecordBatch" | "Frame":
            names = (
                value.schema.names
                if hasattr(value, "schema") and hasattr(value, "nbytes")
                else value.columns
            )
            return {name: normal(value[name]) for name in names}
        case "Tracked" | "Tensor":
            return normal(value.detach().__array__())
        case "Array" | "ChunkedArray" | "Series" | "Index" if _is_missing_some(value):
            raise SpecError("values are missing")
        case None:
            return value
    try:
        return normal(value.__array__())
    except Exception as error:
        raise SpecError("it cannot be an array") from error


_OTHERS = {
    *("DataFrame", "Table", "RecordBatch", "Frame", "Tracked", "Tensor", "Like"),
    *("Array", "ChunkedArray", "Series", "Index", "DataArray"),
}


def _is_missing_some(value: Any) -> bool:
    if (
        hasattr(value, "to_list")
        and hasattr(value, "dtype")
        and not isinstance(value.dtype, np.dtype)
    ):
        found = value.to_list()
    else:
        found = value.to_pylist() if hasattr(value, "to_pylist") else []
    return any(x is None or repr(x) == "<NA>" or x != x for x in found)  # noqa: PLR0124 - nan


def taken_apart(nest: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves of a nest, and a function that rebuilds it from others."""
    rebuild: Callable[[Any], Any]
    if isinstance(nest, dict):
        parts, rebuild = list(nest.values()), lambda values: dict(zip(nest, values, strict=True))
    elif is_tuple(nest):
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
    """Replace each `Ragged` by a column of its rows, unless it is a batch of several."""
    if isinstance(nest, Ragged) and nest.row_splits.ndim == 1:
        ends = nest.row_splits.tolist()
        column = np.empty(len(ends) - 1, object)
        for k in range(len(column)):
            column[k] = nest.values[ends[k] : ends[k + 1]]
        return column
    if isinstance(nest, dict):
        return {key: by_row(part) for key, part in nest.items()}
    if is_tuple(nest):
        return getattr(type(nest), "_make", tuple)([by_row(part) for part in nest])
    return nest


def misfit(first: Any, row: Any) -> SpecError | None:
    """Return the error of a row that does not fit the batch begun by another; None if it fits."""
    match first, row:
        case dict(), dict():
            pairs = (
                [(first[key], row[key]) for key in first] if first.keys() == row.keys() else None
            )
        case tuple(), tuple() if is_tuple(first) and type(first) is type(row):
            pairs = list(zip(first, row, strict=True)) if len(first) == len(row) else None
        case _ if any(isinstance(x, dict) or is_tuple(x) for x in (first, row)):
            pairs = None
        case _:
            if np.ndim(row) >= MOST_DIMENSIONS and isinstance(row, np.ndarray):
                return SpecError("no dimension is left")
            return SpecError("other rows") if _form(first) != _form(row) else None
    if pairs is None:
        return SpecError("another structure")
    return next(filter(None, itertools.starmap(misfit, pairs)), None)


def _form(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype, leaf.shape
    return object  # str, bytes and anything else are in one array of objects


def stacked(rows: list[Any]) -> Any:
    """Return the batch of rows that fit each other."""
    first = rows[0]
    if isinstance(first, dict):
        return {key: stacked([row[key] for row in rows]) for key in first}
    if is_tuple(first):
        columns = [stacked(list(column)) for column in zip(*rows, strict=True)]
        return getattr(type(first), "_make", tuple)(columns)
    numeric = isinstance(first, np.ndarray | np.generic)
    column = np.zeros(
        (len(rows), *(first.shape if numeric else ())), first.dtype if numeric else object
    )
    for i, row in enumerate(rows):
        column[i] = row
    return column
