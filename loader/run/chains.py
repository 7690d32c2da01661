"""Where along a plan elements are computed.

Operators that only choose or order elements take items as they are, computed or not. A `map` below
such an operator is *deferred*: it runs when its items have to be computed. Where items may arrive
computed is a matter of the plan alone, and both planner and evaluators ask here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.operators.elementwise import Filter, Map
from tundish.loader.protocols.operator import Passing

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

ELEMENTWISE = (Map, Filter, Passing)


def drops(node: Operator) -> bool:
    """Whether an operator may leave out an element because of its value."""
    return isinstance(node, Filter) or (isinstance(node, Map) and node.on_error == "skip")


def run_of(node: Operator) -> list[Operator]:
    """The run of map and filter that ends at a node."""
    found: list[Operator] = []
    while isinstance(node, ELEMENTWISE):
        found.append(node)
        node = node.up
    return found


def chain_base(node: Operator) -> tuple[Operator, bool]:
    """The first node below a run of map and filter, and whether the run may drop elements."""
    run = run_of(node)
    return (run[-1].inputs[0] if run else node), any(map(drops, run))


def computes(node: Operator) -> bool:
    """Whether the items of a node's stream have been computed at this node.

    Asked of the input of an operator that is not map or filter: a run that may drop elements is
    computed as a whole, by one stage.
    """
    if node.positional:
        return False
    if isinstance(node, ELEMENTWISE):
        return chain_base(node)[1]
    return node.computing


def defers(node: Operator) -> bool:
    """Whether computed items of a node's stream may have been computed below a map of its."""
    if node.positional or computes(node):
        return False
    if not node.flat and node.origin != "part":  # its items are put together, not passed on
        return False
    if isinstance(node, ELEMENTWISE):
        return any(isinstance(n, Map) for n in run_of(node)) or defers(chain_base(node)[0])
    return any(map(defers, node.inputs))
