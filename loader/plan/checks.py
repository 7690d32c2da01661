"""Arguments, checked when a pipeline is built: what it was and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np

from tundish.calls import check_is

LARGEST = 2**63 - 1
"""Of numbers that arrays are made by."""


def check_count(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """An int argument, checked when the pipeline is built.

    Raises
    ------
    TypeError
        Not an integer (a bool is none).
    ValueError
        Smaller than `least`, or larger than `most`.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, not {type(value).__name__} ({value!r})")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """A bool: 4 in its place is an argument meant for another parameter."""
    check_is(value, (bool, np.bool_), f"{name} must be a bool")
    return bool(value)


def check_optional_flag(name: str, value: Any) -> bool | None:
    """A bool or None."""
    check_is(value, (bool, np.bool_, NoneType), f"{name} must be a bool or None")
    return None if value is None else bool(value)


def check_word(name: str, value: Any, allowed: Sequence[str]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def check_text(name: str, value: Any) -> str:
    """A str."""
    return check_is(value, str, f"{name} must be a str")


def check_items(name: str, value: Any, what: str) -> list[Any]:
    """A list of things, as a list: lists, tuples, ranges and arrays of one dimension are."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = list(value)
    check_is(value, (list, tuple, range), f"{name} must be a list of {what}")
    return list(value)


def check_options(name: str, value: Any) -> Mapping[str, Any] | None:
    """A dict of options."""
    checked: Mapping[str, Any] | None = check_is(
        value, (Mapping, NoneType), f"{name} must be a dict"
    )
    return checked


def check_counts(name: str, value: Any, *, least: int | None = None) -> tuple[int, ...]:
    """Ints in a list or the like."""
    return tuple(
        [check_count(name, each, least=least) for each in check_items(name, value, "ints")]
    )


def check_seed(seed: Any) -> int | None:
    """A seed: None or an int of at most 64 bits."""
    if seed is None:
        return None
    checked = check_count("seed", seed)
    if not -(2**63) <= checked < 2**64:
        raise ValueError(f"seed must fit 64 bits, not {checked}")
    return checked


def check_callable(name: str, function: Any) -> Callable[..., Any]:
    """A function argument, checked when the pipeline is built."""
    if not callable(function):
        raise TypeError(f"{name} must be callable, not {type(function).__name__} ({function!r})")
    checked: Callable[..., Any] = function
    return checked
