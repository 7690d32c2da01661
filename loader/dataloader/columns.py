"""Stacking of one column of a batch: all samples' numbers, arrays or tensors.

The first value determines the kind of the column; the others have to fit. Errors name the element and the field
that do not.
"""

from __future__ import annotations

import operator
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tundish.errors import SpecError, TundishError
from tundish.loader.dataloader.dtypes import (
    Rules,
    array_dtype,
    default_float,
    has_tensor,
    is_tensor,
    promoted,
    value_dtype,
)

_EXPECTED = {
    "shape": "stack expects each sample to be equal size",
    "length": "each element in list of batch should be of equal size",
    "dtype": "stack expects dtypes that one dtype can hold",
}
_PYTHON = frozenset({bool, int, float})
_INTEGERS = frozenset({bool, int})
_PLAIN_SCALARS = frozenset(np.dtype(char).type for char in "?bBhHiIlefdFD")  # torch: no uint64


class CollateError(SpecError, RuntimeError):
    """Samples do not fit into one batch.

    It is a `RuntimeError`, as it is in torch.

    Parameters
    ----------
    what : {"shape", "length", "dtype"}
        The property that differs.
    position : int
        The element in the batch that differs from its first one.
    field : str
        The path in the element: ``'image'``, ``['pair'][0]``; empty if it has no fields.
    found, expected : str
        What the differing element has, and what element 0 has.

    Attributes
    ----------
    index, first_index : object or None
        The two samples' keys in the dataset, if they are known; then they are part of the message.
    """

    def __init__(self, what: str, position: int, field: str, found: str, expected: str) -> None:
        TundishError.__init__(self, what, position, field, found, expected)
        self.what = what
        self.position = position
        self.field = field
        self.found = found
        self.expected = expected
        self.index: Any = None
        self.first_index: Any = None

    @property
    def message(self) -> str:  # type: ignore[override]  # made anew: the indices come later
        """Return the text of the error."""
        return str(self)

    def __str__(self) -> str:
        here = "" if self.index is None else f" (index {self.index!r})"
        first = "" if self.first_index is None else f" (index {self.first_index!r})"
        field = f": field {self.field}" if self.field else ""
        return (
            f"{_EXPECTED[self.what]}: element {self.position}{here}{field} has "
            f"{self.what} {self.found}, batch has {self.expected} from element 0{first}"
        )


def found(path: str) -> str:
    """Describe a field's path for a message: by its key, if that is enough."""
    single = path.startswith("['") and path.endswith("']") and path.count("[") == 1
    return path[1:-1] if single else path


def add_place(error: BaseException, position: int, path: str) -> None:
    """Add a note to an error: the element of the batch and the field."""
    field = f", field {found(path)}" if path else ""
    error.add_note(f"collating element {position} of the batch{field}")


def plain_column(values: Sequence[Any]) -> np.ndarray | None:
    """Stack numbers of common types; return None for others, which need a closer look.

    Common types are Python numbers if the first is a float (float64), Python ints and bools (int64, or bool if all
    are bools), and numpy scalars of a single type.
    """
    kinds = set(map(type, values))
    first = type(values[0])
    dtype: Any
    if first is float and kinds <= _PYTHON:
        dtype = np.float64
    elif first in _INTEGERS and kinds <= _INTEGERS:
        dtype = np.int64 if int in kinds else np.bool_
    elif first in _PLAIN_SCALARS and len(kinds) == 1:
        dtype = first
    else:
        return None
    try:
        return np.array(values, dtype)
    except OverflowError:
        return None


def _listed(batch: Sequence[Any]) -> Sequence[Any]:
    if isinstance(batch, Mapping):
        raise RuntimeError(f"no dtype can be inferred for a {type(batch).__name__}, {batch!r}")  # noqa: TRY004
    return batch if isinstance(batch, (list, tuple)) else list(batch)


def number_column(batch: Sequence[Any], rules: Rules, path: str) -> Any:
    """Stack numbers, the first of which is an int, a bool or a numpy scalar."""
    plain = plain_column(_listed(batch))
    if plain is not None:
        return rules.leaf(plain, None)
    if has_tensor(batch):
        return as_ruled(sys.modules["torch"].as_tensor(list(batch)), rules)
    return rules.leaf(_numbers(batch, rules, path), None)


def float_column(batch: Sequence[Any], rules: Rules, path: str) -> Any:
    """Stack numbers, the first of which is a Python float, to float64."""
    plain = plain_column(_listed(batch))
    if plain is None:
        plain = np.empty(len(batch), np.float64)
        _fill(plain, batch, rules, path)
    return rules.leaf(plain, None)


def _numbers(batch: Sequence[Any], rules: Rules, path: str) -> np.ndarray:
    common = None
    for position, value in enumerate(batch):
        try:
            dtype = value_dtype(value, rules)
        except Exception as error:
            add_place(error, position, path)
            raise
        common = dtype if common is None else _wider(common, dtype, position, path)
        if common == np.complex128:  # torch looks no further
            break
    column = np.empty(len(batch), common)
    _fill(column, batch, rules, path)
    return column


def _wider(one: np.dtype[Any], other: np.dtype[Any], position: int, path: str) -> np.dtype[Any]:
    try:
        return promoted(one, other)
    except TypeError as error:
        raise CollateError("dtype", position, found(path), str(other), str(one)) from error


def _fill(column: np.ndarray, batch: Sequence[Any], rules: Rules, path: str) -> None:
    convert = _CONVERTERS.get(column.dtype.kind)
    if rules.torch and column.dtype == np.uint64:
        convert = _no_integer
    for position, value in enumerate(batch):
        try:
            with np.errstate(all="ignore"):  # a float too large for float16 is infinite
                column[position] = value if convert is None else convert(value)
        except Exception as error:
            if isinstance(error, OverflowError) and column.dtype.kind != "f":
                error = ValueError(f"{value!r} does not fit into {column.dtype}: overflow")
            add_place(error, position, path)
            raise error from None


def _double(value: Any) -> float:
    return float(array("d", [value])[0])  # takes what has __float__ or __index__, and no text


def _no_integer(value: Any) -> int:
    raise TypeError(f"an integer is required, not {value!r}: torch takes no uint64 scalars")


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "b": bool,
    "i": operator.index,
    "u": operator.index,
    "f": _double,
    "c": complex,
}


def array_column(batch: Sequence[Any], rules: Rules, path: str) -> Any:
    """Stack arrays, or an array and values that can be converted to arrays."""
    if has_tensor(batch):
        as_tensor = sys.modules["torch"].as_tensor
        return tensor_column([as_tensor(value) for value in batch], rules, path)
    first = batch[0]
    arrays = []
    for position, value in enumerate(batch):
        if position and _is_like(value, first):
            arrays.append(value)
            continue
        try:
            arrays.append(array_of(value, rules))
        except Exception as error:
            add_place(error, position, path)
            raise
    return rules.leaf(_stacked(arrays, rules, path), None)


def _is_like(value: Any, first: np.ndarray) -> bool:
    """Return True if an array is compatible with the first one."""
    return (
        type(value) is np.ndarray and value.dtype == first.dtype and value.strides == first.strides
    )


def _stacked(arrays: list[np.ndarray], rules: Rules, path: str) -> np.ndarray:
    shape = arrays[0].shape
    for position, one in enumerate(arrays):
        if one.shape != shape:
            raise CollateError("shape", position, found(path), str(one.shape), str(shape))
    dtype = array_dtype(arrays[0], rules)
    if len({one.dtype for one in arrays}) > 1:
        for position, one in enumerate(arrays):
            dtype = _wider(dtype, array_dtype(one, rules), position, path)
    column = np.empty((len(arrays), *shape), dtype)
    with np.errstate(all="ignore"):  # an integer too large for float16 is infinite
        for position, one in enumerate(arrays):
            column[position] = one
    return column


def array_of(value: Any, rules: Rules) -> np.ndarray:
    """Return the array for a value that torch makes a tensor: arrays as they are, numbers and lists of them.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        The value has no such array.
    """
    if isinstance(value, np.ndarray):
        array_dtype(value, rules)
        return np.asarray(value)
    if isinstance(value, np.generic):
        if rules.torch and value.dtype == np.uint64:
            _no_integer(value)
        return np.array(value, array_dtype(value, rules))
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        single = np.empty((1,), value_dtype(value, rules))
        _fill(single, [value], rules, "")
        return single.reshape(())
    if not value:
        return np.empty(0, default_float(rules))
    if not isinstance(value[0], (Sequence, np.ndarray)) or isinstance(value[0], (str, bytes)):
        return _numbers(value, rules, "")
    rows = [array_of(item, rules) for item in value]
    if any(row.shape != rows[0].shape for row in rows):
        raise ValueError(f"the rows of {value!r} have different lengths")
    return _stacked(rows, rules, "")


def tensor_column(batch: Sequence[Any], rules: Rules, path: str) -> Any:
    """Stack torch tensors; under numpy's rules to an array, if numpy has the dtype."""
    torch: Any = sys.modules["torch"]
    first = batch[0]
    if first.is_nested or first.layout not in (torch.strided, torch._mkldnn):  # noqa: SLF001
        kind = "nested" if first.is_nested else "sparse"
        raise RuntimeError(
            f"Batches of {kind} tensors are not made by default_collate; give a collate_fn"
        )
    try:
        stacked = torch.stack(batch)
    except Exception as error:
        _blame(error, batch, path)
        raise
    return as_ruled(stacked, rules)


def _blame(error: Exception, batch: Sequence[Any], path: str) -> None:
    """Raise the reason why tensors cannot be stacked, as far as it is known."""
    shape = batch[0].shape
    for position, value in enumerate(batch):
        if not is_tensor(value):
            add_place(error, position, path)
            return
        if not value.is_nested and value.shape != shape:
            here, there = tuple(value.shape), tuple(shape)
            raise CollateError("shape", position, found(path), str(here), str(there)) from error


def as_ruled(tensor: Any, rules: Rules) -> Any:
    """Return a tensor as it is in a batch under given rules."""
    if rules.torch:
        return tensor
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError):  # no such dtype in numpy, or not in this machine's memory
        return tensor
