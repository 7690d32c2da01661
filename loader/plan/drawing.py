"""The match between functions that take `rng` and operators that pass it, checked when a pipeline is built."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

from tundish.loader.plan.node import function_name
from tundish.loader.plan.safe_introspection import defined, is_of

RNG = "rng"
"""The keyword of a function's random generator."""

_REMEDY = "only seed= passes one, as in map(map_func, seed=1): give seed=, or give rng a default"
_ELSEWHERE = "only map passes one: draw in a map before it, as in map(map_func, seed=1), or give rng a default"
_TOLD = (FunctionType, MethodType, BuiltinFunctionType, MethodDescriptorType)
_STARS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)

Count = Callable[[], int | None]
"""Returns the number of arguments that an element is for a function; None if the plan does not tell."""


def check_drawing(
    function: Callable[..., Any],
    seed: int | None,
    count: Count,
    name: str = "map_func",
    *,
    seeded: bool = True,
) -> None:
    """Raise if a function needs `rng` and gets none, or gets one and cannot take it.

    A function without a signature (many builtins) passes, and so does a decorated one, since its wrapper decides what to
    pass on.

    Parameters
    ----------
    function : callable
        The function of an element.
    seed : int or None
        None if it is called without `rng`.
    count : callable
        Returns the number of arguments that `function` is called with; called only if the answer matters.
    name : str
        The name of the argument that is the function.
    seeded : bool
        True if the operator takes ``seed``; `filter`, `flat_map` and `interleave` do not.

    Raises
    ------
    TypeError
        The function does not match; the message says what to change.
    """
    if seed is not None:
        found = _parameters(function)
        if found is not None and not _takes(found):
            raise TypeError(
                f"seed={seed} passes a generator as rng=, and {name} {_shown(function, found)} takes none: "
                "give it a parameter rng, or leave out seed="
            )
    elif not _is_plain(function):
        found = _parameters(function)
        if found is not None and _is_short_of(found, count):
            remedy = _REMEDY if seeded else _ELSEWHERE
            raise TypeError(f"{name} {_shown(function, found)} needs rng; {remedy}")


def explain_missing_rng(error: Exception) -> None:
    """Add advice to the error of a call that failed because `rng` was missing.

    For elements whose number of arguments the plan does not tell.
    """
    if type(error) is not TypeError or not str(error).endswith(f"'{RNG}'"):
        return
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is not None and last.tb_frame.f_globals.get("__name__", "").startswith("tundish."):
        error.args = (f"{error}; {_REMEDY}",)


def _is_plain(function: Callable[..., Any]) -> bool:
    """Return True for a plain Python function without a parameter `rng`, as most functions are."""
    if type(function) is not FunctionType:
        return False
    code = function.__code__
    return RNG not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _parameters(function: Callable[..., Any]) -> Mapping[str, Parameter] | None:
    """Return a function's parameters without running any user code; None if they are unknown."""
    called: Any = function.func if type(function) is functools.partial else function
    if not is_of(called, *_TOLD):
        own = defined(type(called), "__call__")
        if type(own) is not FunctionType or type(function) is functools.partial:
            return None
        function = MethodType(own, called)
    try:
        return inspect.signature(function, follow_wrapped=False).parameters
    except (TypeError, ValueError):  # C code that does not say it, or a partial of too much
        return None


def _takes(parameters: Mapping[str, Parameter]) -> bool:
    named = parameters.get(RNG)
    if named is not None and named.kind in _BY_NAME:
        return True
    return any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())


def _is_short_of(parameters: Mapping[str, Parameter], count: Count) -> bool:
    """Return True if `rng` is required and no component of an element can be it."""
    named = parameters.get(RNG)
    if named is None or named.default is not Parameter.empty or named.kind not in _BY_NAME:
        return False
    if named.kind is Parameter.KEYWORD_ONLY:
        return True
    at = list(parameters).index(RNG)
    if not at:  # the element itself
        return False
    given = count()
    return given is not None and given <= at


def _shown(function: Callable[..., Any], parameters: Mapping[str, Parameter]) -> str:
    name = function_name(function).rpartition("<locals>.")[2]
    return f"{name}({', '.join(map(_spelt, parameters.values()))})"


def _spelt(parameter: Parameter) -> str:
    return _STARS.get(parameter.kind, "") + parameter.name
