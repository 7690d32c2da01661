"""The functions of a plan, by name and source location."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.node import OwnFunction, function_name
from tundish.loader.protocols.operator import Operator

if TYPE_CHECKING:
    from types import CodeType


def functions_of(node: Any) -> dict[str, Callable[..., Any]]:
    """Return the user's functions in a node's, or a library function's, fields, by field."""
    found: dict[str, Callable[..., Any]] = {}
    for each in fields(node):
        value = getattr(node, each.name)
        if isinstance(value, OwnFunction):
            inner = functions_of(value)
            found |= {f"{each.name}.{name}": function for name, function in inner.items()}
        elif callable(value) and not isinstance(value, (type, Operator)) and _is_code(value):
            found[each.name] = value
    return found


def _is_code(value: Any) -> bool:
    # A dataset that can be called is none, nor is a source or a spec: they have no code to look at.
    return code_of(value) is not None or inspect.isbuiltin(value) or _is_ufunc(value)


def _is_ufunc(value: Any) -> bool:
    return type(value).__name__ == "ufunc"


def code_of(function: Any) -> CodeType | None:
    """Return a function's code without its wrappers; None if it is not written in Python."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(vars(type(function)).get("__call__"), "__code__", None)
    return code


def named(function: Any, path_length_limit: int | None = None) -> str:
    """Return a function's name and location: ``load (train.py:12)``.

    Examples
    --------
    >>> named(len)
    'len'
    """
    code = code_of(function)
    while isinstance(function, functools.partial):
        function = function.func
    name = function_name(function).rpartition("<locals>.")[2]
    if code is None:
        return name
    return f"{name} ({shortened(code.co_filename, path_length_limit)}:{code.co_firstlineno})"


def shortened(path: str, most: int | None) -> str:
    """Shorten a path to its last `most` characters.

    Examples
    --------
    >>> shortened("/home/someone/train.py", 11)
    '...train.py'
    """
    if most is None or len(path) <= most:
        return path
    return "..." + path[len(path) - max(0, most - 3) :]
