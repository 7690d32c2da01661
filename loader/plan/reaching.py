"""Search for the globals that functions read, through all functions that they call; runs no code.

Calls are resolved by name. A name in a module is that function; a method called on an argument may be that of any
class found so far.
"""

from __future__ import annotations

import enum
import functools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tundish.loader.plan.reads import GlobalName, Names, Read, codes_in, imported_by, reads_of
from tundish.loader.plan.safe_introspection import (
    UNKNOWN,
    held_by,
    is_of,
    module_of,
    qualified_name,
)
from tundish.loader.plan.stores import asked_attributes, stores_of
from tundish.snapshot.fingerprint.provenance import is_installed_file, is_ours, is_users_module

_MANY = 64  # items of a container that are looked at
_WRAPPED = ("__func__", "__wrapped__", "fget", "fset", "func")
_BUILDING = {"__init__", "__new__", "__post_init__", "__init_subclass__", "__setstate__"}
_FILLED = (dict, list, set, np.ndarray)  # types that are filled in place when workers take a value
_HOLDERS = {("argparse", "Namespace"), ("types", "SimpleNamespace")}


def globals_read(roots: Iterable[FunctionType | type]) -> dict[GlobalName, Any]:
    """Return the globals that functions read and never change, with their present values.

    Parameters
    ----------
    roots : iterable of functions and types
        Functions to be called, and types of objects whose methods may be called.

    Returns
    -------
    dict
        Without modules, and without functions and classes under the names that they were defined with; for the user's
        classes, and for objects with attributes, the attributes that some code reads.
    """
    search = _Search()
    for root in roots:
        if isinstance(root, FunctionType):
            search.function(root)
        else:
            search.type_of_object(root)
    search.run()
    return {place: value for place, value in search.values.items() if not search.changes(place)}


class _Search:
    """A walk over all code that can be reached."""

    def __init__(self) -> None:
        self.values: dict[GlobalName, Any] = {}
        self._waiting: deque[FunctionType] = deque()
        self._seen: set[tuple[int, int]] = set()
        self._types: dict[type, bool] = {}  # and whether some code may build one
        self._holders: dict[GlobalName, Any] = {}
        self._asked: set[str] = set()
        self._changed: set[GlobalName] = set()
        self._bound: set[str] = set()  # attributes, of whatever object
        # Attributes of a first argument, and the code that assigns them.
        self._own: dict[str, set[CodeType]] = {}
        self._methods: dict[CodeType, set[type]] = {}  # and the classes whose methods those are
        self._called: set[CodeType] = set()  # code that may be called with any first argument

    def run(self) -> None:
        """Visit pending code and values until nothing new is found."""
        before: tuple[int, ...] = ()
        while before != (now := self._extent()):
            before = now
            while self._waiting:
                self._look_into(self._waiting.popleft())
            self._members()

    def _extent(self) -> tuple[int, ...]:
        met = (self._seen, self._types, self._holders, self._asked, self.values, self._waiting)
        return (*map(len, met), sum(self._types.values()))

    def changes(self, place: GlobalName) -> bool:
        """Return True if visited code may change a global."""
        if len(place.names) > 1 and self._assigns(place.names[-1], self._holders.get(place.holder)):
            return True
        heads = (GlobalName(place.module, place.names[:n]) for n in range(1, len(place.names) + 1))
        return any(head in self._changed for head in heads)

    def _assigns(self, name: str, holder: Any) -> bool:
        """Return True if visited code may assign an attribute of an object; of any object if it is None."""
        return name in self._bound or any(
            self._may_take(code, holder) for code in self._own.get(name, ())
        )

    def _may_take(self, code: CodeType, holder: Any) -> bool:
        """Return True if code may be called with an object as its first argument."""
        kinds = self._methods.get(code)
        if holder is None or kinds is None or code in self._called:
            return True
        return any(kind in type(holder).__mro__ for kind in kinds)

    # -- what was met ----------------------------------------------------------------------------

    def function(self, function: FunctionType, of: type | None = None) -> None:
        """Register a function; `of` is the class that it was found in as a method."""
        code = function.__code__
        if of is None:
            self._called.add(code)
        else:
            self._methods.setdefault(code, set()).add(of)
        key = (id(code), id(function.__globals__))
        if key not in self._seen and not _is_installed(function):
            self._seen.add(key)
            self._waiting.append(function)

    def type_of_object(self, kind: type, *, built: bool = False) -> None:
        """Register a type; its methods are visited once some code asks for their names."""
        for base in _users_bases(kind):
            self._types[base] = self._types.get(base, False) or built

    def value(self, value: Any, place: GlobalName | None = None) -> None:
        """Register a value that code can reach: as something to call, and, if it has a place, as a global."""
        if is_of(value, FunctionType):
            self.function(value)
            if place is not None and not _is_named(place, value):
                self.values[place] = value
        elif is_of(value, MethodType):
            kind = type(value.__self__)
            if is_of(value.__func__, FunctionType):
                self.function(value.__func__, kind)
            else:
                self.value(value.__func__)
            self.type_of_object(kind)
        elif is_of(value, type):
            self.type_of_object(value, built=True)
            if place is not None and place != _home(value):
                self.values[place] = value  # a dtype, say, or a class that replaces another
        elif type(value) is functools.partial:
            if place is not None:
                self.values[place] = value
            for each in (value.func, *value.args, *value.keywords.values()):
                self.value(each)
        elif is_of(wrapped := held_by(value).get("__wrapped__"), FunctionType):
            self.value(wrapped)
        elif not is_of(value, ModuleType):
            self._object(value, place)

    def _object(self, value: Any, place: GlobalName | None) -> None:
        kind = type(value)
        users = is_users_module(module_of(kind))
        if users:
            self.type_of_object(kind)
        if place is None:
            return
        holds = users or (module_of(kind), qualified_name(kind)) in _HOLDERS
        if holds and held_by(value) and not _is_fixed(value):
            self._holders[place] = value
        else:
            self.values[place] = value
            for each in _items(value):
                if callable(each):
                    self.value(each)

    # -- code ------------------------------------------------------------------------------------

    def _look_into(self, function: FunctionType) -> None:
        building = function.__name__ in _BUILDING
        names = Names(function, None, frozenset())
        self._code(function.__code__, names, function.__globals__, building=building)
        cells = (cell for cell in function.__closure__ or ())
        for cell in cells:
            try:
                self.value(cell.cell_contents)
            except ValueError:  # not set yet
                continue
        for each in vars(function).values():
            self.value(each)
        for each in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(each, _container_of(each, function.__globals__))

    def _code(
        self, code: CodeType, names: Names, namespace: Mapping[str, Any], *, building: bool
    ) -> None:
        for read in reads_of(code):
            self._read(read, names, namespace)
        self._asked |= asked_attributes(code)
        stores = stores_of(code)
        module = str(namespace.get("__name__"))
        self._changed.update(GlobalName(module, (name,)) for name in stores.variables)
        for chain in stores.chains:
            place, value, rest = self._through_modules(chain, names, namespace)
            for name in rest:
                if place is not None and is_of(value, type):
                    place = _home(value) or place
                place = None if place is None else place.of(name)
                value = _attribute(value, name)
            if place is not None:
                self._changed.add(place)
        if not building:
            self._bound |= stores.attributes
            for name in stores.own:
                self._own.setdefault(name, set()).add(code)
        for inner in codes_in(code):
            self._code(inner, names.within(imported_by(code)), namespace, building=building)

    def _read(self, read: Read, names: Names, namespace: Mapping[str, Any]) -> None:
        if read.kind in ("global", "import"):
            place, value, rest = self._through_modules(read, names, namespace)
            while place is not None and rest and rest[0] in held_by(value) and not _is_fixed(value):
                place, value, rest = place.of(rest[0]), held_by(value)[rest[0]], rest[1:]
            if value is not UNKNOWN:
                self.value(value, place)
            self._asked.update(rest)
        elif read.kind == "captured":
            value = names.look_up(read.kind, read.names[0])
            if value is not UNKNOWN:
                self.value(value)

    def _through_modules(
        self, read: Read, names: Names, namespace: Mapping[str, Any]
    ) -> tuple[GlobalName | None, Any, tuple[str, ...]]:
        """Follow a chain of names through modules; return the place it leads to, its value, and the remaining names."""
        first, *rest = read.names
        value = names.look_up(read.kind, first)
        place = None
        if read.kind == "global" and first in namespace:
            place = GlobalName(str(namespace.get("__name__")), (first,))
        while rest and is_of(value, ModuleType):
            module, name = value.__name__, rest.pop(0)
            if not is_users_module(module):
                return None, UNKNOWN, ()
            value, place = vars(value).get(name, UNKNOWN), GlobalName(module, (name,))
        return place, value, tuple(rest)

    # -- attributes ------------------------------------------------------------------------------

    def _members(self) -> None:
        """Visit the members of types and objects that some code asks for by name."""
        for kind, built in list(self._types.items()):
            home = _home(kind)
            for name, member in list(vars(kind).items()):
                special = name.startswith("__") and name.endswith("__")
                wanted = (built if name in _BUILDING else special) or name in self._asked
                if not wanted:
                    continue
                bound = not is_of(member, staticmethod)
                for function in _functions(member):
                    self.function(function, kind if bound else None)
                if home is not None and is_of(member, FunctionType):
                    place = home.of(name)
                    if not _is_named(place, member):
                        self.values[place] = member
                elif home is not None and not special and _is_data(member):
                    self.value(member, home.of(name))
        for place, holder in list(self._holders.items()):
            for name, value in list(held_by(holder).items()):
                if name in self._asked and place.of(name) not in self.values:
                    self.value(value, place.of(name))


def _users_bases(kind: type) -> Iterator[type]:
    return (base for base in kind.__mro__ if is_users_module(module_of(base)))


def _home(kind: type) -> GlobalName | None:
    """Return the place of a class; None for one made inside a function."""
    name = qualified_name(kind)
    return None if "<" in name else GlobalName(module_of(kind), tuple(name.split(".")))


def _is_named(place: GlobalName, function: FunctionType) -> bool:
    """Return True if a function was defined under this name: another one may have been put there at run time."""
    return (function.__module__, function.__qualname__) == (place.module, ".".join(place.names))


def _container_of(value: Any, namespace: Mapping[str, Any]) -> GlobalName | None:
    """Return the global that is this very container, such as a table that is a parameter's default; None if there is none."""
    if type(value) not in _FILLED:
        return None
    names = (name for name, each in list(namespace.items()) if each is value)
    found = next(names, None)
    return None if found is None else GlobalName(str(namespace.get("__name__")), (found,))


def _attribute(value: Any, name: str) -> Any:
    held = vars(value) if is_of(value, type) else held_by(value)
    return held.get(name, UNKNOWN)


def _is_fixed(value: Any) -> bool:
    """Return True if a value cannot be changed in place, like a member of an enumeration."""
    parameters = vars(type(value)).get("__dataclass_params__")
    return is_of(value, enum.Enum) or bool(getattr(parameters, "frozen", False))


def _functions(member: Any) -> Iterator[FunctionType]:
    """Return the functions that make up a member of a class."""
    names = () if is_of(member, FunctionType) else _WRAPPED
    parts = [member, *(getattr(member, name, None) for name in names)]
    return (part for part in parts if is_of(part, FunctionType))


def _is_data(member: Any) -> bool:
    return not hasattr(type(member), "__get__") and not is_of(member, type)


def _items(value: Any) -> Iterable[Any]:
    if type(value) is dict and len(value) <= _MANY:
        return list(value.values())
    return value if type(value) in (list, tuple) and len(value) <= _MANY else ()


def _is_installed(function: FunctionType) -> bool:
    """Return True if a function belongs to Python, an installed package or this library."""
    module = str(function.__globals__.get("__name__"))
    return is_ours(module) or is_installed_file(function.__code__.co_filename)
