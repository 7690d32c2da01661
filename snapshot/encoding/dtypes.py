"""Numpy's dtypes in JSON, and what Arrow stores in their place.

Arrow has no complex numbers, structures, big-endian numbers, bfloat16 and so on. What it stores is the
*carrier*: an Arrow type of the same bytes, reached by a view and never by a conversion, so that every bit
comes back.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

import numpy as np
import pyarrow as pa

from tundish.errors import SnapshotError, SpecError

__all__ = ["carrier", "dtype_from_json", "dtype_to_json"]

_EXTENSIONS = ("ml_dtypes",)  # packages whose dtypes are stored by name
_FIRST_OF_OTHERS = 256  # below it are numpy's own; `isbuiltin` is not said of one that was pickled
_UNSIGNED = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}


def dtype_to_json(dtype: np.dtype) -> Any:
    """Describe a dtype exactly: units, byte order, offsets, padding, titles.

    Raises
    ------
    SpecError
        It holds Python objects, or there is no way to describe it.
    """
    told: Any
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        told = {"base": dtype_to_json(base), "shape": list(shape)}
    elif dtype.names is not None:
        told = _structure(dtype)
    elif (package := dtype.type.__module__.partition(".")[0]) in _EXTENSIONS:
        told = {"package": package, "name": dtype.name}
        if dtype.byteorder == ">":
            told["order"] = ">"
    else:
        told = dtype.str
        if not _same(dtype, told):  # longlong, where int64 is another name of long
            told = dtype.byteorder.replace("=", "") + dtype.char
    if dtype.hasobject or not _same(dtype, told):
        raise SpecError(f"a snapshot cannot store the dtype {dtype!r}")
    return told


def _structure(dtype: np.dtype) -> dict[str, Any]:
    fields = []
    for name in cast("tuple[str, ...]", dtype.names):
        field, offset, *title = cast("Any", dtype.fields)[name]
        fields.append([name, dtype_to_json(field), offset, *title])
    told: dict[str, Any] = {"fields": fields, "itemsize": dtype.itemsize}
    if dtype.isalignedstruct:
        told["aligned"] = True
    if dtype.type is np.record:
        told["record"] = True
    return told


def _same(dtype: np.dtype, told: Any) -> bool:
    """Whether a description gives the dtype; None is equal to float64 for numpy, so ask the type too."""
    try:
        made = dtype_from_json(told)
    except (SnapshotError, TypeError, ValueError):
        return False
    return made == dtype and made.type is dtype.type and made.itemsize == dtype.itemsize


def dtype_from_json(told: Any) -> np.dtype:
    """Make the dtype that was described.

    Raises
    ------
    SnapshotError
        The package that has it cannot be imported.
    """
    if isinstance(told, str):
        return np.dtype(told)
    if "base" in told:
        return np.dtype((dtype_from_json(told["base"]), tuple(told["shape"])))
    if "fields" in told:
        fields = told["fields"]
        parts: dict[str, Any] = {
            "names": [field[0] for field in fields],
            "formats": [dtype_from_json(field[1]) for field in fields],
            "offsets": [field[2] for field in fields],
            "itemsize": told["itemsize"],
        }
        if any(len(field) > 3 for field in fields):
            parts["titles"] = [field[3] if len(field) > 3 else None for field in fields]
        made = np.dtype(cast("Any", parts), align=bool(told.get("aligned")))
        return np.dtype((np.record, made)) if told.get("record") else made
    package, name = told["package"], told["name"]
    if package not in _EXTENSIONS:
        raise SnapshotError(f"the snapshot holds a dtype of {package!r}, which is not known here")
    try:
        found: np.dtype = np.dtype(getattr(importlib.import_module(package), name))
    except (ImportError, AttributeError) as problem:
        raise SnapshotError(
            f"the snapshot holds {package}.{name}, and here is none ({problem}); install {package}"
        ) from problem
    return found.newbyteorder(told["order"]) if "order" in told else found


def carrier(dtype: np.dtype) -> tuple[pa.DataType, int]:
    """What Arrow stores in place of a dtype: the type, and how many of it an item takes.

    Returns
    -------
    pyarrow.DataType
        Null where items have no bytes.
    int
        1 where an item is one value of it.

    Examples
    --------
    >>> carrier(np.dtype("complex64")), carrier(np.dtype(">i4")), carrier(np.dtype("S5"))
    ((DataType(float), 2), (DataType(uint32), 1), (DataType(uint8), 5))
    """
    size = dtype.itemsize
    if size == 0:
        return pa.null(), 1
    if dtype.isnative and dtype.num < _FIRST_OF_OTHERS and dtype.names is None:
        if dtype.kind in "iuf" and size <= 8:
            return pa.from_numpy_dtype(dtype), 1
        if dtype.kind == "c" and size <= 16:
            return pa.from_numpy_dtype(np.dtype(f"f{size // 2}")), 2
    if dtype.kind in "mM" and dtype.isnative:
        return pa.int64(), 1
    if size in _UNSIGNED:
        return _UNSIGNED[size], 1
    return pa.uint8(), size
