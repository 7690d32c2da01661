"""What names mean in a function, without running anything."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Mapping
from types import FunctionType, MappingProxyType
from typing import Any

from tundish.loader.plan.unasked import UNKNOWN, attribute_of


class Names:
    """What names mean in a function; those that are given a value have no default."""

    _outer: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, function: FunctionType, holder: Any, given: frozenset[str]) -> None:
        code = function.__code__
        self._globals = function.__globals__
        self._cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        self._locals: dict[str, Any] = {}
        positional = code.co_varnames[: code.co_argcount]
        defaults = function.__defaults__ or ()
        self._locals.update(
            zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
        )
        self._locals.update(function.__kwdefaults__ or {})
        for name in given:
            self._locals.pop(name, None)
        if holder is not None and positional:
            self._locals[positional[0]] = holder
        self._holder = holder

    def within(self, imported: Mapping[str, tuple[str, ...]]) -> Names:
        """In a function that is made in it: its own names are others.

        Parameters
        ----------
        imported : mapping
            What names are imported as around it.
        """
        inner: Names = object.__new__(Names)
        inner._globals, inner._cells, inner._locals = self._globals, self._cells, {}
        inner._holder = self._holder
        modules = {
            name: functools.reduce(attribute_of, path, self._module(module))
            for name, (module, *path) in imported.items()
        }
        inner._outer = {**self._outer, **self._locals, **modules}
        return inner

    def look_up(self, kind: str, name: str) -> Any:
        """The value of a name, as far as it has one now."""
        if kind == "import":
            return self._module(name)
        if kind == "local":
            return self._locals.get(name, UNKNOWN)
        if kind == "captured":
            try:
                return self._cells[name].cell_contents
            except (KeyError, ValueError):  # of the function itself, or not yet set
                return self._locals.get(name, self._outer.get(name, UNKNOWN))
        return self._globals.get(name, UNKNOWN)

    def _module(self, name: str) -> Any:
        """A module, if it is loaded; dots before its name are those of a relative import."""
        if name.startswith("."):
            try:
                name = importlib.util.resolve_name(name, self._globals.get("__package__") or "")
            except ImportError:
                return UNKNOWN
        return sys.modules.get(name, UNKNOWN)

    def above(self, name: str) -> Any:
        """What ``super()`` has by a name."""
        kind = self.look_up("captured", "__class__")
        if self._holder is None or kind is UNKNOWN:
            return UNKNOWN
        return attribute_of(self._holder, name, behind=kind)
