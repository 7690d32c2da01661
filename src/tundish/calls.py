"""The border of a public class: what is said of a call that went wrong, once for all its methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from tundish.misspelt import did_you_mean
from tundish.tracebacks import hide_frames

__all__ = ["answering"]

C = TypeVar("C", bound=type)


def answering(cls: C) -> C:
    """Make the public methods of a class, and its constructor, say what was wrong with a call.

    An argument that there is not names the one that was meant, and a traceback ends at the method that was called.
    Methods that a class has of others' are answered for here, too; those classes stay as they are.

    Parameters
    ----------
    cls : type
        The class; it is changed.
    """
    for name in dir(cls):
        if not name.startswith("_") or (name == "__init__" and name in vars(cls)):
            owner = next(base for base in cls.__mro__ if name in vars(base))
            found = vars(owner)[name]
            if isinstance(found, FunctionType):
                setattr(cls, name, _answered(found, cls))
            elif isinstance(found, (classmethod, staticmethod)):
                setattr(cls, name, type(found)(_answered(found.__func__, cls)))
    return cls


def _answered(function: Any, cls: type) -> Callable[..., Any]:
    if hasattr(function, "__wrapped__"):  # of a class above: it is answered for
        return function  # type: ignore[no-any-return]  # see above
    kind, tell = Exception, _tell

    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except kind as error:
            tell(error, function, cls, given)
            raise

    # It shows in tracebacks, and to those who look at functions, as what it calls.
    code = call.__code__.replace(co_name=function.__name__, co_qualname=function.__qualname__)
    made = FunctionType(code, function.__globals__, function.__name__, None, call.__closure__)
    return functools.update_wrapper(made, function)


def _tell(error: Exception, function: Callable[..., Any], cls: type, given: dict[str, Any]) -> None:
    begun = error.__traceback__
    if type(error) is TypeError and begun is not None and begun.tb_next is None:
        error.args = (_about_the_call(str(error), function, cls, given),)
    hide_frames(error, meant=(TypeError, ValueError))


def _about_the_call(
    text: str, function: Callable[..., Any], cls: type, given: dict[str, Any]
) -> str:
    """What Python says of arguments that do not fit, with the method's name as it is called."""
    name = function.__name__
    shown = cls.__name__ if name == "__init__" else f"{cls.__name__}.{name}"
    code = function.__code__
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for unknown in given if not code.co_flags & inspect.CO_VARKEYWORDS else ():
        if unknown not in taken:
            names = [each for each in taken if each not in ("self", "cls")]
            hint = did_you_mean(unknown, names) or f"; it takes {', '.join(names) or 'none'}"
            return f"{shown}() got an unexpected keyword argument {unknown!r}{hint}"
    return text.replace(f"{function.__qualname__}()", f"{shown}()")
