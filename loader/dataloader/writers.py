"""Writers of a streamed batch: a tree with one for each container and leaf.

Arrays and large tensors have a column; values without arrays are kept by reference until the end,
and then collated like a batch.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tundish.loader.dataloader.columns import plain_column
from tundish.loader.dataloader.dtypes import TORCH_CHARS, Leaf
from tundish.loader.protocols.plain import CARRIERS, Allocate, is_dense_tensor

General = Callable[[Any], Any]
"""``general(samples)``: the ordinary collate."""

_ABSENT = object()
_TEXT = (str, bytes)
_NUMBERS = (bool, int, float, *(np.dtype(char).type for char in "?bBhHiIlefdFD"))
_SMALL_TENSOR = (
    4096  # bytes; up to here torch.stack of them all takes less time than a copy of each
)


@dataclass(frozen=True)
class Making:
    """The settings that the writers of one batch share."""

    size: int
    allocate: Allocate
    leaf: Leaf
    general: General
    torch_rules: bool


def writer(value: Any, making: Making, within: type) -> Writer:
    """Return the writer for values like the first one.

    Parameters
    ----------
    value : object
        The first sample's value.
    making : Making
        The batch's settings.
    within : type
        The container in which torch's rules pass on these values: list or tuple.
    """
    kind = type(value)
    if kind is np.ndarray or kind is np.memmap:
        if value.dtype.char in TORCH_CHARS and value.dtype.isnative:
            return ArrayColumn(value, making)
    elif kind is tuple or kind is list or is_namedtuple(kind):
        items = [writer(item, making, tuple) for item in value]
        if not all(type(item) is KeptWriter for item in items):
            return ItemsWriter(kind, items)
    elif kind is dict or ((kind is OrderedDict or kind is defaultdict) and not vars_of(value)):
        fields = {key: writer(item, making, list) for key, item in value.items()}
        if not all(type(item) is KeptWriter for item in fields.values()):
            return FieldsWriter(emptied(value), fields)
    elif is_dense_tensor(value) and value.nbytes > _SMALL_TENSOR:
        return TensorColumn(value, making)
    return KeptWriter(making, kind, within)


def is_namedtuple(kind: type) -> bool:
    """Return True if a type is a plain named tuple, not a class derived from one."""
    if kind.__bases__ != (tuple,) or kind.__dictoffset__:
        return False
    own = vars(kind).keys()
    return own >= {"_fields", "_make", "_field_defaults"} and not own & {"__iter__", "__len__"}


def vars_of(value: Any) -> dict[str, Any]:
    """Return the attributes that were set on a mapping."""
    return getattr(value, "__dict__", {})


def emptied(mapping: dict[Any, Any]) -> dict[Any, Any]:
    """Return an empty copy of a mapping."""
    if isinstance(mapping, defaultdict):
        return defaultdict(mapping.default_factory)
    return type(mapping)()


@dataclass(slots=True)
class ItemsWriter:
    """A list, a tuple or a named tuple with a fixed number of items."""

    kind: Any
    writers: list[Writer]
    length: int = field(init=False)
    writes: list[Callable[[Any, int], bool]] = field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.writers)
        self.writes = [writer.write for writer in self.writers]

    def write(self, value: Any, row: int) -> bool:
        """Write a sample's value; return False if it does not fit."""
        if type(value) is not self.kind or len(value) != self.length:
            return False
        for write, item in zip(self.writes, value):  # noqa: B905, SIM110 - the fastest way
            if not write(item, row):
                return False
        return True

    def value(self, row: int) -> Any:
        """Return the value that was written, as it was given, with private copies of arrays."""
        items = [writer.value(row) for writer in self.writers]
        return items if self.kind is list else tuple.__new__(self.kind, items)

    def finish(self) -> Any:
        """Return the finished column."""
        columns = [writer.finish() for writer in self.writers]
        return columns if self.kind in (list, tuple) else self.kind(*columns)


@dataclass(slots=True)
class FieldsWriter:
    """A dict, an ordered or a default one, with at least the first sample's keys."""

    empty: dict[Any, Any]
    writers: dict[Any, Writer]
    kind: Any = field(init=False)
    writes: list[tuple[Any, Callable[[Any, int], bool]]] = field(init=False)

    def __post_init__(self) -> None:
        self.kind = type(self.empty)
        self.writes = [(key, writer.write) for key, writer in self.writers.items()]

    def write(self, value: Any, row: int) -> bool:
        if type(value) is not self.kind:
            return False
        for key, write in self.writes:
            item = value.get(key, _ABSENT)  # value[key] would add to a defaultdict
            if item is _ABSENT or not write(item, row):
                return False
        return True

    def value(self, row: int) -> Any:
        return self._filled({key: writer.value(row) for key, writer in self.writers.items()})

    def finish(self) -> Any:
        return self._filled({key: writer.finish() for key, writer in self.writers.items()})

    def _filled(self, items: dict[Any, Any]) -> Any:
        if self.kind is dict:
            return items
        filled = self.empty.copy()
        filled.update(items)
        return filled


@dataclass(slots=True)
class KeptWriter:
    """Values without arrays (numbers, text), kept by reference and collated at the end."""

    making: Making
    kind: type
    within: type
    values: list[Any] = field(default_factory=list)

    def write(self, value: Any, row: int) -> bool:
        self.values.append(value)
        return True

    def value(self, row: int) -> Any:
        return self.values[row]

    def finish(self) -> Any:
        values: Sequence[Any] = self.values
        if self.kind in _NUMBERS:
            column = plain_column(values)
            if column is not None:
                return self.making.leaf(column, None)
        if self.within is tuple:
            values = tuple(values)
        return values if self.kind in _TEXT else self.making.general(values)


class ArrayColumn:
    """Arrays of one dtype and shape."""

    __slots__ = ("any_strides", "column", "dtype", "leaf", "shape", "strides")

    def __init__(self, first: np.ndarray, making: Making) -> None:
        self.shape = first.shape
        self.dtype = np.dtype(first.dtype.str)  # long and long long have one name
        self.any_strides = not making.torch_rules
        self.leaf = making.leaf
        self.column = making.allocate((making.size, *self.shape), self.dtype)
        self.strides = self.column.strides[1:]

    def write(self, value: Any, row: int) -> bool:
        kind = type(value)
        if (
            (kind is np.ndarray or kind is np.memmap)
            and value.dtype == self.dtype
            and value.shape == self.shape
            and (value.strides == self.strides or self.any_strides or can_be_tensor(value))
        ):
            self.column[row] = value
            return True
        return False

    def value(self, row: int) -> Any:
        return self.column[row, ...].copy()

    def finish(self) -> Any:
        return self.leaf(self.column, None)


def can_be_tensor(array: np.ndarray) -> bool:
    """Return True if torch accepts an array's strides."""
    width = array.dtype.itemsize
    return all(stride >= 0 and stride % width == 0 for stride in array.strides)


class TensorColumn:
    """Tensors of one dtype and shape, in memory that numpy sees too.

    A row is written by a tensor's ``copy_``: about as fast as ``row[...] = tensor.numpy()``, which would forbid
    resizing the sample's storage for ever.
    """

    __slots__ = ("column", "dtype", "kind", "leaf", "name", "rows", "shape", "strided")

    def __init__(self, first: Any, making: Making) -> None:
        torch: Any = sys.modules["torch"]
        name = str(first.dtype).removeprefix("torch.")
        carrier = CARRIERS.get(name)
        self.name = None if carrier is None else name
        self.kind = type(first)
        self.dtype = first.dtype
        self.shape = first.shape
        self.strided = torch.strided
        self.leaf = making.leaf
        shape = (making.size, *first.shape)
        self.column = making.allocate(shape, carrier or np.dtype(name))
        tensor = torch.from_numpy(self.column)
        self.rows = (tensor if carrier is None else tensor.view(self.dtype)).unbind(0)

    def write(self, value: Any, row: int) -> bool:
        try:
            if (
                type(value) is self.kind
                and value.dtype is self.dtype
                and value.shape == self.shape
                and value.is_cpu
                and value.layout is self.strided
                and not value.requires_grad
            ):
                self.rows[row].copy_(value)
                return True
        except RuntimeError:  # a nested tensor has no shape
            pass
        return False

    def value(self, row: int) -> Any:
        return self.rows[row].clone()

    def finish(self) -> Any:
        return self.leaf(self.column, self.name)


Writer: TypeAlias = ItemsWriter | FieldsWriter | KeptWriter | ArrayColumn | TensorColumn
"""One place of the plan."""
