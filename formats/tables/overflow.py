"""Floats that are too large for a narrower type, in which they would be infinite."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def check_finite(array: Any, made: Any) -> None:
    """Check that no finite float has become infinite in a narrower type, also in lists and structs.

    Raises
    ------
    ValueError
        One has.
    """
    kind, types = array.type, pa.types
    if kind == made.type:
        return
    if types.is_struct(kind) and types.is_struct(made.type):
        given = dict(zip([field.name for field in kind], array.flatten(), strict=True))
        for field, column in zip(made.type, made.flatten(), strict=True):
            if field.name in given:
                check_finite(given[field.name], column)
    elif _is_list(kind) and _is_list(made.type):
        check_finite(array.flatten(), made.flatten())
    elif (
        types.is_floating(kind)
        and types.is_floating(made.type)
        and pc.any(pc.and_(pc.is_finite(array), pc.is_inf(made))).as_py()
    ):
        raise ValueError("it is too large")


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def has_infinite(array: Any) -> bool:
    """Return True if a column has an infinite float32, also in lists and structs."""
    kind = array.type
    if pa.types.is_struct(kind):
        return any(map(has_infinite, array.flatten()))
    if _is_list(kind):
        return has_infinite(array.flatten())
    return bool(pa.types.is_float32(kind) and pc.any(pc.is_inf(array)).as_py())


def widened(kind: Any) -> Any:
    """Return a type with float64 in place of float32, also in lists and structs."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, widened(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(widened(kind.value_type))
    return pa.float64() if pa.types.is_float32(kind) else kind
