"""Modules that a worker cannot import, whose functions and classes are sent by value."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import cloudpickle

_PROGRAMS: set[str] = set()


def never_import(name: str) -> None:
    """Send a module's functions and classes by value, as those of ``__main__``: no worker runs its file again."""
    _PROGRAMS.add(name)


_lock = threading.RLock()  # an object's own way to be pickled may iterate over a dataset


def _renew() -> None:
    if not _lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - by a thread that is not in this child
        _lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001 - as `threading` does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextlib.contextmanager
def by_value() -> Iterator[ByValue]:
    """Restore cloudpickle's list of modules, which is global, at the end of the block."""
    with _lock:
        modules = ByValue()
        try:
            yield modules
        finally:
            modules.close()


class ByValue:
    """Registers with cloudpickle the modules whose functions and classes a worker cannot import."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {"__main__": True}
        self._registered: list[types.ModuleType] = []

    def close(self) -> None:
        """Undo what was registered."""
        for module in self._registered:
            cloudpickle.unregister_pickle_by_value(module)

    def take(self, name: str) -> bool:
        """Register a module if necessary; return True if its functions and classes are sent by value."""
        known = self._known.get(name)
        if known is None:
            loaded = name in sys.modules
            known = self._known[name] = loaded and (name in _PROGRAMS or not _importable(name))
            if known and name not in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.register_pickle_by_value(sys.modules[name])
                self._registered.append(sys.modules[name])
        return known


def module_name(value: Any) -> str:
    """Return the name of the module of a class, function or object; "" if it has none.

    Some classes compute ``__module__`` for each instance, such as that of Cython's functions; for them it is "".
    """
    name = getattr(value, "__module__", None)
    return name if isinstance(name, str) else ""


def _importable(name: str) -> bool:
    """Return True if a process with this ``sys.path`` would import this module from the same file."""
    file = getattr(sys.modules[name], "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return True  # built in, compiled, or made by one that is
    parts = name.split(".")
    spec: ModuleSpec | None = None
    for i in range(len(parts)):
        path = None if spec is None else spec.submodule_search_locations
        spec = _find_spec(".".join(parts[: i + 1]), path)
        if spec is None:
            return False
    origin = spec.origin if spec is not None else None
    if origin in ("frozen", "built-in"):
        return True  # os and the like: part of the interpreter, though they have a file
    with contextlib.suppress(OSError):
        return origin == file or Path(str(origin)).samefile(file)
    return False


def _find_spec(name: str, path: Any) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find: Callable[..., ModuleSpec | None] | None = getattr(finder, "find_spec", None)
        if find is not None and (spec := find(name, path, None)) is not None:
            return spec
    return None


def look_up(module: str, qualname: str) -> Any:
    """Return the object with a qualified name in a module; None if there is none."""
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found


def with_slots(cls: type, reduced: Any) -> Any:
    """Complete what cloudpickle reduces a class to, which has no slots when it is made again.

    Its instances would have a ``__dict__`` in a worker, and a state that the class of this process cannot take.
    """
    make, *_ = reduced
    if "__slots__" not in vars(cls) or make.__name__ != "_make_skeleton_class":
        return reduced
    make, (metaclass, name, bases, body, *rest), *state = reduced
    if typing.NamedTuple in bases:  # which gives its classes slots itself
        return reduced
    slots = [name for name, value in vars(cls).items() if type(value) in _SLOTS]
    return (make, (metaclass, name, bases, {**body, "__slots__": slots}, *rest), *state)


def without_hooks(cls: type, reduced: Any) -> Any:
    """Complete what cloudpickle reduces a class to, which knows no keywords that its bases want of a subclass."""
    make, arguments, *state = reduced
    if make.__name__ != "_make_skeleton_class" or not _hooked(cls.__mro__[1:]):
        return reduced
    return (_made, (make, *arguments), *state)


def _made(make: Callable[..., type], *arguments: Any) -> type:
    """Make a class; without `__init_subclass__`, which has run where it was defined, if that fails."""
    try:
        return make(*arguments)
    except Exception:  # noqa: BLE001 - it lacks a keyword, or has the name already
        hooked = _hooked([each for base in arguments[2] for each in base.__mro__])
    hooks = [(base, vars(base)["__init_subclass__"]) for base in hooked]
    for base in hooked:
        type.__setattr__(base, "__init_subclass__", classmethod(lambda _: None))
    try:
        return make(*arguments)
    finally:
        for base, hook in hooks:
            type.__setattr__(base, "__init_subclass__", hook)


def _hooked(bases: Iterable[type]) -> list[type]:
    """Return the classes of users and packages that are told of their subclasses."""
    told = [each for each in bases if "__init_subclass__" in vars(each) and each is not object]
    return [each for each in told if each.__module__ not in sys.stdlib_module_names]


# The descriptors of slots, and of __dict__ and __weakref__.
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def install(module_name: str, qualname: str, cls: type | types.FunctionType) -> None:
    """Register a class or function that was sent by value under the name that pickle looks up."""
    owner: Any = _module(module_name)
    *outer, last = qualname.split(".")
    for name in outer:
        owner = getattr(owner, name)
    cls.__qualname__ = qualname  # cloudpickle loses that of a nested class
    if getattr(owner, last, None) is not cls:
        setattr(owner, last, cls)


def _module(name: str) -> types.ModuleType:
    """Return a loaded module, or make an empty one of that name."""
    if name not in sys.modules:
        made = sys.modules[name] = types.ModuleType(name)
        parent, _, last = name.rpartition(".")
        if parent:
            with contextlib.suppress(ImportError):
                importlib.import_module(parent)
            setattr(_module(parent), last, made)
    return sys.modules[name]
