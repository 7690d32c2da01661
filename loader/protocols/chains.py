"""Chains of operators along a plan, and the places where elements are computed.

Operators that only choose or order elements take items as they are, computed or not. A `map` upstream of
such an operator is *deferred*: it runs when its items have to be computed. Where items may arrive
computed is a matter of the plan alone, and both planner and evaluators ask here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


def run_of(node: Operator) -> list[Operator]:
    """Return the chain of elementwise operators that ends at a node, from there upstream."""
    found: list[Operator] = []
    while node.elementwise:
        found.append(node)
        node = node.inputs[0]
    return found


def chain_base(node: Operator) -> tuple[Operator, bool]:
    """Return the first node upstream of a chain, and whether the chain may drop elements."""
    run = run_of(node)
    return (run[-1].inputs[0] if run else node), any(each.drops for each in run)


def computes(node: Operator) -> bool:
    """Return True if the items of a node's stream have been computed at this node.

    Asked of the input of an operator that is not elementwise: a chain that may drop elements is
    computed as a whole, by one stage.
    """
    if node.positional:
        return False
    return chain_base(node)[1] if node.elementwise else node.computing


def defers(node: Operator) -> bool:
    """Return True if computed items of a node's stream may have been computed upstream of a map of its."""
    if node.positional or computes(node):
        return False
    if not node.flat and node.origin != "part":  # its items are put together, not passed on
        return False
    if node.elementwise:
        return any(each.calls for each in run_of(node)) or defers(chain_base(node)[0])
    return any(map(defers, node.inputs))
