"""Comparison of a result of ours with the one that tf.data recorded."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from tundish import errors

FAMILIES: dict[str, tuple[type[BaseException], ...]] = {
    "InvalidArgumentError": (ValueError, TypeError, IndexError, ArithmeticError, OSError),
    "OutOfRangeError": (IndexError,),
    "DataLossError": (ValueError,),
    "UnknownError": (Exception,),
    "NotFoundError": (FileNotFoundError, LookupError),
    "IndexError": (IndexError, ValueError),
    "AlreadyExistsError": (FileExistsError,),
    "FailedPreconditionError": (ValueError, RuntimeError, TypeError),
    "UnimplementedError": (NotImplementedError, TypeError),
    "InternalError": (RuntimeError, ValueError, TypeError),
    "CRASH": (),
    "TypeError": (TypeError, errors.SpecError),
    "ValueError": (ValueError, TypeError),
    "AttributeError": (AttributeError, TypeError, ValueError),
    "StopIteration": (StopIteration,),
}
"""Which errors of ours an error of tf.data may be: where it has its own classes, Python's."""


def same(expected: Any, got: Any) -> bool:
    """Return True if two plain results are equal: numbers as numbers, errors by their families."""
    if isinstance(expected, dict) and "error" in expected:
        return isinstance(got, dict) and same_error(expected["error"], got.get("error"))
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and sorted(expected) == sorted(got)
            and all(same(inner, got[key]) for key, inner in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(expected) == len(got)
            and all(same(a, b) for a, b in zip(expected, got, strict=True))
        )
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, (int, float)) and isinstance(got, (int, float)):
        return same_number(expected, got)
    return bool(type(expected) is type(got) and expected == got)


def same_number(expected: float, got: float) -> bool:
    """Equal; or equal as float32, where that is what tf.data had."""
    if expected == got or (expected != expected and got != got):  # noqa: PLR0124 - NaN
        return True
    if isinstance(expected, int) or not isinstance(got, float):
        return False
    with np.errstate(over="ignore"):
        return float(np.float32(expected)) == expected == float(np.float32(got))


def same_error(expected: str, got: Any) -> bool:
    """Return True if an error of ours, by its name, is of the family of tf.data's."""
    if not isinstance(got, str):
        return False
    kind = getattr(errors, got, None) or getattr(builtins, got, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return expected == got
    return issubclass(kind, FAMILIES.get(expected, ()))
