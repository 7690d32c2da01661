"""Contiguous ranges of a plan, one for each of n machines, which together give the whole plan.

The cut is made as far downstream as index arithmetic reaches: after the last operator whose element p can be
found without computing those before it, and before operators that work on one element at a time. ``skip`` and
``take`` inserted there change positions and keep refs, so an element keeps the identity, and with it the random
numbers, that it has in the whole plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tundish.errors import RangeError
from tundish.loader.operators.choosing import Skip, Take
from tundish.loader.operators.options import options_of
from tundish.loader.plan.checks import check_count
from tundish.loader.plan.node import INFINITE_CARDINALITY, global_seed, walk
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.run.evaluating.effective import effective

if TYPE_CHECKING:
    from collections.abc import Iterator


def range_of(node: Operator, index: int, count: int) -> Operator:
    """Return the `index`-th of `count` contiguous ranges of a plan.

    Parameters
    ----------
    node : Operator
        The whole plan.
    index, count : int
        The number of the range, from 0, and how many ranges there are.

    Returns
    -------
    Operator
        The ranges of all indices, concatenated, have the elements of the whole plan with the same identities, and
        with the same random numbers if all ranges have the same seeds.

    Raises
    ------
    RangeError
        An operator depends on elements of more than one range.
    ValueError
        `index` is not in ``range(count)``.
    """
    check_range(index, count)
    if count == 1:
        return node
    base = base_of(node)
    start, stop = bounds(base.cardinality, index, count)
    return only(node, base, start, stop)


def check_range(index: int, count: int) -> tuple[int, int]:
    """Return `index` and `count`, or raise ValueError if they name no range."""
    count = check_count("the number of ranges", count, least=1)
    index = check_count("the index of a range", index)
    if not 0 <= index < count:
        raise ValueError(
            f"the index of a range must be from 0 to {count - 1} for {count} ranges, not {index}"
        )
    return index, count


def bounds(total: int, index: int, count: int) -> tuple[int, int]:
    """Return the bounds of a range; sizes of ranges differ by at most one.

    Examples
    --------
    >>> [bounds(10, index, 3) for index in range(3)]
    [(0, 3), (3, 6), (6, 10)]
    """
    return total * index // count, total * (index + 1) // count


def only(node: Operator, base: Operator, start: int, stop: int) -> Operator:
    """Return the plan over positions ``start..stop-1`` of `base`."""
    return over(node, base, Take(Skip(base, start) if start else base, stop - start))


def over(node: Operator, base: Operator, other: Operator) -> Operator:
    """Return the operators from `base` to `node` over another input; each of them has a single input."""
    if node is base:
        return other
    assert isinstance(node, Unary)
    return replace(node, up=over(node.up, base, other))


def base_of(node: Operator) -> Operator:
    """Return the operator whose positions are divided into ranges.

    Raises
    ------
    RangeError
        There is no such operator; the message names the operators that prevent it.
    """
    policy = options_of(node).on_error
    obstacles: list[str] = []
    while True:
        if node.one_by_one:
            node = node.inputs[0]
            continue
        obstacle = next(_obstacles(node, policy), None)
        if obstacle is None and not obstacles:
            return node
        if obstacle is not None:
            obstacles.append(obstacle)
        if not isinstance(node, Unary):
            raise RangeError(tuple(obstacles))
        node = node.up


def _obstacles(node: Operator, policy: str | None) -> Iterator[str]:
    """Yield the reasons why a node's positions cannot be divided."""
    if node.undivided:
        yield f"{node.label} {node.undivided}"
    elif node.awaited and not node.positional:
        yield f"{node.label} is not complete: write it first; then it can be divided like any source"
    elif not effective(node, policy).positional:
        yield f"{node.label} depends on elements of two ranges: put it after the snapshot"
    elif node.cardinality == INFINITE_CARDINALITY:
        yield f"{node.label} has no end: put take(n) after it"
    elif global_seed() is None:
        for below in walk(node, running=True):
            if below.seedless:
                yield f"{below.label} would draw another order for each range: give it a seed"
