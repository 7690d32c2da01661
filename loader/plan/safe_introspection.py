"""Introspection that runs no user code: types, attributes, and kinds of state.

`isinstance`, `getattr`, `len` and ``==`` may run any code of an object: a proxy that connects, a module that loads
itself on first access.
"""

from __future__ import annotations

import functools
import io
import random
import sys
from types import (
    BuiltinMethodType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN: Any = object()
"""The value of a name that has none now."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_bases: Any = vars(type)["__mro__"].__get__
_namespace: Any = vars(type)["__dict__"].__get__
_module: Any = vars(type)["__module__"].__get__
qualified_name: Any = vars(type)["__qualname__"].__get__
"""Return the qualified name of a type."""


def is_of(value: Any, *kinds: type) -> bool:
    """Return True if a value's type is one of these types or derived from one; ABC registration does not count."""
    for base in _bases(type(value)):  # `in` would ask a metaclass whether types are equal
        for kind in kinds:
            if base is kind:
                return True
    return False


def module_of(kind: type) -> str:
    """Return the name of a type's module; "" if it has none."""
    name = _module(kind)
    return name if type(name) is str else ""


def defined(kind: type, name: str, *, behind: type | None = None) -> Any:
    """Return what a type or a base of it defines under a name.

    Parameters
    ----------
    kind : type
        The first type to search.
    name : str
        The name.
    behind : type, optional
        Start after this type, like ``super()``.
    """
    bases = _bases(kind)
    if behind is not None:
        at = next((at for at, base in enumerate(bases) if base is behind), len(bases))
        bases = bases[at + 1 :]
    for base in bases:
        found = _namespace(base).get(name, UNKNOWN)
        if found is not UNKNOWN:
            return found
    return UNKNOWN


def held_by(value: Any) -> Mapping[str, Any]:
    """Return an object's own attributes, without those in slots."""
    found = defined(type(value), "__dict__")
    if type(found) is GetSetDescriptorType or type(found) is MemberDescriptorType:
        held = found.__get__(value)
        if type(held) is dict:
            return held
    return _NOTHING  # it has none, or one that is made on access


def attribute_of(value: Any, name: str, *, behind: type | None = None) -> Any:
    """Return an attribute; a property is returned itself, without calling it.

    Parameters
    ----------
    value : object
        The object.
    name : str
        The attribute's name.
    behind : type, optional
        Start after this type, like ``super()``.
    """
    is_type = is_of(value, type)
    if behind is None:
        held = held_by(value) if not is_type else _NOTHING
        if name in held:
            return held[name]
        if is_of(value, ModuleType):
            return UNKNOWN
    found = defined(value if is_type else type(value), name, behind=behind)
    if isinstance(found, FunctionType):
        return found if is_type else MethodType(found, value)
    if type(found) is staticmethod:
        return found.__func__
    if type(found) is classmethod:
        function: Any = found.__func__
        return (
            MethodType(function, value if is_type else type(value))
            if callable(function)
            else UNKNOWN
        )
    if is_type:
        return found
    if type(found) is property:
        getter: Any = found.fget
        return UNKNOWN if getter is None else MethodType(getter, value)
    if type(found) is functools.cached_property:
        return MethodType(found.func, value)
    if type(found) is MemberDescriptorType:  # a slot
        try:
            return found.__get__(value)
        except AttributeError:
            return UNKNOWN
    return UNKNOWN if defined(type(found), "__get__") is not UNKNOWN else found


_FILE: type = io.IOBase.__base__ or io.IOBase  # the base of C's file types, too
_READING = ("readable", "read", "readinto", "readline", "__next__")


def kind_of(value: Any) -> str | None:
    """Return the kind of state that a value is, or None; runs no user code."""
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
    """Return True if a file may be read; one that is only written to, such as a log, changes no element."""
    standard = (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    if any(file is each for each in standard):
        return False
    kind = type(file)
    from tundish.snapshot.fingerprint.provenance import is_users_module  # noqa: PLC0415 - for files

    if is_users_module(module_of(kind)):
        return any(defined(kind, name) is not defined(io.IOBase, name) for name in _READING)
    return not file.closed and file.readable()


def numpy_random() -> Any:
    """Return the module `numpy.random`, if it is loaded."""
    return sys.modules.get("numpy.random")


def _generators() -> tuple[type, ...]:
    """Return the types of random generators in loaded modules."""
    found: list[type] = [random.Random]
    drawing = numpy_random()
    if drawing is not None:
        found += [drawing.Generator, drawing.RandomState, drawing.BitGenerator]
    torch = getattr(sys.modules.get("torch"), "Generator", None)
    if torch is not None:
        found.append(torch)
    return tuple(found)


def makes_generators(value: Any) -> bool:
    """Return True if a value makes random generators, from a seed if it is given one."""
    makers: list[Any] = [random.Random]
    drawing = numpy_random()
    if drawing is not None:
        makers += [drawing.default_rng, drawing.RandomState, drawing.SeedSequence]
        makers += [drawing.PCG64, drawing.PCG64DXSM, drawing.MT19937, drawing.Philox, drawing.SFC64]
    return any(value is maker for maker in makers)


def name_of(value: Any) -> tuple[str, str] | None:
    """Return the module and name of a function that was defined elsewhere."""
    if not is_of(value, FunctionType, BuiltinMethodType):
        return None
    module, name = value.__module__, value.__name__
    return (module, name) if type(module) is type(name) is str else None


def described(value: Any) -> str:
    """Describe a value by its type, and its type's module: ``a numpy.random.Generator``."""
    kind = type(value)
    module = module_of(kind)
    from tundish.snapshot.fingerprint.provenance import is_users_module  # noqa: PLC0415 - rare

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
