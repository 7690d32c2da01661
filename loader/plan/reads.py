"""What a function's code asks of things outside of it: chains of names, such as ``np.random.rand``."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Literal

_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_CAPTURED = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_BETWEEN = {"PUSH_NULL", "PRECALL", "NOP", "EXTENDED_ARG", "CACHE"}
_MOVING = {"SWAP", "POP_TOP", "ROT_TWO", "NOP", "EXTENDED_ARG", "CACHE"}


@dataclass(frozen=True)
class Read:
    """A name, and the attributes that are asked of it at once.

    Parameters
    ----------
    kind : {"global", "captured", "local", "import", "super"}
        Where the name is looked up; of an import within the function, ``names`` begins with the
        module, after dots if it is relative; of "super" it is what ``super()`` is asked for.
    names : tuple of str
        The chain.
    bare : bool
        Whether it is called at once, without an argument, or with None alone.
    """

    kind: Literal["global", "captured", "local", "import", "super"]
    names: tuple[str, ...]
    bare: bool = False


@functools.lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> tuple[Read, ...]:
    """What code reads, without the code within it."""
    return tuple(dict.fromkeys(_reads(list(dis.get_instructions(code)))))


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """The code of functions that are made in a function."""
    return (each for each in code.co_consts if isinstance(each, CodeType))


@functools.lru_cache(maxsize=4096)
def imported_by(code: CodeType) -> dict[str, tuple[str, ...]]:
    """What local names are imported as, within code: the module, and what is taken of it."""
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
    """What is asked of ``super()``, which stands before these."""
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
        given = int(instructions[at].argval is None)  # which is as no argument
        while given and at + 1 < len(instructions) and instructions[at + 1].opname in _BETWEEN:
            at += 1
        at += given
    called = at < len(instructions) and instructions[at].opname == "CALL"
    return Read(kind, names, called and instructions[at].arg == given)


def _imported(instructions: list[dis.Instruction]) -> dict[str, tuple[str, ...]]:
    """What local names were imported as."""
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
