"""Search for state in a node's arguments: in functions, and in what they capture, read and call.

It does not look into the code of installed packages or of this library.
"""

from __future__ import annotations

import functools
import random
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy.random  # numpy loads it when it is asked for, and a function's `np.random` is looked for by its name

from tundish.loader.plan.node import OwnFunction
from tundish.loader.plan.reads import Names, Read, codes_in, imported_by, reads_of
from tundish.loader.plan.safe_introspection import (
    UNKNOWN,
    attribute_of,
    defined,
    described,
    held_by,
    is_of,
    kind_of,
    makes_generators,
    module_of,
    name_of,
)
from tundish.snapshot.fingerprint.functions import is_installed, short_name
from tundish.snapshot.fingerprint.provenance import is_users_module

_MANY = 64
_MOST = 2_000  # items in lists and the like: some 20 ms
_DRAWS_OF_TORCH = frozenset(
    [
        "bernoulli",
        "multinomial",
        "normal",
        "poisson",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "randperm",
    ]
)
_RESEEDING = frozenset({"seed", "setstate", "set_state", "getstate", "get_state"})
_SYSTEM = frozenset(
    {
        *(("posix", name) for name in ("urandom", "getrandom")),
        *(("secrets", name) for name in ("randbelow", "token_bytes", "token_hex", "token_urlsafe")),
        *(("uuid", name) for name in ("uuid1", "uuid4")),
    }
)
_ITEMS = ("__getitem__", "__getitems__")


@dataclass(frozen=True)
class Finding:
    """Where something was found: the chain of names, the function, and the object."""

    path: str
    function: str = ""
    part: str = ""

    def inside(self, part: str) -> Finding:
        return Finding(self.path, self.function, f"{part} of ")

    def called(self, method: Any) -> str:
        """Describe a call of a method, or of a function of a module."""
        name = method.__name__
        if not self.function:
            holder = getattr(method, "__self__", None)
            of = holder.__name__ if isinstance(holder, ModuleType) else described(holder)
            return f"{self.part}{self.path} is {name} of {of if holder is not None else method.__module__}"
        other = "" if self.path.endswith(name) else f" ({name})"
        return f"{self.function} calls {self.part}`{self.path}`{other}"

    def held(self, value: Any) -> str:
        """Describe a read of a value."""
        what = described(value)
        if self.function:
            return f"{self.function} reads {self.part}`{self.path}`, {what}"
        return f"{self.part}{self.path} is {what}"


class StateSearch:
    """A search through a node's arguments.

    Parameters
    ----------
    seeded : bool
        True if a function's `rng` is given to it.
    files : bool, default True
        False to leave files out.
    passed : bool, default True
        False if the generator that code passes to torch's functions is None.
    """

    def __init__(self, *, seeded: bool, files: bool = True, passed: bool = True) -> None:
        self._seeded, self._passed = seeded, passed
        self._files = files
        self._items = _MOST  # the number of items that may still be inspected
        self._waiting: deque[tuple[Any, Finding]] = deque()
        self._seen: set[tuple[int, int]] = set()
        self._kept: list[Any] = []  # keeps objects alive, so that ids stay unique
        self._found: dict[tuple[str, str], int] = {}
        self._reseeded: set[int] = set()

    def run(self) -> None:
        """Visit pending values until nothing new is found."""
        while self._waiting:
            self._value(*self._waiting.popleft())

    def told(self) -> list[tuple[str, str]]:
        """Return the state that was found, as (kind, description); a generator that is reseeded is none."""
        return [found for found, of in self._found.items() if of not in self._reseeded]

    def _tell(self, kind: str, what: str, of: Any = None) -> None:
        if kind == "file" and not self._files:
            return
        self._found.setdefault((kind, what), id(of))

    # -- values ----------------------------------------------------------------------------------

    def source(self, source: Any) -> None:
        """Search a user's source; files in it are read by record number."""
        kind = type(source)
        if is_users_module(module_of(kind)):
            for name in _ITEMS:
                method = defined(kind, name)
                if isinstance(method, FunctionType):
                    self._function(method, source)

    def value(self, value: Any, place: Finding) -> None:
        """Register something that a node or function holds, for `run` to visit."""
        self._waiting.append((value, place))

    def _value(self, value: Any, place: Finding) -> None:
        kind = kind_of(value)
        if kind is not None:
            self._tell(kind, place.held(value), value)
        elif name_of(value) in _SYSTEM:
            self._tell("system", place.called(value))
        elif is_of(value, FunctionType):
            self._function(value)
        elif is_of(value, MethodType, BuiltinMethodType):
            self._method(value, place)
        elif type(value) is functools.partial:
            self._partial(value, place)
        elif is_of(value, list):
            self._several(list.__len__(value), list.__iter__(value), place, value)
        elif is_of(value, tuple):
            self._several(tuple.__len__(value), tuple.__iter__(value), place, value)
        elif is_of(value, dict):
            self._several(dict.__len__(value), dict.values(value), place, value)
        elif is_of(value, OwnFunction):
            if self._new(value, None):
                for each in held_by(value).values():
                    self.value(each, place)
        else:
            self._object(value, place)

    def _several(self, count: int, values: Iterable[Any], place: Finding, holder: Any) -> None:
        if count <= min(_MANY, self._items) and self._new(holder, None):
            self._items -= count
            inside = place.inside("an item")
            for each in values:
                self.value(each, inside)

    def _partial(self, value: functools.partial[Any], place: Finding) -> None:
        if isinstance(value.func, FunctionType):
            self._function(value.func, given=frozenset(value.keywords))
        else:
            self.value(value.func, place)
        for each in (*value.args, *value.keywords.values()):
            self.value(each, place.inside("an argument"))

    def _method(self, method: Any, place: Finding) -> None:
        holder = method.__self__
        kind = kind_of(holder)
        if kind == "generator":
            if method.__name__ in _RESEEDING:
                self._reseeded.add(id(holder))
            else:
                kind = "system" if is_of(holder, random.SystemRandom) else "drawn"
                self._tell(kind, place.called(method), holder)
        elif kind is not None:
            self._tell(kind, place.called(method), holder)
        elif is_of(method, MethodType) and is_of(method.__func__, FunctionType):
            self._function(method.__func__, holder)

    def _object(self, value: Any, place: Finding) -> None:
        wrapped: Any = held_by(value).get("__wrapped__")
        if is_of(wrapped, FunctionType):  # functools.lru_cache
            self._function(wrapped)
            return
        is_type = is_of(value, type)
        kind = value if is_type else type(value)
        if not is_users_module(module_of(kind)):
            return
        call = defined(kind, "__init__" if is_type else "__call__")
        if is_of(call, FunctionType):
            self._function(call, None if is_type else value)
        elif not is_type and self._new(value, None):
            for name, each in held_by(value).items():
                if kind_of(each) == "generator":
                    self._tell(
                        "generator", Finding(f"{place.path}.{name}", place.function).held(each)
                    )

    # -- functions ---------------------------------------------------------------------------------

    def _new(self, value: Any, holder: Any) -> bool:
        key = (id(value), id(holder))
        if key in self._seen:
            return False
        self._seen.add(key)
        self._kept.append((value, holder))
        return True

    def _function(
        self, function: FunctionType, holder: Any = None, given: frozenset[str] = frozenset()
    ) -> None:
        if is_installed(function) or not self._new(function, holder):
            return
        names = Names(function, holder, given | {"rng"} if self._seeded else given)
        self._code(function.__code__, names, short_name(function))

    def _code(self, code: CodeType, names: Names, where: str) -> None:
        # A call with the keyword `generator`: torch draws from that.
        given = self._passed and any(
            isinstance(each, tuple) and "generator" in each for each in code.co_consts
        )
        for read in reads_of(code):
            self._read(read, names, where, given=given)
        for inner in codes_in(code):
            self._code(inner, names.within(imported_by(code)), where)

    def _read(self, read: Read, names: Names, where: str, *, given: bool) -> None:
        first, *rest = read.names
        if read.kind == "super":
            above, path = names.above(first), f"super().{first}"
            if above is not UNKNOWN:
                self.value(above, Finding(path, where))
            return
        value, holder = names.look_up(read.kind, first), None
        path = first
        for name in rest:
            if value is UNKNOWN or kind_of(value) is not None:
                break
            if is_of(value, MethodType):  # a property; attributes of its value are read
                self.value(value, Finding(path, where))
            holder, value = value, attribute_of(value, name)
            path = f"{path}.{name}"
        if value is UNKNOWN or is_of(value, ModuleType):
            return
        place = Finding(path, where)
        if holder is sys.modules.get("torch", UNKNOWN) and self._of_torch(
            rest[-1], given, holder, place
        ):
            return
        if value is numpy.random.seed:
            self._reseeded.add(id(numpy.random.mtrand._rand))  # noqa: SLF001 - its methods are functions of np.random
        elif read.bare and makes_generators(value):
            self._tell("unseeded", f"{where} calls `{path}()` without a seed")
        else:
            self.value(value, place)

    def _of_torch(self, name: str, given: bool, torch: Any, place: Finding) -> bool:
        """Register a function of torch that involves its global generator; return True if it is one."""
        if name == "manual_seed":
            self._reseeded.add(id(torch))
        elif name in _DRAWS_OF_TORCH:
            if not given:
                self._tell("drawn", f"{place.function} calls `{place.path}`", torch)
        else:
            return False
        return True
