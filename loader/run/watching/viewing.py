"""What the verdict is told of a plan: a view of its operators, by the names that statistics use."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from tundish.loader.operators.batching import Batch
from tundish.loader.operators.cache import Cache
from tundish.loader.operators.costing import Cost
from tundish.loader.operators.files import FileRecords, Indexed
from tundish.loader.operators.generator import Generator
from tundish.loader.operators.grouping import Groups
from tundish.loader.operators.map import Map
from tundish.loader.operators.options import options_of
from tundish.loader.operators.shuffle import Shuffle
from tundish.loader.operators.snapshot import Snapshot
from tundish.loader.plan.node import OwnFunction, function_name
from tundish.loader.protocols.chains import chain_base, computes
from tundish.loader.protocols.operator import Operator
from tundish.loader.watch.view import PlanNode, PlanView

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context

__all__ = ["view_of"]


def view_of(context: Context) -> PlanView:
    """Describe an iterator's plan for `tundish.loader.watch.verdict.explain`.

    Parameters
    ----------
    context : Context
        Of the iterator: it names the operators.
    """
    nodes = tuple(_viewed(node, context) for node in context.nodes if not node.transparent)
    options = options_of(context.root)
    ordered = options.deterministic is not False and not any(n.unordered for n in context.nodes)
    return PlanView(nodes, ordered)


def _viewed(node: Operator, context: Context) -> PlanNode:
    shuffles = isinstance(node, Shuffle)
    held = isinstance(node, Shuffle) and (computes(node.up) or chain_base(node.up)[1])
    rows = 1 if node.origin == "input" else 0
    return PlanNode(
        name=context.label(node),
        op=node.label,
        inputs=tuple(context.label(_shown(up)) for up in node.inputs),
        function=_function(node),
        each=node.elementwise and node.calls,
        drops=node.drops,
        draws=_draws(node),
        shuffles=shuffles,
        permutes=isinstance(node, Shuffle) and node.window is None,
        window=(node.window or 0) if isinstance(node, Shuffle) and held else 0,
        rows=node.size if isinstance(node, Batch) else rows,
        keeps=isinstance(node, (Cache, Snapshot)),
        grouped=isinstance(node, Indexed) and node.format.grouped,
        inner=_is_inner(node),
        reads=_reads(node),
        count=node.cardinality,
    )


def _shown(node: Operator) -> Operator:
    """A node, or the first one below it that does something."""
    while node.transparent:
        (node,) = node.inputs
    return node


def _function(node: Operator) -> str:
    for each in fields(node):
        value = getattr(node, each.name)
        if callable(value) and not isinstance(value, (OwnFunction, type, Operator)):
            return function_name(value).rpartition("<locals>.")[2].strip("<>")
    return ""


def _is_inner(node: Operator) -> bool:
    """Whether a method put the operator before another: nothing can be put between the two."""
    function = node.function if isinstance(node, Map) else None
    return isinstance(node, (Cost, Groups)) or type(function).__module__.startswith(
        "tundish.loader."
    )


def _draws(node: Operator) -> bool:
    # What a flat_map's function makes may draw; that is said where it matters.
    return (node.seeded or node.seedless) and not (node.expands or isinstance(node, Shuffle))


def _reads(node: Operator) -> str:
    if isinstance(node, Generator):
        return "generator"
    return "stream" if node.expands or isinstance(node, FileRecords) else ""
