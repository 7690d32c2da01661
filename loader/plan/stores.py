"""The changes that a function's code makes: names it stores to, objects it mutates, and attributes it reads from results."""

from __future__ import annotations

import dis
import functools
from dataclasses import dataclass
from types import CodeType

from tundish.loader.plan.reads import Read, imported_by, reads_of

_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_CONTAINER = {"STORE_SUBSCR": 1, "DELETE_SUBSCR": 1, "STORE_SLICE": 2}
"""Instructions that change a container, and how many stack entries lie above it."""

_CHANGING = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "difference_update",
        "discard",
        "extend",
        "extendleft",
        "fill",
        "insert",
        "intersection_update",
        "itemset",
        "partition",
        "pop",
        "popitem",
        "popleft",
        "put",
        "remove",
        "resize",
        "reverse",
        "rotate",
        "setdefault",
        "setflags",
        "sort",
        "subtract",
        "symmetric_difference_update",
        "update",
        "__setitem__",
        "__delitem__",
        "__setattr__",
    ]
)
"""Methods that change the dict, list, set or array that they belong to."""


@dataclass(frozen=True)
class Stores:
    """The changes that code makes, without the code nested in it.

    Parameters
    ----------
    variables : frozenset of str
        Globals that it assigns.
    chains : tuple of Read
        Chains of names whose value it changes, or whose last attribute it assigns.
    own : frozenset of str
        Attributes that it assigns on its first argument, which is an instance if it is a method.
    attributes : frozenset of str
        Attributes that it assigns on other values without such a name.
    """

    variables: frozenset[str]
    chains: tuple[Read, ...]
    own: frozenset[str]
    attributes: frozenset[str]


@functools.lru_cache(maxsize=4096)
def stores_of(code: CodeType) -> Stores:
    """Return what code changes, as far as its instructions show without running it."""
    instructions = list(dis.get_instructions(code))
    chains = _Chains(code, instructions)
    variables: set[str] = set()
    changed: list[Read] = []
    own: set[str] = set()
    attributes: set[str] = set()
    first = code.co_varnames[:1] if code.co_argcount else ()
    if any(set(first) & set(_variables(one)) for one in instructions if "STORE_FAST" in one.opname):
        first = ()  # it becomes another value
    for at, one in enumerate(instructions):
        if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            variables.add(one.argval)
        elif one.opname in _CONTAINER:
            found = chains.below(at, _CONTAINER[one.opname])
            changed += [found] if found is not None else []
        elif one.opname in ("STORE_ATTR", "DELETE_ATTR"):
            holder = chains.below(at, 0) or chains.augmented(at)
            if holder is not None and holder.kind == "local" and holder.names == first:
                own.add(one.argval)
            elif holder is None or holder.kind == "local":
                attributes.add(one.argval)
            else:
                changed.append(Read(holder.kind, (*holder.names, one.argval)))
    for read in reads_of(code):
        if len(read.names) > 1 and read.names[-1] in _CHANGING:
            changed.append(chains.meant(Read(read.kind, read.names[:-1])))
    named = tuple(dict.fromkeys(each for each in changed if each.kind != "local"))
    return Stores(frozenset(variables), named, frozenset(own), frozenset(attributes))


@functools.lru_cache(maxsize=4096)
def asked_attributes(code: CodeType) -> frozenset[str]:
    """Return the attributes that code reads from arguments, results and other values without a global name."""
    instructions = list(dis.get_instructions(code))
    imported = imported_by(code)
    found: set[str] = set()
    named = False  # whether the chain at hand begins with a name of the module
    for one in instructions:
        if one.opname.startswith(_ATTRIBUTE):
            if not named:
                found.add(one.argval)
        elif one.opname not in ("EXTENDED_ARG", "CACHE", "NOP"):
            named = one.opname in _GLOBAL or (
                one.opname.startswith("LOAD_FAST") and one.argval in imported
            )
    return frozenset(found)


class _Chains:
    """Chains of names, by the stack position of their value."""

    def __init__(self, code: CodeType, instructions: list[dis.Instruction]) -> None:
        self._instructions = instructions
        self._imported = imported_by(code)
        self._meant: dict[str, Read] = {}
        for at, one in enumerate(instructions):
            if one.opname == "STORE_FAST" and one.argval not in self._imported:
                found = self.below(at, 0)
                if found is not None and found.kind != "local":
                    self._meant[one.argval] = found  # config = settings.CONFIG

    def meant(self, read: Read) -> Read:
        """Return a chain of attributes with its local variable replaced by the expression assigned to it."""
        first = self._meant.get(read.names[0]) if read.kind == "local" else None
        return read if first is None else Read(first.kind, (*first.names, *read.names[1:]))

    def below(self, at: int, depth: int) -> Read | None:
        """Return the chain whose value is `depth` entries down the stack before an instruction."""
        height = 0
        for before in range(at - 1, -1, -1):
            one = self._instructions[before]
            if height == -depth:
                return self._ending(before)
            if height < -depth or one.is_jump_target:
                return None
            height -= dis.stack_effect(one.opcode, one.arg, jump=False)
        return None

    def augmented(self, at: int) -> Read | None:
        """Return the chain one of whose attributes is assigned as in ``chain.name += 1``; None if it is not of this form."""
        store = self._instructions[at]
        if at and self._instructions[at - 1].opname == "SWAP":
            for before in range(at - 2, 0, -1):
                one, after = self._instructions[before], self._instructions[before + 1]
                if one.opname == "COPY" and (after.opname, after.argval) == (
                    "LOAD_ATTR",
                    store.argval,
                ):
                    return self._ending(before - 1)
        return None

    def _ending(self, at: int) -> Read | None:
        """Return the chain that an instruction completes; for an item, the chain of its container."""
        names: tuple[str, ...] = ()
        one = self._instructions[at]
        while one.opname in ("LOAD_ATTR", "CACHE", "EXTENDED_ARG") and at:
            names = (one.argval, *names) if one.opname == "LOAD_ATTR" else names
            at -= 1
            one = self._instructions[at]
        if one.opname == "BINARY_SUBSCR" or (one.opname == "BINARY_OP" and one.argrepr == "[]"):
            return self.below(at, 1)
        if one.opname in _GLOBAL:
            return Read("global", (one.argval, *names))
        if "LOAD_FAST" in one.opname:
            name = _variables(one)[-1]
            if name in self._imported:
                return Read("import", (*self._imported[name], *names))
            return self.meant(Read("local", (name, *names)))
        return None


def _variables(one: dis.Instruction) -> tuple[str, ...]:
    """Return the local variables of an instruction; Python 3.13 has some for two at once."""
    return one.argval if isinstance(one.argval, tuple) else (one.argval,)
