"""Casting of columns: every value becomes exact or its row an error, never wrapped or cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tundish.calls import check_is
from tundish.formats.tables.overflow import check_kept, in_zone

if TYPE_CHECKING:
    from tundish.formats.tables.columns import Bad

_NO_OBJECT = (OverflowError, ValueError, LookupError, pa.ArrowException)
"""The errors of pyarrow over a value that it cannot make an object of Python."""


@dataclass(frozen=True)
class Kind:
    """The requested type of a column, which is pickled by name, since names do not depend on pyarrow's version.

    Parameters
    ----------
    arrow : pyarrow.DataType
        The type.
    """

    arrow: Any

    def __repr__(self) -> str:
        return str(self.arrow)

    def __tundish_fingerprint__(self) -> str:
        return str(self.arrow)

    def __reduce__(self) -> tuple[Callable[[bytes], Kind], tuple[bytes]]:
        return _kind, (pa.schema([("", self.arrow)]).serialize().to_pybytes(),)


def _kind(written: bytes) -> Kind:
    return Kind(pa.ipc.read_schema(pa.py_buffer(written)).field(0).type)


def check_schema(schema: Any) -> tuple[tuple[str, Kind], ...] | None:
    """Check the argument `schema`; return it as a format stores it.

    Parameters
    ----------
    schema : pyarrow.Schema, mapping of str to dtype, or None
        A dtype is anything numpy accepts as one, ``str``, ``bytes``, or an Arrow type.

    Raises
    ------
    TypeError
        It is something else.
    """
    if schema is None:
        return None
    if isinstance(schema, pa.Schema):
        if len(set(schema.names)) < len(schema):
            raise ValueError(f"schema names a column twice: {', '.join(schema.names)}")
        return tuple([(field.name, Kind(field.type)) for field in schema])
    check_is(schema, Mapping, "schema must be a pyarrow.Schema or a dict of names and dtypes")
    for name in schema:
        check_is(name, str, "schema must have names as keys")
    return tuple([(name, Kind(arrow_type(name, dtype))) for name, dtype in schema.items()])


def arrow_type(name: str, dtype: Any) -> Any:
    """Return the Arrow type of a dtype.

    Raises
    ------
    TypeError
        There is none.
    """
    if isinstance(dtype, pa.DataType):
        return dtype
    if dtype in (str, "str", "string"):
        return pa.string()
    if dtype in (bytes, "bytes", "binary"):
        return pa.binary()
    try:
        found = np.dtype(dtype)
        if found.kind in "US":
            return pa.string() if found.kind == "U" else pa.binary()
        return pa.from_numpy_dtype(found)
    except (TypeError, pa.ArrowException) as problem:
        raise TypeError(
            f"schema[{name!r}] must be a dtype, str or bytes, not {dtype!r}"
        ) from problem


def cast(array: Any, kind: Any, name: str, bad: Bad, *, alone: bool = False) -> Any:
    """Cast a column to another type.

    Parameters
    ----------
    array : pyarrow.Array
        The column.
    kind : pyarrow.DataType
        The type to cast to.
    name : str
        The column's name, for messages.
    bad : dict of int to str
        Receives the rows whose values do not fit the type, with the problem.
    alone : bool
        True if the column is no slice of a longer one.

    Returns
    -------
    pyarrow.Array
        The column, with nulls in those rows.
    """
    if array.type == kind:
        return array
    try:
        made = cast_whole(array, kind)
    except pa.ArrowNotImplementedError as problem:
        for k in range(len(array)):
            bad.setdefault(k, f"column {name!r} is {array.type}, which cannot be {kind}: {problem}")
        return pa.nulls(len(array), kind)
    except (pa.ArrowInvalid, ValueError) as problem:
        if not alone and array.type.num_fields:  # pyarrow casts items of lists beside a slice, too
            return cast(pa.concat_arrays([array, array[:0]]), kind, name, bad, alone=True)
        if len(array) == 1:
            text = str(problem).splitlines()[0]
            given = shown(array.cast(in_zone("UTC", array.type, kind)))
            bad.setdefault(0, f"column {name!r}: {given} is no {kind}: {text}")
            return pa.nulls(1, kind)
        half = len(array) // 2
        late: Bad = {}
        parts = [cast(array[:half], kind, name, bad), cast(array[half:], kind, name, late)]
        for k, text in late.items():
            bad.setdefault(half + k, text)
        return pa.concat_arrays(parts)
    return made


def shown(array: Any) -> str:
    """Return the value of an array of one, for a message; Python has no objects for some times, and no nanoseconds."""
    try:
        return repr(array[0].as_py())
    except _NO_OBJECT:
        pass
    try:
        return repr(array.cast(pa.string())[0].as_py())
    except _NO_OBJECT:
        return "this value"


def cast_whole(array: Any, kind: Any) -> Any:
    """Cast a column whose values all fit.

    Raises
    ------
    pyarrow.ArrowNotImplementedError
        There is no cast between the two types.
    pyarrow.ArrowInvalid, ValueError
        A value does not fit.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_float16(array.type):
        array = _as(np.float64, array)
    array = array.cast(in_zone(None, array.type, kind))  # in UTC: a zone has other days
    if pa.types.is_float16(kind):
        return _halved(array)
    made = array.cast(kind, safe=True)
    check_kept(array, made)
    return made


def _halved(array: Any) -> Any:
    """Return a column as float16. pyarrow casts to it only since version 16, and makes too large integers infinite."""
    if not pa.types.is_floating(array.type):
        array = array.cast(pa.float32(), safe=True)
    made = _as(np.float16, array)
    if np.any(np.isinf(made) & np.isfinite(array)):
        raise ValueError("it is too large")
    return made


def _as(dtype: Any, array: Any) -> Any:
    """Return a column of floats as one of another dtype, with the same nulls."""
    with np.errstate(over="ignore"):
        values = array.to_numpy(zero_copy_only=False).astype(dtype)
    return pa.array(values, mask=array.is_null().to_numpy(zero_copy_only=False))
