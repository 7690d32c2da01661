"""Which values are state that goes on from call to call: generators, iterators, files, sockets."""

from __future__ import annotations

import io
import random
import sys
from types import BuiltinMethodType, FunctionType, ModuleType
from typing import Any

from tundish.loader.plan.unasked import UNKNOWN, defined, is_of, module_of, qualified_name
from tundish.snapshot.fingerprint.provenance import is_users_module

_FILE: type = io.IOBase.__base__ or io.IOBase  # of which those of C are, too
_READING = ("readable", "read", "readinto", "readline", "__next__")


def kind_of(value: Any) -> str | None:
    """What kind of state a value is; nothing of the user's is asked."""
    if is_of(value, type, ModuleType):
        return None
    if is_of(value, *_generators()):
        return "generator"
    if is_of(value, _FILE):
        return "file" if _is_read(value) else None
    sockets = sys.modules.get("socket")
    if sockets is not None and is_of(value, sockets.socket):
        return "socket"
    kind = type(value)
    goes_on = all(defined(kind, name) is not UNKNOWN for name in ("__next__", "__iter__"))
    return "iterator" if goes_on else None


def _is_read(file: Any) -> bool:
    """Whether a file may be read: one that is only written to, a log, changes no element."""
    standard = (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    if any(file is each for each in standard):
        return False
    kind = type(file)
    if is_users_module(module_of(kind)):
        return any(defined(kind, name) is not defined(io.IOBase, name) for name in _READING)
    return not file.closed and file.readable()


def numpy_random() -> Any:
    """The random numbers of numpy, if they are loaded."""
    return sys.modules.get("numpy.random")


def _generators() -> tuple[type, ...]:
    """Types of random generators, of what is loaded."""
    found: list[type] = [random.Random]
    drawing = numpy_random()
    if drawing is not None:
        found += [drawing.Generator, drawing.RandomState, drawing.BitGenerator]
    torch = getattr(sys.modules.get("torch"), "Generator", None)
    if torch is not None:
        found.append(torch)
    return tuple(found)


def makes_generators(value: Any) -> bool:
    """Whether it makes random generators, of a seed if it is given one."""
    makers: list[Any] = [random.Random]
    drawing = numpy_random()
    if drawing is not None:
        makers += [drawing.default_rng, drawing.RandomState, drawing.SeedSequence]
        makers += [drawing.PCG64, drawing.PCG64DXSM, drawing.MT19937, drawing.Philox, drawing.SFC64]
    return any(value is maker for maker in makers)


def name_of(value: Any) -> tuple[str, str] | None:
    """The module and the name of a function that is written somewhere else."""
    if not is_of(value, FunctionType, BuiltinMethodType):
        return None
    module, name = value.__module__, value.__name__
    return (module, name) if type(module) is type(name) is str else None


def described(value: Any) -> str:
    """``a numpy.random.Generator``, in the words of who made it."""
    kind = type(value)
    module = module_of(kind)
    users = is_users_module(module)
    for public in ("numpy.random", "torch", "random"):
        if module.startswith(public):
            module = public
    name = qualified_name(kind)
    if module not in {"builtins", "_io"}:
        name = f"{module}.{name}"
    article = "an" if name[0] in "aeiou" else "a"
    path = getattr(value, "name", None) if is_of(value, _FILE) and not users else None
    return f"{article} {name}" + (f" ({path})" if isinstance(path, str) else "")
