"""Checks of arguments when a pipeline is built; errors name the value and what is allowed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType, NoneType
from typing import Any

import numpy as np

from tundish.calls import check_is

LARGEST = 2**63 - 1
"""The largest number that may size an array."""


def check_count(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """Check an int argument.

    Raises
    ------
    TypeError
        It is not an integer (a bool is not one).
    ValueError
        It is smaller than `least`, or larger than `most`.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, not {type(value).__name__} ({value!r})")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """Check a bool argument: an int in its place was meant for another parameter."""
    check_is(value, (bool, np.bool_), f"{name} must be a bool")
    return bool(value)


def check_optional_flag(name: str, value: Any) -> bool | None:
    """Check an argument that is a bool or None."""
    check_is(value, (bool, np.bool_, NoneType), f"{name} must be a bool or None")
    return None if value is None else bool(value)


def check_word(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Check an argument that is one of several words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def check_text(name: str, value: Any) -> str:
    """Check an argument that is a str."""
    return check_is(value, str, f"{name} must be a str")


def check_items(name: str, value: Any, what: str) -> list[Any]:
    """Check an argument that is a list, tuple, range or one-dimensional array; return it as a list."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = list(value)
    check_is(value, (list, tuple, range), f"{name} must be a list of {what}")
    return list(value)


def check_options(name: str, value: Any) -> Mapping[str, Any] | None:
    """Check an argument that is a dict of options."""
    checked: Mapping[str, Any] | None = check_is(
        value, (Mapping, NoneType), f"{name} must be a dict"
    )
    return checked


def check_counts(name: str, value: Any, *, least: int | None = None) -> tuple[int, ...]:
    """Check an argument that is a sequence of ints."""
    return tuple(
        [check_count(name, each, least=least) for each in check_items(name, value, "ints")]
    )


def check_seed(seed: Any) -> int | None:
    """Check a seed: None or an int of at most 64 bits."""
    if seed is None:
        return None
    checked = check_count("seed", seed)
    if not -(2**63) <= checked < 2**64:
        raise ValueError(f"seed must fit 64 bits, not {checked}")
    return checked


def check_callable(name: str, function: Any) -> Callable[..., Any]:
    """Check an argument that is a function, and not an asynchronous one, whose result nobody would await."""
    if not callable(function):
        raise TypeError(f"{name} must be callable, not {type(function).__name__} ({function!r})")
    for called in _called(function):
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError(
                f"{name} is asynchronous ({function!r}), and nothing awaits its result; give a plain "
                "function, which may call asyncio.run"
            )
    checked: Callable[..., Any] = function
    return checked


def check_function(name: str, function: Any) -> Callable[..., Any]:
    """Check a function whose result is used directly; a generator function would give an iterator, which is always true."""
    checked = check_callable(name, function)
    if any(map(inspect.isgeneratorfunction, _called(function))):
        raise TypeError(
            f"{name} is a generator function ({function!r}), and its result is an iterator, not what it yields; give a "
            "function that returns, or use flat_map for several elements of one"
        )
    return checked


def _called(function: Any) -> tuple[Any, Any]:
    """Return the function of a callable, to see its kind. An object's attributes are not read: it may be a proxy."""
    alone = issubclass(type(function), (FunctionType, MethodType, partial))
    return function if alone else None, type(function).__call__
