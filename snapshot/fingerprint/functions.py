"""Definitions of the user's functions, classes and modules: their code, and everything it refers to."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from functools import cached_property, partialmethod
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from tundish.snapshot.fingerprint.code import Code, OutsideRead, code_of
from tundish.snapshot.fingerprint.homes import first_qualname
from tundish.snapshot.fingerprint.keys import digest_of
from tundish.snapshot.fingerprint.provenance import (
    installed_name,
    is_installed_file,
    is_ours,
    is_users_module,
)

if TYPE_CHECKING:
    from tundish.snapshot.fingerprint.keys import JSON, Walk

HOOK = "__tundish_fingerprint__"

_MISSING: Any = object()
_ROUTINES = (FunctionType, classmethod, staticmethod, property, cached_property, partialmethod)


def is_installed(function: FunctionType) -> bool:
    """Return True if a function belongs to Python, an installed package or this library."""
    module = function.__globals__.get("__name__") or ""
    return is_ours(module) or is_installed_file(function.__code__.co_filename)


def short_name(value: Any) -> str:
    """Return a function's or class's name, without the functions in which it is nested."""
    return first_qualname(value).rpartition("<locals>.")[2]


def define_function(function: FunctionType, walk: Walk) -> JSON:
    """Describe a function's code, its defaults, its captured variables, and the globals that it reads."""
    code = code_of(function.__code__)
    installed = is_installed(function)
    found: dict[str, JSON] = {
        **_installed_as(function, installed),
        **_described(code, walk),
        "defaults": _defaults(function, walk),
        "captured": _read("captured", _cells(function), code, walk),
    }
    if not installed:
        found["globals"] = _read("global", function.__globals__, code, walk)
        found["attributes"] = {
            name: walk.value(value, f".{name}") for name, value in sorted(vars(function).items())
        }
        found["imports"] = _imports(function.__globals__, code, walk)
    return {**_filled(found), "about": {"module": function.__module__}}


def define_class(cls: type, walk: Walk) -> JSON:
    """Describe a class's bases, its methods and its attributes; of ``__dunder__`` names only methods."""
    found = {
        "bases": [walk.value(base) for base in cls.__bases__ if base is not object],
        "members": {
            name: walk.value(member, f".{name}")
            for name, member in sorted(vars(cls).items())
            if _counts(name, member)
        },
    }
    if type(cls) is not type:
        found["metaclass"] = walk.value(type(cls))
    return {**_filled(found), "about": {"module": cls.__module__}}


def define_module(name: str, walk: Walk) -> JSON:
    """Describe the whole code of a module's file, and of those that it imports.

    For imports inside functions: whether they have been executed yet must not count.
    """
    spec = _spec(name)
    if spec is None:
        return {"missing": True}
    read = getattr(spec.loader, "get_code", None)
    code = read(name) if read else None
    if code is None:  # a module of machine code, or a folder
        path = Path(spec.origin) if spec.origin else None
        return {"digest": digest_of(path.read_bytes())} if path and path.is_file() else {}
    taken = code_of(code)
    context = {"__name__": name, "__package__": spec.parent}
    return _filled({**_described(taken, walk), "imports": _imports(context, taken, walk)})


def _filled(found: dict[str, JSON]) -> dict[str, JSON]:
    return {name: part for name, part in found.items() if part not in ({}, [])}


def _installed_as(function: FunctionType, installed: bool) -> dict[str, JSON]:
    if not installed:
        return {}
    module = function.__globals__.get("__name__") or ""
    return installed_name(module, function.__code__.co_qualname)


def _described(code: Code, walk: Walk) -> dict[str, JSON]:
    constants = [
        _described(each, walk) if isinstance(each, Code) else walk.value(each)
        for each in code.constants
    ]
    return {"code": code.digest, **({"constants": constants} if constants else {})}


def _defaults(function: FunctionType, walk: Walk) -> dict[str, JSON]:
    code, given = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
    defaults = {**dict(zip(names, given, strict=True)), **(function.__kwdefaults__ or {})}
    return {name: walk.value(value, f" default {name}") for name, value in sorted(defaults.items())}


def _cells(function: FunctionType) -> dict[str, Any]:
    cells: tuple[CellType, ...] = function.__closure__ or ()
    found = {}
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return found


def _read(kind: str, variables: Mapping[str, Any], code: Code, walk: Walk) -> dict[str, JSON]:
    """Describe what code reads of its globals, or of its captured variables."""
    found: dict[str, JSON] = {}
    for read in code.every_read():
        name, *attributes = read.names
        if read.kind != kind or name not in variables:  # a builtin, or defined later
            continue
        name, value = _followed(name, variables[name], attributes)
        if name not in found:
            found[name] = walk.value(value, f" {kind} {name}")
    return dict(sorted(found.items()))


def _followed(name: str, value: Any, attributes: list[str]) -> tuple[str, Any]:
    """Follow ``helpers.crop`` or ``options.size`` to its value, without reading the rest of the module or object."""
    for attribute in attributes:
        inner = _attribute(value, attribute)
        if inner is _MISSING:
            break
        name, value = f"{name}.{attribute}", inner
    return name, value


def _attribute(value: Any, name: str) -> Any:
    """Return a stored attribute without running any code; `_MISSING` if there is none."""
    kind = type(value)
    if isinstance(value, ModuleType):
        return vars(value).get(name, _MISSING) if is_users_module(value.__name__) else _MISSING
    if kind is type:
        if not is_users_module(value.__module__):
            return _MISSING
        held = _of_class(value, name)
        return _MISSING if hasattr(type(held), "__get__") else held
    plain: Any = object.__getattribute__
    if hasattr(kind, HOOK) or kind.__getattribute__ is not plain:
        return _MISSING
    if hasattr(type(_of_class(kind, name)), "__set__"):  # a property, a slot
        return _MISSING
    return getattr(value, "__dict__", {}).get(name, _MISSING)


def _of_class(kind: type, name: str) -> Any:
    found = (vars(base)[name] for base in kind.__mro__ if name in vars(base))
    return next(found, _MISSING)


def _imports(namespace: Mapping[str, Any], code: Code, walk: Walk) -> list[JSON]:
    names = set()
    for read in code.every_read():
        if read.kind == "import":
            names |= _modules(read, namespace)
    return [walk.module(name) for name in sorted(names)]


def _modules(read: OutsideRead, namespace: Mapping[str, Any]) -> set[str]:
    """Return the modules that an import statement names."""
    name, *taken = read.names
    if read.level:
        package = namespace.get("__package__") or ""
        try:
            name = importlib.util.resolve_name("." * read.level + name, package)
        except ImportError:
            return set()
    if not is_users(name):
        return {name.partition(".")[0]}
    inner = {f"{name}.{each}" for each in taken}
    return {name, *(each for each in inner if _spec(each) is not None)}


def is_users(name: str) -> bool:
    """Return True if a module, loaded or not, is the user's."""
    top = name.partition(".")[0]
    if top in sys.modules:
        return is_users_module(top)
    if is_ours(name) or top in sys.stdlib_module_names:
        return False
    spec = _spec(top)
    if spec is None:
        return True
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return not all(map(is_installed_file, places))


def _spec(name: str) -> Any:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None


def _counts(name: str, member: Any) -> bool:
    if name.startswith("__") and name.endswith("__"):
        # Others are bookkeeping, of the interpreter or of a library that makes classes.
        wrapper = callable(member) and type(member).__module__ != "builtins"
        return isinstance(member, _ROUTINES) or (wrapper and not isinstance(member, type))
    return name != "_abc_impl" and not hasattr(type(member), "__objclass__")
