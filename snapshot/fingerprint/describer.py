"""Descriptions of any values as JSON that is equal in every process and can be compared.

Containers are walked, arrays count by dtype, shape and values, objects by the state that they would
be copied with, functions by their code and everything that it refers to. Nothing depends on
``id``, on hashes, on the order of imports, or on the location of a file.

Dynamic references in code are not seen: ``getattr`` with a computed name, ``eval``,
`importlib`, or what another function will set in a global or an attribute later. A global or a
captured variable counts by its present value.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MappingProxyType
from typing import Any

import numpy as np

from tundish.errors import FingerprintError
from tundish.snapshot.fingerprint.atoms import ATOMS, many_atoms, shortened
from tundish.snapshot.fingerprint.functions import (
    HOOK,
    define_class,
    define_function,
    define_module,
    is_installed,
    is_users,
    short_name,
)
from tundish.snapshot.fingerprint.keys import JSON, text_of
from tundish.snapshot.fingerprint.objects import (
    describe_array,
    describe_known,
    describe_record,
    describe_state,
    is_record,
)
from tundish.snapshot.fingerprint.provenance import installed_name, is_users_module

REMEDIES = (
    "make it inside the function, so that the pipeline does not hold it; or",
    f"give its class a method {HOOK}() that returns what counts of it; or",
    "pass snapshot(..., version='1'), which stands for all functions and objects of the pipeline",
)
_FAR = 1 << 60


class Describer:
    """Describes several values; a function that several refer to is defined once.

    Parameters
    ----------
    lenient : bool
        True to describe what has no description as such, and not to read the contents of arrays.
    """

    def __init__(self, *, lenient: bool = False) -> None:
        self.lenient = lenient
        self._trail: list[str] = []  # from the argument to where the walk is
        self._kept: list[Any] = []  # keeps values alive, so that ids stay unique
        self._names: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        self._waiting: list[tuple[str, str, Callable[[], JSON]]] = []
        self._closed: dict[int, JSON] = {}
        self._start([])

    def _start(self, trail: list[str]) -> None:
        self._trail = trail
        # The values that are being described, outermost first; and the parts of cycles through one of them, each
        # with the outermost value that it refers to.
        self._open: dict[int, int] = {}
        self._parts: dict[int, int] = {}
        self._lowest = self._lowest_of_parts = _FAR

    # -- values --------------------------------------------------------------------------------

    def describe(self, value: Any, path: str = "") -> JSON:
        """Describe a value; its functions are in `definitions`."""
        self._start([])
        return self._guarded(lambda: self.value(value, path))

    def definitions(self) -> dict[str, JSON]:
        """Return the definitions of functions, classes and modules found since the last call, by name."""
        found = {}
        while self._waiting:
            name, path, define = self._waiting.pop(0)
            self._start([path])
            found[name] = self._guarded(define)
        return found

    def _guarded(self, describe_it: Callable[[], JSON]) -> JSON:
        try:
            return describe_it()
        except RecursionError:
            return self._give_up("it is nested too deeply", None)

    def value(self, value: Any, step: str = "") -> JSON:
        """Describe any value; `step` leads to it from the value that contains it."""
        atom = ATOMS.get(type(value))
        if atom is not None:
            return atom(value)
        self._trail.append(step)
        found = self._compound(value)
        self._trail.pop()
        return found

    def _compound(self, value: Any) -> JSON:
        kind = type(value)
        container = _CONTAINERS.get(kind)
        if container is not None:
            return self._once(value, container)
        if kind is FunctionType:
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        hook = getattr(kind, HOOK, None)
        if hook is not None:
            said = self.keep(hook(value))
            return {"object": short_name(kind), "fingerprint": self.value(said, f".{HOOK}()")}
        known = describe_known(self, value)
        if known is not None:
            return known
        return self._once(value, describe_record if is_record(value) else describe_state)

    def _once(self, value: Any, describe_it: Callable[[Any, Any], JSON]) -> JSON:
        """Describe a value that may be referred to again: elsewhere, or within itself."""
        key = id(value)
        if key in self._closed:
            return self._closed[key]
        if key in self._open:
            self._lowest = min(self._lowest, self._open[key])
            return {"again": len(self._open) - self._open[key]}
        if key in self._parts:
            self._lowest = min(self._lowest, self._lowest_of_parts)
            return {"again": f"part {self._parts[key]}"}
        depth, before, outer = len(self._open), len(self._parts), self._lowest
        self._open[key], self._lowest = depth, _FAR
        found = describe_it(self, self.keep(value))
        del self._open[key]
        if self._lowest < depth:  # something in it refers to what it is in
            self._parts[key] = len(self._parts)
            self._lowest_of_parts = min(self._lowest_of_parts, self._lowest)
        else:
            self._closed[key] = found
            self._lowest = _FAR
            for part in list(self._parts)[before:]:
                del self._parts[part]
            if not self._parts:
                self._lowest_of_parts = _FAR
        self._lowest = min(self._lowest, outer)
        return found

    def keep(self, value: Any) -> Any:
        """Keep a value alive until the walk ends, since values are told apart by identity; return it."""
        self._kept.append(value)
        return value

    # -- containers ----------------------------------------------------------------------------

    def _items(self, value: list[Any] | tuple[Any, ...]) -> JSON:
        kind = type(value).__name__
        plain = many_atoms(kind, value)
        if plain is not None:
            return plain
        return shortened(kind, [self.value(item, f"[{n}]") for n, item in enumerate(value)])

    def _pairs(self, value: dict[Any, Any]) -> JSON:
        pairs = [[self.value(k, " key"), self.value(v, f"[{k!r:.40}]")] for k, v in value.items()]
        return shortened("dict", pairs)

    def _members(self, value: set[Any] | frozenset[Any]) -> JSON:
        kind = type(value).__name__
        if all(type(member) in ATOMS for member in value):
            return shortened(kind, sorted(map(self.value, value), key=text_of))
        ordered = sorted(value, key=self._text_alone)
        return shortened(kind, [self.value(member, " in a set") for member in ordered])

    def _text_alone(self, value: Any) -> str:
        """Describe a value independently of earlier ones, as text that orders a set."""
        other = Describer(lenient=self.lenient)
        other._trail, other._kept, other._open = (
            [*self._trail, " in a set"],
            self._kept,
            {**self._open},
        )
        return text_of([other.value(value), other.definitions()])

    # -- what has a name -----------------------------------------------------------------------

    def _function(self, value: FunctionType) -> JSON:
        hook = vars(value).get(HOOK)
        if hook is not None:
            said = self.keep(hook() if callable(hook) else hook)
            return {"object": short_name(value), "fingerprint": self.value(said, f".{HOOK}")}
        if hasattr(value, "registry") and hasattr(value, "dispatch"):  # functools.singledispatch
            chosen = {f"{k.__module__}.{k.__qualname__}": f for k, f in value.registry.items()}
            return {"dispatch": self.value(self.keep(dict(sorted(chosen.items()))))}
        name = value.__code__.co_qualname
        if is_installed(value) and not value.__closure__ and "<" not in name:
            return installed_name(value.__globals__.get("__name__") or "", name)
        return {"function": self._name(value, short_name(value), define_function)}

    def _class(self, value: type) -> JSON:
        if not is_users_module(value.__module__) and "<" not in value.__qualname__:
            return installed_name(value.__module__, value.__qualname__)
        return {"class": self._name(value, short_name(value), define_class)}

    def module(self, name: str) -> JSON:
        """Describe a module by the code in its file; an installed one by its version."""
        if not is_users(name):
            return installed_name(name, "")
        if f"module {name}" not in self._taken:
            self._name(
                self.keep(object()), f"module {name}", lambda _, walk: define_module(name, walk)
            )
        return {"module": name}

    def _name(self, value: Any, name: str, define: Callable[[Any, Any], JSON]) -> str:
        """Return the name of something that is defined once, wherever it is found."""
        known = self._names.get(id(value))
        if known is not None:
            return known
        count = self._taken[name] = self._taken.get(name, 0) + 1
        name = name if count == 1 else f"{name}#{count}"
        self._names[id(self.keep(value))] = name
        path = f"{''.join(self._trail)} {name}".lstrip()
        self._waiting.append((name, path, lambda: define(value, self)))
        return name

    # -- what has no description ---------------------------------------------------------------

    def refuse(self, value: Any, problem: Exception | None = None) -> JSON:
        """Raise that a value has no description, or if `lenient` describe it as such."""
        kind = type(value)
        name = (
            kind.__qualname__
            if kind.__module__ == "builtins"
            else f"{kind.__module__}.{kind.__qualname__}"
        )
        why = f" ({problem})" if problem else ""
        return self._give_up(f"an object of type {name} has no state to describe{why}", problem)

    def _give_up(self, what: str, problem: Exception | None) -> JSON:
        if self.lenient:
            return {"undescribed": what}
        path = "".join(self._trail)
        raise FingerprintError(
            path if len(path) < 500 else f"{path[:500]}...", what, REMEDIES
        ) from problem


_CONTAINERS: dict[type, Callable[[Any, Any], JSON]] = {
    list: Describer._items,  # noqa: SLF001 - the table of the class above
    tuple: Describer._items,  # noqa: SLF001
    dict: Describer._pairs,  # noqa: SLF001
    MappingProxyType: lambda walk, value: walk.value(dict(value)),
    set: Describer._members,  # noqa: SLF001
    frozenset: Describer._members,  # noqa: SLF001
    np.ndarray: describe_array,
    np.memmap: describe_array,
}
