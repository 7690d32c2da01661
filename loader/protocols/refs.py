"""Refs, many at once and taken apart; one may come from a state that was changed, so its form is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tundish.errors import CheckpointError

Positions = range | np.ndarray
Refs = Sequence[Any] | np.ndarray


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


def ints(refs: Refs) -> Sequence[Any]:
    """Return refs as Python values."""
    return refs.tolist() if isinstance(refs, np.ndarray) else refs


def scaled(where: Positions, factor: int, offset: int) -> Positions:
    """Return ``where * factor + offset``."""
    if isinstance(where, range):
        return range(
            where.start * factor + offset, where.stop * factor + offset, where.step * factor
        )
    return where * factor + offset


def pieced(parts: list[tuple[Any, Refs]], count: int) -> Refs:
    """Put the refs of several parts, ``(places, refs)`` each, where each belongs."""
    if not parts:
        return []
    if len(parts) == 1:
        return parts[0][1]
    if all(isinstance(refs, (np.ndarray, range)) for _, refs in parts):
        array = np.empty(count, np.int64)
        for at, refs in parts:
            array[at] = np.asarray(refs)
        return array
    filled: list[Any] = [None] * count
    for at, refs in parts:
        for k, ref in zip(at.tolist(), ints(refs), strict=True):
            filled[k] = ref
    return filled
