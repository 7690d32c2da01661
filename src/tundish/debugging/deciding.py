"""Evaluation of comparisons: leaf by leaf, in one pass, with the entries that fail.

Nothing of an array's size is made while the condition holds: against one number an array's least
or largest entry decides, and two arrays are compared in pieces that stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.debugging.leaves import (
    NUMBERS,
    TEXTS,
    array_of,
    check_message,
    check_summarize,
    pairs_of,
    show,
)
from tundish.debugging.partitions import misplaced
from tundish.errors import CheckError, CheckTypeError

Condition = Callable[..., Any]
"""A comparison of arrays that broadcast; returns where it holds."""

PIECE = 1 << 17
"""Entries at a time."""

_EXTREME = {
    np.less: np.maximum,
    np.less_equal: np.maximum,
    np.greater: np.minimum,
    np.greater_equal: np.minimum,
}
_MIRRORED = {
    np.less: np.greater,
    np.less_equal: np.greater_equal,
    np.greater: np.less,
    np.greater_equal: np.less_equal,
}


def holds(condition: Condition, *operands: Any) -> bool:
    """Return True if a condition holds for every entry.

    Parameters
    ----------
    condition : callable
        A numpy comparison, or another function of arrays.
    *operands : array or number
        They broadcast; a Python number takes the dtype of the others.

    Raises
    ------
    ValueError
        The shapes do not broadcast.
    TypeError
        The dtypes cannot be compared.
    """
    if math.prod([getattr(operand, "size", 1) for operand in operands]) <= PIECE:
        return bool(np.all(condition(*operands)))
    shape = np.broadcast_shapes(*[np.shape(operand) for operand in operands])
    if math.prod(shape) <= PIECE:
        return bool(np.all(condition(*operands)))
    if condition in _EXTREME:
        x, y = operands
        if np.ndim(x) == 0:
            condition, x, y = _MIRRORED[condition], y, x
        if np.ndim(y) == 0 and _has_quick_extremes(x):
            return bool(condition(_EXTREME[condition].reduce(x, axis=None), y))
        operands = x, y
    arrays = [np.asarray(x, _weak_dtype(x, operands)) for x in operands]
    return all(bool(np.all(condition(*parts))) for parts in pieces(*arrays))


def is_inexact(dtype: np.dtype) -> bool:
    """Return True if a dtype has nan: floats and complex numbers, ml_dtypes' floats too."""
    return dtype.kind in "fc" or (dtype.kind == "V" and "float" in dtype.name)


def _has_quick_extremes(x: Any) -> bool:
    """Return False for floats of 16 bits, whose extremes numpy finds slowly. A nan is the extreme."""
    return x.dtype.kind in "iumM" or (x.dtype.kind == "f" and x.dtype.itemsize > 2)


def _weak_dtype(x: Any, operands: tuple[Any, ...]) -> np.dtype | None:
    """Return the float dtype that a Python number takes beside floats, as in numpy's functions; else None."""
    if type(x) not in {int, float}:
        return None
    others = [o.dtype for o in operands if isinstance(o, (np.ndarray, np.generic))]
    return next((dtype for dtype in others if is_inexact(dtype)), None)


def pieces(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield arrays that broadcast, in pieces of at most `PIECE` entries, in the order of memory."""
    if all(array.flags.c_contiguous for array in arrays) and len({a.shape for a in arrays}) == 1:
        flat = [array.reshape(-1) for array in arrays]
        for first in range(0, flat[0].size, PIECE):
            yield tuple([array[first : first + PIECE] for array in flat])
        return
    flags: Any = ["external_loop", "buffered", "refs_ok", "zerosize_ok"]
    found: Any = np.nditer(arrays, flags=flags, order="K", buffersize=PIECE)
    for parts in found:
        yield parts if isinstance(parts, tuple) else (parts,)


def broken(condition: Condition, *operands: Any) -> np.ndarray:
    """Return where a condition does not hold: a bool for every entry of the broadcast shape."""
    shape = np.broadcast_shapes(*[np.shape(operand) for operand in operands])
    return np.broadcast_to(~np.asarray(condition(*operands), bool), shape)


def first_of(mask: np.ndarray, most: int | None) -> tuple[tuple[int, ...], ...]:
    """Return indices of the first true entries, in C order; all of them if `most` is None."""
    flat = mask.reshape(-1)
    places: list[int] = []
    for first in range(0, flat.size, PIECE):
        if most is not None and len(places) >= most:
            break
        places += (np.flatnonzero(flat[first : first + PIECE]) + first).tolist()
    found = np.unravel_index(places[:most], mask.shape) if mask.ndim and places[:most] else ()
    if not mask.ndim:
        return ((),) if places[:most] else ()
    return tuple(tuple(int(i) for i in index) for index in zip(*found, strict=True))


ORDERS = frozenset({np.less, np.less_equal, np.greater, np.greater_equal})


@dataclass(frozen=True)
class Asked:
    """The leaves that are compared, and the caller's message options.

    Parameters
    ----------
    path : str
        The path of the leaf in x.
    sides : tuple of (name, value)
        What is shown: x, and y unless it is a number that stands in the condition.
    message : str
        The caller's.
    most : int or None
        How many entries are shown; None for all.
    """

    path: str
    sides: tuple[tuple[str, Any], ...]
    message: str
    most: int | None


def compare(
    symbol: str, condition: Condition, x: Any, y: Any, told: tuple[str | None, int | None]
) -> Any:
    """Raise unless a condition holds in all leaves; return x.

    Parameters
    ----------
    symbol, condition : str, callable
        The condition, for the message and for numpy.
    x, y : array, number or nest
        The values to compare.
    told : tuple
        `message` and `summarize`, as they were given.
    """
    message, most = check_message(told[0]), check_summarize(told[1])
    for path, beside, first, second in pairs_of(x, y):
        literal = isinstance(second, (*NUMBERS, *TEXTS))
        names = f"x{path}", repr(second) if literal else f"y{beside}"
        text = f"{names[0]} {symbol} {names[1]}"
        operands = _operands(first, second, names)
        if condition in ORDERS and any(np.asarray(o).dtype.kind == "c" for o in operands):
            raise CheckTypeError(f"complex numbers have no order: {text}", message, path)
        sides = ((names[0], first), (names[1], second))[: 2 - literal]
        decide(text, condition, operands, Asked(path, sides, message, most))
    return x


def _operands(x: Any, y: Any, names: tuple[str, str]) -> tuple[Any, Any]:
    """Convert operands as numpy compares them: a Python number, or a list of them, takes the other's dtype."""
    a = x if type(x) in NUMBERS else array_of(x, names[0])
    b = y if type(y) in NUMBERS else array_of(y, names[1])
    if isinstance(x, (list, tuple)):
        a = _as_beside(a, b)
    if isinstance(y, (list, tuple)):
        b = _as_beside(b, a)
    if type(b) is int and isinstance(a, np.ndarray) and a.dtype.kind == "m":
        b = np.array(b).astype(a.dtype)  # numpy 1 does not compare them
    if "O" in {np.asarray(a).dtype.kind, np.asarray(b).dtype.kind}:
        a, b = _texts_as_bytes(a), _texts_as_bytes(b)
        if _has_texts(a) != _has_texts(b):
            raise CheckTypeError(
                f"{names[0]} and {names[1]} cannot be compared: only one of them is a text; "
                "checked(..., key=) names the leaf of an element that is meant"
            )
    return a, b


def _has_texts(value: Any) -> bool:
    """Return True if an array contains text; False for an empty one."""
    array = np.asarray(value)
    return array.dtype.kind == "O" and (not array.size or any(type(e) is bytes for e in array.flat))


def _as_beside(numbers: np.ndarray, other: Any) -> np.ndarray:
    floats = isinstance(other, np.ndarray) and is_inexact(other.dtype)
    return numbers.astype(other.dtype) if floats and numbers.dtype.kind in "iuf" else numbers


def _texts_as_bytes(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "O":
        return value
    made = np.empty(value.shape, object)
    made.reshape(-1)[:] = [e.encode() if isinstance(e, str) else e for e in value.reshape(-1)]
    return made


def decide(text: str, condition: Condition, operands: tuple[Any, ...], asked: Asked) -> None:
    """Raise unless the condition holds for every entry of operands that broadcast."""
    apart = misplaced(*[value for _, value in asked.sides]) if len(asked.sides) == 2 else None
    if apart is not None:
        raise CheckError(
            f"{text} cannot be asked: {apart}",
            asked.message,
            asked.path,
            details=tuple(f"{name}: {show(value)}" for name, value in asked.sides),
        )
    try:
        with np.errstate(invalid="ignore"):  # ml_dtypes warn of nan
            if holds(condition, *operands):
                return
            mask = broken(condition, *operands)
    except TypeError as problem:  # numpy has no loop for such dtypes
        kinds = ", ".join(f"{name} is {show(value)}" for name, value in asked.sides)
        raise CheckTypeError(
            f"{text} cannot be asked: {kinds}", asked.message, asked.path
        ) from problem
    except ValueError as problem:
        shapes = " and ".join(
            f"{name} {np.shape(o)}" for (name, _), o in zip(asked.sides, operands, strict=False)
        )
        raise CheckError(
            f"{text} cannot be asked: the shapes do not broadcast: {shapes}",
            asked.message,
            asked.path,
        ) from problem
    indices = first_of(mask, asked.most)
    problem_text, details = _describe(text, mask, indices, asked)
    raise CheckError(problem_text, asked.message, asked.path, indices, details)


def _describe(
    text: str, mask: np.ndarray, indices: tuple[tuple[int, ...], ...], asked: Asked
) -> tuple[str, tuple[str, ...]]:
    """Return the failed condition, and lines with shapes, dtypes and the first failing entries."""
    arrays = [np.broadcast_to(array_of(value, name), mask.shape) for name, value in asked.sides]
    if not mask.ndim:
        lines = [
            f"{name}: {entry(array[()])}, {show(value)}"
            for (name, value), array in zip(asked.sides, arrays, strict=True)
        ]
        return f"{text} does not hold", tuple(lines)
    count = int(np.count_nonzero(mask))
    lines = [", ".join(f"{name}: {show(value)}" for name, value in asked.sides)]
    lines += [f"at {list(i)}: {', '.join(entry(array[i]) for array in arrays)}" for i in indices]
    if 0 < len(indices) < count:
        lines.append(f"and {count - len(indices):,} more")
    entries = "entry" if mask.size == 1 else "entries"
    return f"{text} does not hold for {count:,} of {mask.size:,} {entries}", tuple(lines)


def entry(value: Any) -> str:
    """Return an entry for a message; text in quotes."""
    return repr(value) if isinstance(value, TEXTS) else str(value)
