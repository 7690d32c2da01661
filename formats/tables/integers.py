"""Integers beyond int64, of which pyarrow makes floats where it infers types: different ones would become equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

_BEYOND = 2.0**63
_INTEGER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_LONG = re.compile(r"\s*([+-]?)0*(\d{19,})\s*", re.ASCII)


def may_have_wide(array: Any) -> bool:
    """Return True if a column has floats so large that they may be integers beyond int64, also in lists and structs."""
    kind = array.type
    if pa.types.is_struct(kind):
        return any(map(may_have_wide, array.flatten()))
    if pa.types.is_list(kind):
        return may_have_wide(array.flatten())
    if not pa.types.is_float64(kind):
        return False
    least, most = pc.min_max(array).as_py().values()
    return least is not None and (least <= -_BEYOND or most >= _BEYOND)


def is_wide(number: int) -> bool:
    """Return True for an integer beyond int64."""
    return not -(2**63) <= number < 2**63


def type_of_texts(name: str, column: Callable[[str, Any], Any], nulls: Sequence[str] | None) -> Any:
    """Return the type of a column of large numbers: that of integers if all are integers, and some beyond int64.

    Parameters
    ----------
    name : str
        The column's name.
    column : callable
        Reads a column by its name, as a type.
    nulls : sequence of str or None
        The texts that stand for null; None: pyarrow's.

    Raises
    ------
    ValueError
        They are, and uint64 does not hold all of them.
    """
    missing = {None, "", *(pv.ConvertOptions().null_values if nulls is None else nulls)}
    texts = [text for text in column(name, pa.string()).to_pylist() if text not in missing]
    if not all(map(_INTEGER.fullmatch, texts)):
        return pa.float64()
    wide = next((text for text in texts if _is_wide(text)), None)
    if wide is None:
        return pa.float64()
    try:
        column(name, pa.uint64())
    except pa.ArrowInvalid:
        remedy = (
            f"schema={{{name!r}: 'str'}} reads text, schema={{{name!r}: 'float64'}} rounded numbers"
        )
        raise ValueError(unfit(name, wide, remedy)) from None
    return pa.uint64()


def _is_wide(text: str) -> bool:
    found = _LONG.fullmatch(text)
    return found is not None and (len(found[2]) > 19 or is_wide(int(found[1] + found[2])))


def unfit(name: str, text: str, remedy: str) -> str:
    """Return the message about a column that no type of integers holds.

    Parameters
    ----------
    name : str
        The column's name.
    text : str
        One of the integers beyond int64, as the file has it.
    remedy : str
        The advice at the end.
    """
    return (
        f"column {name!r} has integers beyond int64, such as {text.strip()[:40]}, and one that is not "
        f"of uint64: {remedy}"
    )
