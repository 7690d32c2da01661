"""Marks and notes on errors: the node where it was raised, the elements that were given up."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NoReturn

from tundish.loader.plan.drawing import explain_missing_rng
from tundish.loader.protocols.raised import element_error, opened

if TYPE_CHECKING:
    from tundish.loader.protocols.items import Ref

NODE_MARK = "_tundish_node"
STOPPED = "the function raised StopIteration"


def raise_from(error: BaseException, label: str) -> NoReturn:
    """Raise an error again, marked with the node it came from; the first mark is right.

    A StopIteration becomes a RuntimeError, as PEP 479 has it: nothing ends silently. What is no
    `Exception` becomes one, unless it is an interrupt: see `tundish.loader.protocols.raised`.
    """
    if isinstance(error, StopIteration):
        cause, error = error, RuntimeError(STOPPED)
        error.__cause__ = cause
    found = element_error(error)
    explain_missing_rng(found)  # of what no plan told
    if not hasattr(found, NODE_MARK):
        with contextlib.suppress(AttributeError):  # a type without a __dict__
            setattr(opened(found), NODE_MARK, label)
    raise found


def give_up(error: BaseException, gathered: list[Ref]) -> None:
    """Note on an error which elements of its batch were given up with it."""
    if gathered:
        shown = ", ".join(map(str, gathered[:16])) + (", ..." if len(gathered) > 16 else "")
        note = f"tundish: {len(gathered)} element(s) of the batch before it were given up: {shown}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
