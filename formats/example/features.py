"""Features that are wanted of a serialized example: the classes that say so, with tf.io's names."""

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
    """One of the three dtypes that an example can hold: float32, int64, or `bytes`."""
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
    """Return the name of a dtype in messages."""
    return "bytes" if kind is bytes else str(kind)


def array_of(values: Any, kind: Any, what: str) -> np.ndarray:
    """A user's default as an array that may be written into arrays of this kind."""
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
            f"shape={shape!r} must be of known sizes; of a list whose length differs, use "
            "VarLenFeature, RaggedFeature or FixedLenSequenceFeature"
        ) from None
    if any(size < 0 for size in found):
        raise ValueError(f"shape={shape!r} has a negative size")
    return found


class Feature:
    """The base of all of them."""

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
        Of an example's values; ``()`` is one value.
    dtype : {float32, int64, bytes}
        As a name, a numpy dtype or a Python type; ``"string"`` and ``str`` are `bytes`.
    default_value : array_like, optional
        What an example has that lacks the feature; of `shape`. Without it, that is an error.

    Raises
    ------
    ValueError
        The shape is not known, the dtype is another one, or the default is of another shape or kind.

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
    """A feature whose values are rows of one shape, as many as each example has.

    Parameters
    ----------
    shape : sequence of int
        Of a row; ``()``: a row is one value.
    dtype : {float32, int64, bytes}
        As in `FixedLenFeature`.
    allow_missing : bool
        Whether a SequenceExample may lack it. `parse_example` wants True.
    default_value : scalar, optional
        With which the examples of a batch are padded to the longest; by default 0 or ``b""``.

    Raises
    ------
    ValueError
        As `FixedLenFeature`.
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
    """A feature of any number of values: a `tundish.Sparse`.

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
    """Values in one feature, where they stand in others: a `tundish.Sparse`.

    Parameters
    ----------
    index_key : str or sequence of str
        The int64 features that say where each value stands, one a dimension.
    value_key : str
        The feature with the values.
    dtype : {float32, int64, bytes}
        Of the values; as in `FixedLenFeature`.
    size : int or sequence of int
        Of each dimension.
    already_sorted : bool
        Whether the values stand in the order of their indices; else they are put into it.

    Raises
    ------
    ValueError
        There is no index, or not as many sizes as indices.
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
    """A rule that cuts values into rows: by another feature of the example, or evenly."""


@dataclass(frozen=True)
class KeyedPartition(Partition):
    """A rule that cuts values into rows by the int64 feature `key`."""

    key: str


@dataclass(frozen=True)
class RowSplits(KeyedPartition):
    """The feature has where each row begins, and at last where the last ends."""


@dataclass(frozen=True)
class RowLengths(KeyedPartition):
    """The feature has how long each row is."""


@dataclass(frozen=True)
class RowStarts(KeyedPartition):
    """The feature has where each row begins."""


@dataclass(frozen=True)
class RowLimits(KeyedPartition):
    """The feature has where each row ends."""


@dataclass(frozen=True)
class ValueRowIds(KeyedPartition):
    """The feature has the number of the row that each value is in; they rise."""


@dataclass(frozen=True)
class UniformRowLength(Partition):
    """Rows of one length."""

    length: int


@dataclass(frozen=True)
class RaggedFeature(Feature):
    """A feature of any number of values, which may be cut into rows: a `tundish.Ragged`.

    Parameters
    ----------
    dtype : {float32, int64, bytes}
        As in `FixedLenFeature`.
    value_key : str, optional
        The feature with the values; by default the one it is asked for by.
    partitions : sequence
        How an example's values are cut into rows, the outermost first: each
        ``RaggedFeature.RowSplits(key)``, ``RowLengths(key)``, ``RowStarts(key)``, ``RowLimits(key)``,
        ``ValueRowIds(key)`` or ``UniformRowLength(length)``.
    row_splits_dtype : {int32, int64}
        Of the `row_splits`.
    validate : bool
        Taken as tf.io takes it; partitions that do not fit are always an error.

    Raises
    ------
    ValueError, TypeError
        A dtype or a partition is none of these.
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
