"""Kinds of leaves, and the Arrow type of each.

A kind is what all rows of a leaf have in common. Two kinds may have a join, the narrowest kind that fits both: arrays of
one shape and arrays of another are arrays of varying shape. A form is widened by joins.

=========  ==========================================  =====================================================
kind       leaf                                        column
=========  ==========================================  =====================================================
fixed      arrays, numbers of one dtype and shape      primitive, ``arrow.fixed_shape_tensor``; null if empty
varying    arrays of one dtype and rank                large list; if not of rank 1 a struct (data, shape)
text       ``str``, ``bytes``                          large string, large binary
objects    object arrays of ``str`` or of ``bytes``    as varying, of large string, large binary
none       None                                        null
=========  ==========================================  =====================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from tundish.errors import SnapshotError, SpecError
from tundish.snapshot.encoding.arrow import (
    Piece,
    carrier,
    inner,
    item_type,
    join_items,
    join_rows,
    list_array,
    list_type,
    text_array,
    text_type,
    values_array,
)
from tundish.snapshot.encoding.columns import (
    BufferMemory,
    Column,
    Constant,
    FixedColumn,
    ObjectsColumn,
    TextColumn,
    VaryingColumn,
)
from tundish.snapshot.encoding.structure import dtype_from_json, dtype_to_json
from tundish.spec import leaf_key, show_key

_LIST_LIMIT = 2**31 - 1  # values that a row of a fixed size list can have
_STORABLE = (
    "a snapshot stores arrays, numbers, str, bytes and None; turn it into these with a `map` before the "
    "snapshot, or move the snapshot before the operator that makes it"
)

ALIKE = (
    "elements of a snapshot have one structure, and only the sizes of a leaf may differ: make them alike with a "
    "`map` before it, such as '' or -1 in place of None"
)


def kind_of(piece: Piece) -> Kind | None:
    """Return the narrowest kind of some rows; None if there are none.

    Raises
    ------
    SpecError
        The rows have no common kind, or are of a type that cannot be stored.
    """
    if isinstance(piece, np.ndarray):
        if piece.dtype != object:
            return _array_kind(piece.dtype, piece.shape[1:]) if len(piece) else None
        if piece.ndim > 1:
            return _objects_kind(piece.ndim - 1, piece.reshape(-1).tolist()) if len(piece) else None
        return kind_of(piece.tolist())
    types = set(map(type, piece))
    if types <= {str}:
        return Text("str", _has_surrogates(piece)) if piece else None
    if types == {bytes}:
        return Text("bytes")
    found: Kind | None = None
    seen: set[Any] = set()
    for value in piece:
        key = leaf_key(value)
        if key in seen:
            continue
        kind = _value_kind(value)
        if not isinstance(kind, Objects):  # of these each has to be looked at
            seen.add(key)
        joined = kind if found is None else found.joined(kind)
        if joined is None:
            raise SpecError(f"one row is {found}, another {kind}; {ALIKE}")
        found = joined
    return found


def _value_kind(value: Any) -> Kind:
    if value is None:
        return Nothing()
    if type(value) is str or type(value) is bytes:
        return Text(type(value).__name__, _has_surrogates([value]))
    if type(value) is np.ndarray or isinstance(value, np.generic):
        if value.dtype == object:
            return _objects_kind(value.ndim, value.reshape(-1).tolist())
        return _array_kind(value.dtype, value.shape)
    raise SpecError(f"it is a {type(value).__module__}.{type(value).__qualname__}; {_STORABLE}")


def _array_kind(dtype: np.dtype, shape: tuple[int, ...]) -> Kind:
    try:
        dtype_to_json(dtype)
    except SpecError as error:
        raise SpecError(f"{error.message}; {_STORABLE}") from None
    if shape and math.prod(shape) * carrier(dtype)[1] > _LIST_LIMIT:
        return Varying(dtype, len(shape))
    return Fixed(dtype, shape)


def _objects_kind(ndim: int, items: list[Any]) -> Kind:
    types = set(map(type, items))
    if not types:
        return Objects(None, ndim)
    if types == {str}:
        return Objects("str", ndim, _has_surrogates(items))
    if types == {bytes}:
        return Objects("bytes", ndim)
    names = ", ".join(sorted(f"{t.__module__}.{t.__qualname__}" for t in types))
    raise SpecError(f"it is an object array of {names.replace('builtins.', '')}; {_STORABLE}")


def _has_surrogates(values: Sequence[Any]) -> bool:
    """Return True if a string has a lone surrogate, which UTF-8 cannot encode."""
    for value in values:
        if not value.isascii() and type(value) is str:
            try:
                value.encode()
            except UnicodeEncodeError:
                return True
    return False


def kind_from_json(told: dict[str, Any]) -> Kind:
    """Return the kind that a file describes.

    Raises
    ------
    SnapshotError
        The kind is unknown to this version.
    """
    kind = told["kind"]
    if kind == "fixed":
        return Fixed(dtype_from_json(told["dtype"]), tuple(told["shape"]))
    if kind == "varying":
        return Varying(dtype_from_json(told["dtype"]), told["ndim"])
    if kind == "text":
        return Text(told["type"], bool(told.get("surrogates")))
    if kind == "objects":
        return Objects(told["type"], told["ndim"], bool(told.get("surrogates")))
    if kind == "none":
        return Nothing()
    raise SnapshotError(
        f"leaves of kind {kind!r} are not known here; use a later tundish to read it"
    )


@dataclass(frozen=True)
class Fixed:
    """Rows of one dtype and shape."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def arrow(self) -> Any:
        """Return the Arrow type of its column."""
        kind, width = carrier(self.dtype)
        if pa.types.is_null(kind) or 0 in self.shape:
            return pa.null()
        if not self.shape and width == 1:
            return kind
        return pa.fixed_shape_tensor(kind, (*self.shape, width) if width > 1 else self.shape)

    def to_json(self) -> dict[str, Any]:
        """Return its description for a file."""
        return {"kind": "fixed", "dtype": dtype_to_json(self.dtype), "shape": list(self.shape)}

    def joined(self, other: Any) -> Kind | None:
        """Return the narrowest kind that fits the rows of both; None if there is none."""
        if self == other:
            return self
        if isinstance(other, Fixed) and self._like(other.dtype, len(other.shape)):
            return Varying(self.dtype, len(self.shape))
        return other.joined(self) if isinstance(other, Varying) else None

    def _like(self, dtype: np.dtype, ndim: int) -> bool:
        return self.dtype == dtype and len(self.shape) == ndim

    def encode(self, pieces: Sequence[Piece]) -> Any:
        """Return the Arrow array of rows of this kind."""
        rows = sum(map(len, pieces))
        arrow = self.arrow
        if pa.types.is_null(arrow):
            return pa.nulls(rows)
        array = join_rows(pieces, self.dtype, self.shape)
        values = values_array(array.reshape(-1))
        if not isinstance(arrow, pa.FixedShapeTensorType):
            return values
        storage = pa.Array.from_buffers(arrow.storage_type, rows, [None], children=[inner(values)])
        return pa.ExtensionArray.from_storage(arrow, storage)

    @property
    def nbytes(self) -> int:
        """The number of bytes of a row."""
        return self.dtype.itemsize * math.prod(self.shape)

    def column(self, array: Any, memory: BufferMemory) -> Column:
        """Return the rows of an Arrow array as a column."""
        return FixedColumn(memory.values(array, self.dtype, (len(array), *self.shape)))

    def __str__(self) -> str:
        return show_key((self.dtype, self.shape))


@dataclass(frozen=True)
class Varying:
    """Rows of one dtype and rank, whose shapes differ."""

    dtype: np.dtype
    ndim: int

    @property
    def arrow(self) -> Any:
        return list_type(item_type(self.dtype), self.ndim)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "varying", "dtype": dtype_to_json(self.dtype), "ndim": self.ndim}

    def joined(self, other: Any) -> Kind | None:
        if isinstance(other, Varying):
            return self if self == other else None
        if isinstance(other, Fixed) and other.dtype == self.dtype and len(other.shape) == self.ndim:
            return self
        return None

    def encode(self, pieces: Sequence[Piece]) -> Any:
        shapes, flat = join_items(pieces, self.dtype, self.ndim)
        return list_array(self.arrow, shapes, values_array(flat))

    def column(self, array: Any, memory: BufferMemory) -> Column:
        items, offsets, shapes = memory.lists(array, self.ndim)
        values = memory.values(items, self.dtype, (len(items),))
        return VaryingColumn(values, offsets, shapes)

    def __str__(self) -> str:
        return f"{self.dtype} ({', '.join(['?'] * self.ndim)})"


@dataclass(frozen=True)
class Text:
    """Rows that are ``str`` or ``bytes``; stored as binary if a string has no UTF-8."""

    type: str
    surrogates: bool = False

    @property
    def arrow(self) -> Any:
        return text_type(self.type, surrogates=self.surrogates)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "text", "type": self.type, **_surrogates(self.surrogates)}

    def joined(self, other: Any) -> Kind | None:
        if isinstance(other, Text) and other.type == self.type:
            return other if other.surrogates else self
        return None

    def encode(self, pieces: Sequence[Piece]) -> Any:
        return text_array(
            [value for piece in pieces for value in piece], self.type, surrogates=self.surrogates
        )

    def column(self, array: Any, memory: BufferMemory) -> Column:
        return _text_column(array, memory, self)

    def __str__(self) -> str:
        return self.type


@dataclass(frozen=True)
class Objects:
    """Rows that are object arrays of ``str`` or ``bytes``; the type is None while all are empty."""

    type: str | None
    ndim: int
    surrogates: bool = False

    @property
    def arrow(self) -> Any:
        return list_type(text_type(self.type, surrogates=self.surrogates), self.ndim)

    def to_json(self) -> dict[str, Any]:
        told = {"kind": "objects", "type": self.type, "ndim": self.ndim}
        return told | _surrogates(self.surrogates)

    def joined(self, other: Any) -> Kind | None:
        if not isinstance(other, Objects) or other.ndim != self.ndim:
            return None
        if other.type is None or other == self:
            return self
        if self.type is None or (self.type == other.type and other.surrogates):
            return other
        return self if self.type == other.type else None

    def encode(self, pieces: Sequence[Piece]) -> Any:
        arrays = [value for piece in pieces for value in piece]
        items = [item for array in arrays for item in array.reshape(-1).tolist()]
        shapes = np.array([a.shape for a in arrays], np.int64).reshape(len(arrays), self.ndim)
        return list_array(
            self.arrow, shapes, text_array(items, self.type, surrogates=self.surrogates)
        )

    def column(self, array: Any, memory: BufferMemory) -> Column:
        items, offsets, shapes = memory.lists(array, self.ndim)
        if shapes is None:
            shapes = [(b - a,) for a, b in pairwise(offsets)]
        return ObjectsColumn(_text_column(items, memory, self), offsets, shapes)

    def __str__(self) -> str:
        return f"an object array of {self.type or 'nothing'}, of {self.ndim} dimension(s)"


@dataclass(frozen=True)
class Nothing:
    """Rows that are all None."""

    @property
    def arrow(self) -> Any:
        return pa.null()

    def to_json(self) -> dict[str, Any]:
        return {"kind": "none"}

    def joined(self, other: Any) -> Self | None:
        return self if self == other else None

    def encode(self, pieces: Sequence[Piece]) -> Any:
        return pa.nulls(sum(map(len, pieces)))

    def column(self, array: Any, memory: BufferMemory) -> Column:
        return Constant()

    def __str__(self) -> str:
        return "None"


Kind: TypeAlias = Fixed | Varying | Text | Objects | Nothing
"""The form that the rows of a leaf have in common."""


def _surrogates(surrogates: bool) -> dict[str, Any]:
    return {"surrogates": True} if surrogates else {}


def _text_column(array: Any, memory: BufferMemory, kind: Text | Objects) -> TextColumn:
    offsets = memory.offsets(array)
    total = offsets[-1]
    data = memory.array(array.buffers()[2], 0, np.dtype(np.uint8), (total,))
    return TextColumn(data, offsets, text=kind.type != "bytes", surrogates=kind.surrogates)
