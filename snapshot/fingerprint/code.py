"""Descriptions of functions' code by what it does, independent of location and layout.

Line numbers, file names, docstrings, blank lines, comments and the names of local variables do not
count. Bytecode does, so descriptions are comparable within one minor version of Python.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from tundish.snapshot.fingerprint.keys import digest_of

_LAYOUT = {"NOP", "EXTENDED_ARG", "CACHE", "RESUME"}
_ABOUT_ITSELF = {
    "__doc__",
    "__qualname__",
    "__module__",
    "__firstlineno__",
    "__static_attributes__",
}
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_CAPTURED = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_HAS_DOCSTRING = 0x4000000  # a flag of code since Python 3.13
_SMALL_INT = "LOAD_SMALL_INT"  # since Python 3.14


@dataclass(frozen=True)
class OutsideRead:
    """A reference of code to something outside: a global, a captured variable, or an import.

    ``names`` are the variable and the attributes that are read from it; for an import, the
    module and the names taken from it.
    """

    kind: str
    names: tuple[str, ...]
    level: int = 0


@dataclass(frozen=True)
class Code:
    """A code object: a digest of its instructions, its constants in order of use, and its outside references."""

    digest: str
    constants: tuple[Any, ...]
    """Constants as they are; code within this one as `Code`."""
    reads: tuple[OutsideRead, ...]
    """References of this code alone; `every_read` has those of the code within it, too."""

    def every_read(self) -> Iterator[OutsideRead]:
        """Yield the references of this code and of the code nested in it."""
        yield from self.reads
        for constant in self.constants:
            if isinstance(constant, Code):
                yield from constant.every_read()


@functools.lru_cache(maxsize=4096)
def code_of(code: CodeType) -> Code:
    """Analyse a code object."""
    instructions = _instructions(code)
    place = _places(code, instructions)
    text: list[Any] = [
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags & ~_HAS_DOCSTRING,
        code.co_varnames[: _arguments(code)],
        _handlers(code, place),
    ]
    constants: list[Any] = []
    for one in instructions:
        if one.opcode in dis.hasconst or one.opname == _SMALL_INT:
            constants.append(
                code_of(one.argval) if isinstance(one.argval, CodeType) else one.argval
            )
            text.append(one.opname)
        elif one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            text.append((one.opname, place(one.argval)))
        elif one.opcode in dis.hasname or one.opcode in dis.hasfree:
            text.append((one.opname, one.argval))
        else:
            text.append((one.opname, one.arg))
    return Code(digest_of(repr(text)), tuple(constants), tuple(_reads(instructions)))


def _arguments(code: CodeType) -> int:
    stars = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_argcount + code.co_kwonlyargcount + stars


def _instructions(code: CodeType) -> list[dis.Instruction]:
    """Return the instructions without those of layout, and without what a class or module says of itself."""
    found: list[dis.Instruction] = []
    for one in dis.get_instructions(code):
        if one.opname in _LAYOUT:
            continue
        if one.opname == "STORE_NAME" and one.argval in _ABOUT_ITSELF and _is_plain(found[-1]):
            found.pop()
            continue
        found.append(one)
    return found


def _is_plain(one: dis.Instruction) -> bool:
    """Return True if an instruction loads a constant, or the module's name."""
    return one.opcode in dis.hasconst or one.opname in (_SMALL_INT, "LOAD_NAME")


def _places(code: CodeType, instructions: list[dis.Instruction]) -> Any:
    """Convert byte offsets to numbers of instructions, which do not depend on omitted ones."""
    offsets = [one.offset for one in instructions]
    numbers = dict(zip(offsets, range(len(offsets)), strict=True))

    def place(offset: int) -> int:
        while offset not in numbers and offset < len(code.co_code):
            offset += 2
        return numbers.get(offset, len(offsets))

    return place


def _handlers(code: CodeType, place: Any) -> list[tuple[Any, ...]]:
    """Return the exception table: the guarded instructions, and the handlers of their errors."""
    table = iter(code.co_exceptiontable)
    found = []
    for first in table:
        start = _number(first, table)
        length, target, how = (_number(next(table), table) for _ in range(3))
        found.append((place(2 * start), place(2 * (start + length)), place(2 * target), how))
    return found


def _number(byte: int, rest: Iterator[int]) -> int:
    value = byte & 63
    while byte & 64:
        byte = next(rest)
        value = value << 6 | byte & 63
    return value


def _reads(instructions: list[dis.Instruction]) -> Iterator[OutsideRead]:
    seen: set[OutsideRead] = set()
    for read in _every_read(instructions):
        if read not in seen:
            seen.add(read)
            yield read


def _every_read(instructions: list[dis.Instruction]) -> Iterator[OutsideRead]:
    for at, one in enumerate(instructions):
        if one.opname in _GLOBAL:
            yield OutsideRead("global", (one.argval, *_attributes(instructions, at + 1)))
        elif one.opcode in dis.hasfree and one.opname in _CAPTURED:
            yield OutsideRead("captured", (one.argval, *_attributes(instructions, at + 1)))
        elif one.opname == "IMPORT_NAME":
            level, taken = instructions[at - 2].argval, instructions[at - 1].argval
            yield OutsideRead("import", (one.argval, *(taken or ())), level or 0)


def _attributes(instructions: list[dis.Instruction], at: int) -> Iterator[str]:
    while at < len(instructions) and instructions[at].opname in _ATTRIBUTE:
        yield instructions[at].argval
        at += 1
