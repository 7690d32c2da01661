"""The forms of refs: what a node's `parts` takes apart may come from a state that was changed."""

from __future__ import annotations

from typing import Any

from tundish.errors import CheckpointError


def not_there(what: str) -> CheckpointError:
    """The error in the place of an element that a state names and nobody can make: only then it shows."""
    return CheckpointError(f"the state that was loaded names {what}, which is not there")


def numbered(ref: Any, size: int = 2) -> tuple[Any, ...]:
    """The entries of a ref that begins with a number.

    Raises
    ------
    ValueError
        It has not so many, or begins with something else.
    """
    if type(ref) is not tuple or len(ref) != size or type(ref[0]) is not int or ref[0] < 0:
        raise ValueError(f"it must be a number of at least 0 and {size - 1} more")
    return ref


def some(refs: Any) -> Any:
    """Refs of what an element is made of: there is at least one.

    Raises
    ------
    ValueError
        There is none.
    """
    if type(refs) is int or not len(refs):
        raise ValueError("it must name what it is made of")
    return refs


def within_one(ref: Any) -> list[tuple[int, Any]]:
    """The parts of what stands within one element of the input: ``(ref of that one, where)``.

    Raises
    ------
    ValueError
        It is no such pair; -1 is where an error in its place stands.
    """
    if type(ref) is not tuple or len(ref) != 2 or type(ref[1]) is not int or ref[1] < -1:
        raise ValueError("it must be what it is within, and where, an integer of at least -1")
    return [(0, ref[0])]


def sliced(ref: Any) -> list[tuple[int, Any]]:
    """The parts of what is made of slices: ``(number, ((ref, first, stop), ...))``.

    Raises
    ------
    ValueError
        It is no such pair, or a slice ends before it begins.
    """
    found = []
    for below, first, stop in some(numbered(ref)[1]):
        if type(first) is not int or type(stop) is not int or not 0 <= first <= stop:
            raise ValueError("its slices must be of some ref, from a number up to another")
        found.append((0, below))
    return found
