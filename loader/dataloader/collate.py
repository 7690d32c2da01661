"""Collating of samples into a batch, by torch's rules, on numpy alone.

Wherever torch gives a tensor there is an array; containers, their types and what is refused are
torch's. `collate` and `convert` are the same for any `Rules`: a worker that feeds a torch loader
collates without torch, and marks the arrays that become tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from tundish.loader.dataloader.columns import (
    CollateError,
    add_place,
    array_column,
    array_of,
    as_ruled,
    float_column,
    found,
    number_column,
    tensor_column,
)
from tundish.loader.dataloader.dtypes import NUMPY, Rules, is_tensor

__all__ = [
    "NUMPY",
    "CollateError",
    "Rules",
    "collate",
    "convert",
    "default_collate",
    "default_convert",
]

_TEXT_KINDS = "SUO"


def default_collate(batch: Any) -> Any:
    """Stack samples into a batch, by the rules of torch's `default_collate`.

    The first sample decides. Numbers and arrays become an array with one more dimension in front;
    strings and bytes stay as they are, in a list (in a tuple, where the samples are sequences).
    Mappings keep their type and the keys of the first sample; named tuples and other sequences
    keep their type, a plain tuple becomes a list of columns.

    Parameters
    ----------
    batch : sequence
        The samples, at least one.

    Returns
    -------
    object
        Arrays in the structure of a sample. Python's ints give int64, bools bool, floats float64;
        floats after a first int give float32, as in torch.

    Raises
    ------
    CollateError
        Shapes, dtypes or lengths differ. It is a `RuntimeError`, and names element and field.
    TypeError
        There is no rule for a sample's type: None, complex numbers, sets, arrays of strings, ...
    KeyError
        A sample lacks a key of the first one.

    Notes
    -----
    If torch raises although the meaning is clear, an array results: for arrays with
    negative or odd strides or another byte order (they become native), for times, records and
    extended precision, and for uint64 scalars.

    torch tensors become arrays; they stay tensors where numpy has no such dtype (bfloat16), and
    where they need a gradient or lie on another device.

    Examples
    --------
    >>> default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    {'x': array([1, 2]), 'name': ['a', 'b']}
    >>> default_collate([(0.5, "a"), (1, "b")])
    [array([0.5, 1. ]), ('a', 'b')]
    """
    return collate(batch, NUMPY)


def default_convert(data: Any) -> Any:
    """Make arrays of a single sample's numpy scalars, by the rules of torch's `default_convert`.

    It is what a loader without batches does. Arrays stay as they are; numpy scalars become 0-d
    arrays; containers are copied as by `default_collate`, a plain tuple as a list; everything
    else, Python's numbers too, stays unchanged.

    Parameters
    ----------
    data : object
        A sample.

    Returns
    -------
    object
        The sample; arrays share their memory with the original's.

    Notes
    -----
    Left alone, and not refused as by torch, are scalars of bytes. torch tensors become arrays
    that share their memory, where numpy has such.

    Examples
    --------
    >>> default_convert((np.float32(0.5), 2, "a"))
    [array(0.5, dtype=float32), 2, 'a']
    """
    return convert(data, NUMPY)


def collate(batch: Any, rules: Rules, path: str = "") -> Any:
    """Collate samples under given rules.

    Parameters
    ----------
    batch : sequence
        The samples, or one of their fields.
    rules : Rules
        The treatment of arrays.
    path : str
        The path of the samples' field, for errors.
    """
    first = batch[0]
    if is_tensor(first):
        return tensor_column(batch, rules, path)
    if isinstance(first, np.ndarray):
        if first.dtype.kind in _TEXT_KINDS:
            raise _refusal(first.dtype, path)
        return array_column(batch, rules, path)
    if isinstance(first, (np.number, np.bool_, np.object_, np.datetime64)):
        return number_column(batch, rules, path)
    if isinstance(first, float):
        return float_column(batch, rules, path)
    if isinstance(first, int):
        return number_column(batch, rules, path)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _mappings(first, batch, rules, path)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        names = (f"{path}.{name}" for name in first._fields)
        columns = zip(names, _transposed(batch, path), strict=False)  # as long as the shortest
        return type(first)(*(collate(column, rules, name) for name, column in columns))
    if isinstance(first, Sequence):
        return _sequences(first, batch, rules, path)
    raise _refusal(type(first), path)


def _refusal(what: Any, path: str) -> TypeError:
    error = TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {what}"
    )
    add_place(error, 0, path)
    return error


def _mappings(first: Mapping[Any, Any], batch: Any, rules: Rules, path: str) -> Any:
    columns = {key: collate(_values(batch, key, path), rules, f"{path}[{key!r}]") for key in first}
    return _like_mapping(first, columns)


def _values(batch: Any, key: Any, path: str) -> list[Any]:
    values = []
    for position, sample in enumerate(batch):
        try:
            values.append(sample[key])
        except Exception as error:
            add_place(error, position, f"{path}[{key!r}]")
            raise
    return values


def _sequences(first: Sequence[Any], batch: Any, rules: Rules, path: str) -> Any:
    size = len(first)
    for position, sample in enumerate(batch):
        try:
            length = len(sample)
        except TypeError as error:
            add_place(error, position, path)
            raise
        if length != size:
            raise CollateError("length", position, found(path), str(length), str(size))
    columns = [
        collate(column, rules, f"{path}[{k}]") for k, column in enumerate(_transposed(batch, path))
    ]
    return columns if isinstance(first, tuple) else _like(first, columns)


def _transposed(batch: Any, path: str) -> list[tuple[Any, ...]]:
    try:
        return list(zip(*batch, strict=False))
    except TypeError as error:
        position = next((k for k, x in enumerate(batch) if not hasattr(x, "__iter__")), None)
        if position is not None:
            add_place(error, position, path)
        raise


def _like_mapping(mapping: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """Return items in a mapping of the same type; a dict if that cannot be made."""
    try:
        if isinstance(mapping, MutableMapping):
            clone = copy.copy(mapping)  # it may have more to it than its items
            clone.update(items)
            return clone
        return type(mapping)(items)  # type: ignore[call-arg]  # if it can
    except TypeError:
        return items


def _like(sequence: Sequence[Any], items: list[Any]) -> Any:
    """Return items in a sequence of the same type; a list if that cannot be made."""
    try:
        if isinstance(sequence, MutableSequence):
            clone = copy.copy(sequence)
            for k, item in enumerate(items):
                clone[k] = item
            return clone
        return type(sequence)(items)  # type: ignore[call-arg]  # if it can
    except TypeError:
        return items


def convert(data: Any, rules: Rules) -> Any:
    """Convert a sample under given rules."""
    if is_tensor(data):
        return as_ruled(data, rules)
    kind = type(data)
    if kind.__module__ == "numpy" and kind is not np.str_:
        return _converted(data, rules)
    if isinstance(data, Mapping):
        return _like_mapping(data, {key: convert(data[key], rules) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*(convert(item, rules) for item in data))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        items = [convert(item, rules) for item in data]
        return items if isinstance(data, tuple) else _like(data, items)
    return data


def _converted(data: Any, rules: Rules) -> Any:
    if type(data) is np.ndarray and data.dtype.kind in _TEXT_KINDS:
        return data
    if isinstance(data, np.bytes_) and not rules.torch:
        return data
    return rules.leaf(array_of(data, rules), None)
