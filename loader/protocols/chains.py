"""Chains of elementwise operators, and where their elements are computed.

Operators that only choose or order elements accept items computed or not. A `map` before such an operator is
*deferred*: it runs when its items have to be computed. Where items may arrive computed depends on the plan alone;
planner and evaluators both use these functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


def run_of(node: Operator) -> list[Operator]:
    """Return the chain of elementwise operators that ends at a node, last operator first."""
    found: list[Operator] = []
    while node.elementwise:
        found.append(node)
        node = node.inputs[0]
    return found


def chain_base(node: Operator) -> tuple[Operator, bool]:
    """Return the first node before a chain, and True if the chain may drop elements."""
    run = run_of(node)
    return (run[-1].inputs[0] if run else node), any(each.drops for each in run)


def computes(node: Operator) -> bool:
    """Return True if a node's stream gives items that were computed at this node.

    Asked about the input of an operator that is not elementwise: a chain that may drop elements is computed as a whole,
    by one stage.
    """
    if node.positional:
        return False
    return chain_base(node)[1] if node.elementwise else node.computing


def recomputes(node: Operator) -> bool:
    """Return True if a stage that ends at a node evaluates items that arrive computed, too, and passes none on."""
    return node.noting or chain_base(node)[1] or defers(node)


def defers(node: Operator) -> bool:
    """Return True if items of a node's stream may have been computed before one of its deferred maps."""
    if node.positional or computes(node):
        return False
    if not node.flat and node.origin != "part":  # its items are put together, not passed on
        return False
    if node.elementwise:
        return any(each.calls for each in run_of(node)) or defers(chain_base(node)[0])
    return any(map(defers, node.inputs))
