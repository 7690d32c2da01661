"""What all comparisons do: leaf by leaf, decide, and say where a condition does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.debugging.entries import Condition, broken, first_of, holds, is_inexact
from tundish.debugging.leaves import (
    NUMBERS,
    TEXTS,
    array_of,
    check_message,
    check_summarize,
    pairs_of,
    show,
)
from tundish.errors import CheckError, CheckTypeError

__all__ = ["Asked", "compare", "decide", "entry"]

ORDERS = frozenset({np.less, np.less_equal, np.greater, np.greater_equal})


@dataclass(frozen=True)
class Asked:
    """Which leaves are compared, and what the caller wants to be told.

    Parameters
    ----------
    path : str
        Of the leaf in x.
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
    """Fail unless a condition holds in all leaves; give back x.

    Parameters
    ----------
    symbol, condition : str, callable
        The condition, for the message and for numpy.
    x, y : array, number or nest
        What is compared.
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
    """Both as numpy compares them: a Python number, or a list of them, takes the other's dtype."""
    a = x if type(x) in NUMBERS else array_of(x, names[0])
    b = y if type(y) in NUMBERS else array_of(y, names[1])
    if isinstance(x, (list, tuple)):
        a = _as_beside(a, b)
    if isinstance(y, (list, tuple)):
        b = _as_beside(b, a)
    if "O" in {np.asarray(a).dtype.kind, np.asarray(b).dtype.kind}:
        a, b = _texts_as_bytes(a), _texts_as_bytes(b)
        if _has_texts(a) != _has_texts(b):
            raise CheckTypeError(
                f"{names[0]} and {names[1]} cannot be compared: only one of them is a text; "
                "checked(..., key=) names the leaf of an element that is meant"
            )
    return a, b


def _has_texts(value: Any) -> bool:
    """Whether there is a text in an array; of an empty one nothing is known, and nothing asked."""
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
    """The condition that does not hold; shapes, dtypes, and the first entries, a line each."""
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
    """One entry for a message; a text in quotes."""
    return repr(value) if isinstance(value, TEXTS) else str(value)
