"""The outside reads of a function's code: names and chains of names, and their values."""

from __future__ import annotations

import dis
import functools
import importlib.util
import sys
from dataclasses import dataclass
from types import CodeType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tundish.loader.plan.safe_introspection import UNKNOWN, attribute_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_CAPTURED = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_BETWEEN = {"PUSH_NULL", "PRECALL", "NOP", "EXTENDED_ARG", "CACHE"}
_MOVING = {"SWAP", "POP_TOP", "ROT_TWO", "NOP", "EXTENDED_ARG", "CACHE"}


@dataclass(frozen=True)
class Read:
    """A name and the attributes read from it, ``name.a.b``.

    Parameters
    ----------
    kind : {"global", "captured", "local", "import", "super"}
        How the name is looked up. For an import within the function, ``names`` begins with the module, with leading
        dots if it is relative; for "super" it is the attributes of ``super()``.
    names : tuple of str
        The chain of names.
    bare : bool
        True if it is called immediately, with no argument or only None.
    """

    kind: Literal["global", "captured", "local", "import", "super"]
    names: tuple[str, ...]
    bare: bool = False


@functools.lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> tuple[Read, ...]:
    """Return what code reads, without the code nested in it."""
    return tuple(dict.fromkeys(_reads(list(dis.get_instructions(code)))))


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Return the code of functions defined within a function's code."""
    return (each for each in code.co_consts if isinstance(each, CodeType))


@functools.lru_cache(maxsize=4096)
def imported_by(code: CodeType) -> dict[str, tuple[str, ...]]:
    """Map local names to what code imports them as: the module, and the names taken from it."""
    return _imported(list(dis.get_instructions(code)))


def _reads(instructions: list[dis.Instruction]) -> Iterator[Read]:
    imported = _imported(instructions)
    for at, one in enumerate(instructions):
        if one.opname in _GLOBAL and one.argval == "super":
            yield from _above(instructions[at + 1 : at + 6])
        elif one.opname in _GLOBAL:
            yield _chain("global", (one.argval,), instructions, at + 1)
            continue
        fast = one.opname.startswith(("LOAD_FAST", "STORE_FAST_LOAD_FAST"))
        if not fast and one.opname not in _CAPTURED:
            continue
        name = one.argval
        if isinstance(name, tuple):  # two in one, since 3.13
            if one.opname.startswith("LOAD_FAST") and name[0] not in imported:
                yield Read("local", (name[0],))
            name = name[-1]
        if name in imported:
            yield _chain("import", imported[name], instructions, at + 1)
        else:
            yield _chain("local" if fast else "captured", (name,), instructions, at + 1)


def _above(instructions: list[dis.Instruction]) -> Iterator[Read]:
    """Yield the attributes that instructions read from ``super()``."""
    for one in instructions:
        if one.opname in _ATTRIBUTE or one.opname.startswith("LOAD_SUPER"):
            yield Read("super", (one.argval,))
            return


def _chain(
    kind: Literal["global", "captured", "local", "import"],
    names: tuple[str, ...],
    instructions: list[dis.Instruction],
    at: int,
) -> Read:
    while at < len(instructions) and instructions[at].opname in _ATTRIBUTE:
        names = (*names, instructions[at].argval)
        at += 1
    while at < len(instructions) and instructions[at].opname in _BETWEEN:
        at += 1
    given = 0
    if at < len(instructions) and instructions[at].opname == "LOAD_CONST":
        given = int(instructions[at].argval is None)  # None counts as no argument
        while given and at + 1 < len(instructions) and instructions[at + 1].opname in _BETWEEN:
            at += 1
        at += given
    called = at < len(instructions) and instructions[at].opname == "CALL"
    return Read(kind, names, called and instructions[at].arg == given)


def _imported(instructions: list[dis.Instruction]) -> dict[str, tuple[str, ...]]:
    """Map local names to what instructions import them as."""
    found: dict[str, tuple[str, ...]] = {}
    base: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    several = False
    for at, one in enumerate(instructions):
        if one.opname == "IMPORT_NAME":
            several = bool(instructions[at - 1].argval)  # from ... import these
            level = instructions[at - 2].argval or 0  # of a relative import
            name = "." * level + one.argval
            base = (name,) if several else (name.partition(".")[0],)
            path = base
        elif one.opname == "IMPORT_FROM" and base:
            path = (*(base if several else path), one.argval)
        elif one.opname.startswith(("STORE_FAST", "STORE_DEREF")) and path:
            name = one.argval[0] if isinstance(one.argval, tuple) else one.argval
            found[name] = path
            path = ()
        elif one.opname not in _MOVING:
            base = path = ()
    return found


class Names:
    """The values of names in a function, as far as they have any."""

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
        """Return the names of a function defined inside this one, with local names of its own.

        Parameters
        ----------
        imported : mapping
            What the enclosing code imports its local names as.
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
        """Return the value of a name, if it has one now."""
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
        """Return a module if it is loaded; leading dots in its name mean a relative import."""
        if name.startswith("."):
            try:
                name = importlib.util.resolve_name(name, self._globals.get("__package__") or "")
            except ImportError:
                return UNKNOWN
        return sys.modules.get(name, UNKNOWN)

    def above(self, name: str) -> Any:
        """Return the attribute of ``super()`` with a name."""
        kind = self.look_up("captured", "__class__")
        if self._holder is None or kind is UNKNOWN:
            return UNKNOWN
        return attribute_of(self._holder, name, behind=kind)


@dataclass(frozen=True, order=True)
class GlobalName:
    """A global variable, or an attribute reached from one.

    Parameters
    ----------
    module : str
        The module of the variable.
    names : tuple of str
        The variable, and the attributes that lead to this value.
    """

    module: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.module, *self.names))

    @property
    def holder(self) -> GlobalName:
        """The global of which this is an attribute."""
        return GlobalName(self.module, self.names[:-1])

    def of(self, name: str) -> GlobalName:
        """Return an attribute of this global."""
        return GlobalName(self.module, (*self.names, name))
