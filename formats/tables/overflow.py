"""Values that pyarrow casts to other ones without an error, such as floats that become infinite in a narrower type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def check_kept(array: Any, made: Any) -> None:
    """Check that no value has become another one by a cast, also in lists and structs.

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
                check_kept(given[field.name], column)
    elif _is_list(kind) and _is_list(made.type):
        check_kept(array.flatten(), made.flatten())
    elif types.is_floating(kind) and types.is_floating(made.type):
        if pc.any(pc.and_(pc.is_finite(array), pc.is_inf(made))).as_py():
            raise ValueError("it is too large")
    elif types.is_boolean(made.type) and (types.is_integer(kind) or types.is_floating(kind)):
        if pc.any(pc.invert(pc.or_(pc.equal(array, 0), pc.equal(array, 1)))).as_py():
            raise ValueError("only 0 and 1 are")
    elif types.is_timestamp(kind) and types.is_date(made.type):
        plain = pa.timestamp(kind.unit)
        if pc.any(pc.not_equal(array.cast(plain), made.cast(plain))).as_py():
            raise ValueError("it has a time of day")


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def in_zone(zone: str | None, kind: Any, made: Any) -> Any:
    """Return a type with times in another zone where they have one and become dates, also in lists and structs.

    Parameters
    ----------
    zone : str or None
        The zone.
    kind, made : pyarrow.DataType
        The type, and what it is cast to.
    """
    types = pa.types
    if types.is_dictionary(kind) and types.is_date(made):
        return in_zone(zone, kind.value_type, made)
    if types.is_timestamp(kind) and kind.tz is not None and types.is_date(made):
        return pa.timestamp(kind.unit, zone)
    if types.is_struct(kind) and types.is_struct(made):
        asked = {field.name: field.type for field in made}
        fields = [(field, asked.get(field.name, field.type)) for field in kind]
        return pa.struct([f.with_type(in_zone(zone, f.type, to)) for f, to in fields])
    if _is_list(kind) and _is_list(made):
        item = kind.value_field.with_type(in_zone(zone, kind.value_type, made.value_type))
        if types.is_large_list(kind):
            return pa.large_list(item)
        return pa.list_(item, getattr(kind, "list_size", -1))
    return kind


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
