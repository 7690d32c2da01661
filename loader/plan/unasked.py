"""What an object is and holds, without asking it: nothing that its class defines is run.

`isinstance`, `getattr`, `len` and ``==`` of an object may be anything: a proxy that connects, a
module that loads itself at the first look.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import (
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

UNKNOWN: Any = object()
"""What a name means that has no value now."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_bases: Any = vars(type)["__mro__"].__get__
_namespace: Any = vars(type)["__dict__"].__get__
_module: Any = vars(type)["__module__"].__get__
qualified_name: Any = vars(type)["__qualname__"].__get__
"""A type's name, and of what it was made in."""


def is_of(value: Any, *kinds: type) -> bool:
    """Whether a value is of a type, or of one derived from it; what is registered does not count."""
    for base in _bases(type(value)):  # `in` would ask a metaclass whether types are equal
        for kind in kinds:
            if base is kind:
                return True
    return False


def module_of(kind: type) -> str:
    """The name of the module that a type is of; "" where it says none."""
    name = _module(kind)
    return name if type(name) is str else ""


def defined(kind: type, name: str, *, behind: type | None = None) -> Any:
    """What a type, or one that it is derived from, defines by a name.

    Parameters
    ----------
    kind : type
        Where to begin.
    name : str
        What is looked for.
    behind : type, optional
        Begin behind this one, as ``super()`` does.
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
    """The attributes that an object has of its own, those in slots left out."""
    found = defined(type(value), "__dict__")
    if type(found) is GetSetDescriptorType or type(found) is MemberDescriptorType:
        held = found.__get__(value)
        if type(held) is dict:
            return held
    return _NOTHING  # it has none, or one that is made when it is asked for


def attribute_of(value: Any, name: str, *, behind: type | None = None) -> Any:
    """What an attribute is; a property is a method that has not been called.

    Parameters
    ----------
    value : object
        Whose.
    name : str
        Which.
    behind : type, optional
        As ``super()`` of this type gives it.
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
