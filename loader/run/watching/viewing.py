"""What the verdict is told of a plan: a view of its operators, by the names that statistics use."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from tundish.loader.plan.batching import Batch
from tundish.loader.plan.costing import Cost
from tundish.loader.plan.elementwise import Filter, FlatMap, Map
from tundish.loader.plan.files.node import FileRecords, Indexed, Reads
from tundish.loader.plan.grouping import Groups
from tundish.loader.plan.node import Node, OwnFunction, function_name
from tundish.loader.plan.options import options_of
from tundish.loader.plan.order import Shuffle
from tundish.loader.plan.sources import Generator
from tundish.loader.plan.storing import Cache, Snapshot
from tundish.loader.run.chains import chain_base, computes, drops
from tundish.loader.watch.view import PlanNode, PlanView

if TYPE_CHECKING:
    from tundish.loader.run.context import Context

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
    ordered = options.deterministic is not False and not any(
        isinstance(node, Map) and node.deterministic is False for node in context.nodes
    )
    return PlanView(nodes, ordered)


def _viewed(node: Node, context: Context) -> PlanNode:
    shuffles = isinstance(node, Shuffle)
    held = isinstance(node, Shuffle) and (computes(node.up) or chain_base(node.up)[1])
    rows = 1 if node.origin == "input" else 0
    return PlanNode(
        name=context.label(node),
        op=node.label,
        inputs=tuple(context.label(_shown(up)) for up in node.inputs),
        function=_function(node),
        each=isinstance(node, (Map, Filter)),
        drops=drops(node),
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


def _shown(node: Node) -> Node:
    """A node, or the first one below it that does something."""
    while node.transparent:
        (node,) = node.inputs
    return node


def _function(node: Node) -> str:
    for each in fields(node):
        value = getattr(node, each.name)
        if callable(value) and not isinstance(value, (OwnFunction, type, Node)):
            return function_name(value).rpartition("<locals>.")[2].strip("<>")
    return ""


def _is_inner(node: Node) -> bool:
    """Whether a method put the operator before another: nothing can be put between the two."""
    function = node.function if isinstance(node, Map) else None
    return isinstance(node, (Cost, Groups)) or type(function).__module__.startswith(
        "tundish.loader."
    )


def _draws(node: Node) -> bool:
    # What a flat_map's function makes may draw; that is said where it matters.
    return (node.seeded or node.seedless) and not isinstance(node, (Shuffle, FlatMap))


def _reads(node: Node) -> str:
    if isinstance(node, Generator):
        return "generator"
    return "stream" if isinstance(node, (Reads, FileRecords, FlatMap)) else ""
