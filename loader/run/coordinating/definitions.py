"""What the stages of an iterator compute, by the numbers that its workers know them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


class Definition(NamedTuple):
    """What a stage computes.

    Parameters
    ----------
    node : Operator
        Its last one.
    base : Operator
        Whose items it takes.
    pass_ : int
        Of `base`.
    """

    node: Operator
    base: Operator
    pass_: int


class Definitions:
    """The stages that there are; the number of one that is done with is given again."""

    def __init__(self) -> None:
        self._defined: dict[int, Definition] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._defined)

    def __getitem__(self, number: int) -> Definition:
        return self._defined[number]

    def add(self, definition: Definition) -> int:
        """A number for a new stage."""
        number = self._free.pop() if self._free else len(self._defined)
        self._defined[number] = definition
        return number

    def remove(self, number: int) -> None:
        """A stage is done with."""
        del self._defined[number]
        self._free.append(number)
