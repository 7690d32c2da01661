"""Descriptions of the wanted features of a serialized example, with tf.io's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_KINDS: dict[Any, Any] = {
    **dict.fromkeys((float, "float", "float32", np.float32), np.dtype(np.float32)),
    **dict.fromkeys((int, "int", "int64", np.int64), np.dtype(np.int64)),
    **dict.fromkeys((bytes, str, object, "bytes", "string", "str", "object", np.object_), bytes),
}


def kind_of(dtype: Any) -> Any:
    """Return one of the three dtypes of an example's values: float32, int64, or `bytes`."""
    try:
        found = _KINDS.get(dtype)
    except TypeError:  # not hashable
        found = None
    if found is None:  # a numpy dtype, or that of a framework: they have a name
        found = _KINDS.get(getattr(dtype, "name", None))
    if found is None:
        raise ValueError(f"dtype must be float32, int64 or bytes, not {dtype!r}")
    return found


def name_of(kind: Any) -> str:
    """Return the name of a dtype for messages."""
    return "bytes" if kind is bytes else str(kind)


def array_of(values: Any, kind: Any, what: str) -> np.ndarray:
    """Convert a user's default to an array that can be copied into arrays of this kind."""
    if kind is bytes:
        found = np.array(values, object)
        flat = [v.encode() if isinstance(v, str) else v for v in found.ravel().tolist()]
        if not all(isinstance(v, bytes) for v in flat):
            raise ValueError(f"{what}={values!r} must be of bytes or str")
        array = np.empty(len(flat), object)
        array[:] = flat
        return array.reshape(found.shape)
    found = np.asarray(values)
    if found.size and found.dtype.kind not in ("iub" if kind.kind == "i" else "iubf"):
        raise ValueError(f"{what}={values!r} must be of {name_of(kind)}")
    with np.errstate(over="ignore"):
        array = found.astype(kind)
    if kind.kind == "i" and found.size and not np.array_equal(array, found):
        raise ValueError(f"{what}={values!r} does not fit int64")
    return array


def _shape_of(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        found = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise ValueError(
            f"shape={shape!r} must have known sizes; for lists of different lengths use "
            "VarLenFeature, RaggedFeature or FixedLenSequenceFeature"
        ) from None
    if any(size < 0 for size in found):
        raise ValueError(f"shape={shape!r} has a negative size")
    return found


class Feature:
    """The base class of features."""

    dtype: Any


def _set(feature: Feature, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(feature, name, value)  # as frozen dataclasses do it themselves


@dataclass(frozen=True)
class FixedLenFeature(Feature):
    """A feature with the same number of values in each example.

    Parameters
    ----------
    shape : sequence of int
        The shape of an example's values; ``()`` is one value.
    dtype : {float32, int64, bytes}
        A name, a numpy dtype or a Python type; ``"string"`` and ``str`` mean `bytes`.
    default_value : array_like, optional
        The values of an example that lacks the feature, of `shape`. Without it, that is an error.

    Raises
    ------
    ValueError
        The shape is not fully known, the dtype is another one, or the default has another shape or kind.

    Examples
    --------
    >>> import tundish as td
    >>> td.io.FixedLenFeature([2], "float32", default_value=[0, 1])
    FixedLenFeature(shape=(2,), dtype=dtype('float32'), default_value=[0.0, 1.0])
    """

    shape: Any
    dtype: Any
    default_value: Any = None

    def __post_init__(self) -> None:
        shape, kind, default = _shape_of(self.shape), kind_of(self.dtype), self.default_value
        if default is not None:
            array = array_of(default, kind, "default_value")
            if array.size != math.prod(shape):
                raise ValueError(f"default_value={default!r} must have the shape {shape}")
            default = array.reshape(shape).tolist()
        _set(self, shape=shape, dtype=kind, default_value=default)


@dataclass(frozen=True)
class FixedLenSequenceFeature(Feature):
    """A feature whose values are a varying number of rows of one shape.

    Parameters
    ----------
    shape : sequence of int
        The shape of a row; ``()``: a row is one value.
    dtype : {float32, int64, bytes}
        As in `FixedLenFeature`.
    allow_missing : bool
        True if a SequenceExample may lack it. `parse_example` requires True.
    default_value : scalar, optional
        The padding of a batch's examples to the longest; by default 0 or ``b""``.

    Raises
    ------
    ValueError
        As for `FixedLenFeature`.
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None

    def __post_init__(self) -> None:
        kind, default = kind_of(self.dtype), self.default_value
        if default is not None:
            array = array_of(default, kind, "default_value")
            if array.size != 1:
                raise ValueError(f"default_value={default!r} must be one value, to pad with")
            default = array.reshape(()).item()
        _set(self, shape=_shape_of(self.shape), dtype=kind, default_value=default)


@dataclass(frozen=True)
class VarLenFeature(Feature):
    """A feature with any number of values, parsed to a `tundish.Sparse`.

    Parameters
    ----------
    dtype : {float32, int64, bytes}
        As in `FixedLenFeature`.
    """

    dtype: Any

    def __post_init__(self) -> None:
        _set(self, dtype=kind_of(self.dtype))


@dataclass(frozen=True)
class SparseFeature(Feature):
    """Values in one feature with their indices in others, parsed to a `tundish.Sparse`.

    Parameters
    ----------
    index_key : str or sequence of str
        The int64 features with the indices of values, one for each dimension.
    value_key : str
        The feature with the values.
    dtype : {float32, int64, bytes}
        The dtype of the values, as in `FixedLenFeature`.
    size : int or sequence of int
        The size of each dimension.
    already_sorted : bool
        True if the values are in the order of their indices; otherwise they are sorted.

    Raises
    ------
    ValueError
        There is no index, or the numbers of sizes and indices differ.
    """

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False

    def __post_init__(self) -> None:
        if not self.index_key or not self.value_key:
            raise ValueError("a SparseFeature needs an index_key and a value_key")
        keys = self.index_key if isinstance(self.index_key, str) else tuple(self.index_key)
        size = _shape_of(self.size)
        if len(size) != len((keys,) if isinstance(keys, str) else keys):
            raise ValueError(f"size={self.size!r} must have one size for each of {keys!r}")
        _set(self, index_key=keys, dtype=kind_of(self.dtype), size=size)

    @property
    def index_keys(self) -> tuple[str, ...]:
        """The keys of the indices, one for each dimension."""
        return (self.index_key,) if isinstance(self.index_key, str) else self.index_key


@dataclass(frozen=True)
class Partition:
    """A rule that divides values into rows: by another feature of the example, or evenly."""


@dataclass(frozen=True)
class KeyedPartition(Partition):
    """A rule that divides values into rows by the int64 feature `key`."""

    key: str


@dataclass(frozen=True)
class RowSplits(KeyedPartition):
    """The feature contains the start of each row, followed by the end of the last."""


@dataclass(frozen=True)
class RowLengths(KeyedPartition):
    """The feature contains the length of each row."""


@dataclass(frozen=True)
class RowStarts(KeyedPartition):
    """The feature contains the start of each row."""


@dataclass(frozen=True)
class RowLimits(KeyedPartition):
    """The feature contains the end of each row."""


@dataclass(frozen=True)
class ValueRowIds(KeyedPartition):
    """The feature contains the row number of each value, in ascending order."""


@dataclass(frozen=True)
class UniformRowLength(Partition):
    """Rows of equal length."""

    length: int


@dataclass(frozen=True)
class RaggedFeature(Feature):
    """A feature with any number of values, which may be divided into rows, parsed to a `tundish.Ragged`.

    Parameters
    ----------
    dtype : {float32, int64, bytes}
        As in `FixedLenFeature`.
    value_key : str, optional
        The feature with the values; by default the key of this feature.
    partitions : sequence
        The division of an example's values into rows, outermost first: each is
        ``RaggedFeature.RowSplits(key)``, ``RowLengths(key)``, ``RowStarts(key)``, ``RowLimits(key)``,
        ``ValueRowIds(key)`` or ``UniformRowLength(length)``.
    row_splits_dtype : {int32, int64}
        The dtype of `row_splits`.
    validate : bool
        Accepted as in tf.io; partitions that do not fit are always an error.

    Raises
    ------
    ValueError, TypeError
        A dtype or a partition is not one of these.
    """

    RowSplits = RowSplits
    RowLengths = RowLengths
    RowStarts = RowStarts
    RowLimits = RowLimits
    ValueRowIds = ValueRowIds
    UniformRowLength = UniformRowLength

    dtype: Any
    value_key: str | None = None
    partitions: Sequence[Partition] = ()
    row_splits_dtype: Any = "int32"
    validate: bool = False

    def __post_init__(self) -> None:
        key: Any = self.value_key
        if key is not None and not (isinstance(key, str) and key):
            raise ValueError(f"value_key={key!r} must be a name")
        if not isinstance(self.partitions, (list, tuple)):
            raise TypeError(f"partitions must be a list or tuple, not {self.partitions!r}")
        for part in self.partitions:
            if not isinstance(part, (KeyedPartition, UniformRowLength)):
                raise TypeError(f"partitions must be of RaggedFeature.RowSplits etc., not {part!r}")
            if isinstance(part, UniformRowLength) and operator.index(part.length) < 1:
                raise ValueError(f"a row must have a length of at least 1, not {part.length}")
        name = getattr(self.row_splits_dtype, "name", self.row_splits_dtype)
        try:
            splits = np.dtype(name)
        except TypeError:
            splits = None
        if splits not in (np.dtype(np.int32), np.dtype(np.int64)):
            raise ValueError(f"row_splits_dtype must be int32 or int64, not {name!r}")
        partitions = tuple(self.partitions)
        _set(self, dtype=kind_of(self.dtype), partitions=partitions, row_splits_dtype=splits)
