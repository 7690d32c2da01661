"""Checks that the positions of a node are known, so that they can be permuted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.errors import SpecError
from tundish.loader.plan.node import walk, why_unnumbered

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

__all__ = ["check_positions", "may_permute", "no_permutation"]


def may_permute(node: Operator) -> bool:
    """Return True if ``shuffle(None)`` may stand after a node.

    A snapshot has random access once it is complete; that shows when an iterator is made.
    """
    return is_awaited(node) or (node.positional and node.cardinality >= 0)


def is_awaited(node: Operator) -> bool:
    """Return True if files upstream of a node are looked at first when an iterator is made."""
    return any(below.awaited for below in walk(node))


def check_positions(shuffle: Operator) -> None:
    """Refuse to permute what the files that are there now do not give positions.

    Raises
    ------
    SpecError
        What is upstream of the shuffle has no random access, or no end.
    """
    if shuffle.positional and shuffle.cardinality >= 0:
        return
    for node in reversed(list(walk(shuffle))):
        if node.unpositioned:
            raise SpecError(f"shuffle(None) permutes positions{node.unpositioned}")
    raise no_permutation(shuffle.inputs[0])


def no_permutation(node: Operator) -> SpecError:
    """Return the error of ``shuffle(None)`` after a node that has no positions."""
    return SpecError(
        "shuffle(None) permutes positions and needs a finite dataset with random access; "
        f"{node.label} has none{why_unnumbered(node)}; use shuffle(buffer_size)"
    )
