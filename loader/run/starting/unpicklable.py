"""Search for the part of an object that cannot be pickled."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

_DEEPEST = 50

# Tries to pickle an object; returns the error, or None.
Attempt = Callable[[object], Exception | None]


def find_unpicklable(value: object, error: Exception, attempt: Attempt) -> tuple[str, str, str]:
    """Find the innermost part of an object that cannot be pickled.

    Parameters
    ----------
    value : object
        The object that could not be pickled.
    error : Exception
        The error of pickling it.
    attempt : callable
        Tries to pickle a part; returns the error, or None.

    Returns
    -------
    (str, str, str)
        The part's path (``load.__closure__['lock']``), its type, and why it cannot be pickled.
    """
    path = _name(value)
    seen = {id(value)}
    for _ in range(_DEEPEST):
        for step, part in _parts(value):
            if id(part) not in seen and (failure := attempt(part)) is not None:
                seen.add(id(part))
                value, error, path = part, failure, path + step
                break
        else:
            break
    cls = type(value)
    module = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return path, module + cls.__qualname__, str(error).strip() or type(error).__name__


def _name(value: object) -> str:
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else type(value).__name__


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the objects that pickling an object visits, each with its path from there."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield f"[{key!r}]", part
            yield f" key {key!r}", key
    elif isinstance(value, list | tuple | set | frozenset):
        for i, part in enumerate(value):
            yield f"[{i}]", part
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        for i, part in enumerate(value.flat):
            yield f".flat[{i}]", part
    elif isinstance(value, types.FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, partial):
        yield ".func", value.func
        yield from ((f".args[{i}]", part) for i, part in enumerate(value.args))
        yield from ((f".keywords[{key!r}]", part) for key, part in value.keywords.items())
    elif isinstance(value, type):
        yield from ((f".{name}", part) for name, part in vars(value).items())
    yield from _state(value)


def _function_parts(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f".__closure__[{name!r}]", cell.cell_contents
        except ValueError:  # an empty cell
            continue
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield f".__globals__[{name!r}]", function.__globals__[name]
    for i, part in enumerate(function.__defaults__ or ()):
        yield f".__defaults__[{i}]", part
    for name, part in (function.__kwdefaults__ or {}).items():
        yield f".__kwdefaults__[{name!r}]", part


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function, and those defined in it, may look up."""
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _state(value: Any) -> Iterator[tuple[str, object]]:
    attributes = dict(getattr(value, "__dict__", {})) if not isinstance(value, type) else {}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                attributes[name] = getattr(value, name)
    for name, part in attributes.items():
        yield f".{name}", part
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:  # noqa: BLE001 - then the object itself is the culprit
        return
    if isinstance(reduced, tuple):
        for i, part in enumerate(reduced[1]):
            yield f".__reduce__()[1][{i}]", part
        for i, part in enumerate(reduced[2:], 2):
            items = enumerate(part) if isinstance(part, Iterator) else ()
            yield from ((f".__reduce__()[{i}][{j}]", item) for j, item in items)
