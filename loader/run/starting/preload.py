"""Choice of the installed modules that are imported once for all workers.

A worker that imports torch, torchvision or pandas itself takes seconds to start, or seconds for its first sample if a
function imports it. The user's own modules are left to the workers: what they do on import (open a file, say)
must not be shared, and they may have changed since.
"""

from __future__ import annotations

import dis
import site
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

from tundish.loader.run.starting.byvalue import module_name

_MOST = 2000
_MOST_FOUND = 64
_RANDOM = "numpy.random"

# Ours and numpy are there already; the others start threads, or take hold of a device.
_LEFT_OUT = {"tundish", "numpy", "tensorflow", "jax", "jaxlib", "cupy", "ray", "grpc", "pytest"}


def installed(names: Iterable[str]) -> tuple[str, ...]:
    """Return the installed modules among some modules and all that they have imported.

    A missed module only costs time: each worker imports it itself.

    Parameters
    ----------
    names : iterable of str
        The modules of the functions and classes that workers receive.
    """
    seen: set[str] = set()
    found: list[str] = []
    waiting = list(names)
    while waiting and len(seen) < _MOST and len(found) < _MOST_FOUND:
        name = waiting.pop()
        if name.startswith(_RANDOM):  # numpy loads it on first use
            found.append(_RANDOM)
            continue
        module = sys.modules.get(name)
        top = name.partition(".")[0]
        if name in seen or module is None or top in sys.stdlib_module_names or top in _LEFT_OUT:
            continue
        seen.add(name)
        if top == "__main__":
            continue  # its classes travel by value, with the globals that they use
        if _is_installed(module):
            found.append(name)
            continue
        for value in list(vars(module).values()):
            waiting += modules_of(value)
    return tuple(sorted(set(found)))


@cache
def _places() -> tuple[str, ...]:
    """Return the folders in which packages are installed."""
    paths = sysconfig.get_paths()
    places = [paths["purelib"], paths["platlib"], *site.getsitepackages()]
    return tuple({*places, site.getusersitepackages()})


def _is_installed(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.startswith(_places())


def modules_of(value: Any) -> Iterator[str]:
    """Yield the names of the modules of a value and of its class."""
    if isinstance(value, types.ModuleType):
        yield value.__name__
        return
    if isinstance(value, types.FunctionType):
        yield module_name(value)
        yield from named_in(value)
        return
    cls = value if isinstance(value, type) else type(value)
    for base in cls.__mro__:
        home = module_name(base)
        yield home
        if _is_users(home):
            for method in vars(base).values():
                if isinstance(method, types.FunctionType):
                    yield from named_in(method)


def named_in(function: types.FunctionType) -> Iterator[str]:
    """Yield the modules that a user's function imports when called, or finds in the main module."""
    home = module_name(function)
    if _is_users(home):
        yield from _imported_by(function.__code__)
    if home == "__main__":
        yield from _globals_of(function)


def _is_users(name: str) -> bool:
    if name == "__main__":
        return True
    home = sys.modules.get(name)
    top = name.partition(".")[0]
    return not (
        home is None or top in sys.stdlib_module_names or top in _LEFT_OUT or _is_installed(home)
    )


def _imported_by(code: types.CodeType) -> Iterator[str]:
    """Yield the modules that code imports when it runs, if this process has imported them."""
    if not sys.modules.keys().isdisjoint(code.co_names):
        yield from _named_by(code)
    if "random" in code.co_names:
        yield _RANDOM
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _imported_by(inner)


@lru_cache(maxsize=4096)
def _named_by(code: types.CodeType) -> tuple[str, ...]:
    instructions = dis.get_instructions(code)
    return tuple(each.argval for each in instructions if each.opname == "IMPORT_NAME")


def _globals_of(function: types.FunctionType) -> Iterator[str]:
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            yield value.__name__
        elif value is not None:
            yield module_name(value)
