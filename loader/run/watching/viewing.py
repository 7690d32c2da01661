"""A summary of a plan for the verdict: its operators, by the names that statistics use."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import OwnFunction, function_name
from tundish.loader.protocols.chains import chain_base, computes
from tundish.loader.protocols.operator import Operator
from tundish.loader.watch.view import PlanNode, PlanView

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context


def view_of(context: Context) -> PlanView:
    """Describe an iterator's plan for `tundish.loader.watch.verdict.explain`.

    Parameters
    ----------
    context : Context
        The iterator's context, which names the operators.
    """
    nodes = tuple(_viewed(node, context) for node in context.nodes if not node.transparent)
    options = options_of(context.root)
    ordered = options.deterministic is not False and not any(n.unordered for n in context.nodes)
    return PlanView(nodes, ordered)


def _viewed(node: Operator, context: Context) -> PlanNode:
    window: int | None = getattr(node, "window", None) if node.shuffles else None
    held = window is not None and any(computes(up) or chain_base(up)[1] for up in node.inputs)
    return PlanNode(
        name=context.label(node),
        op=node.label,
        inputs=tuple(context.label(up.acting) for up in node.inputs),
        function=_function(node),
        each=node.elementwise and node.calls,
        drops=node.drops,
        draws=(node.seeded or node.seedless) and not (node.expands or node.shuffles),
        shuffles=node.shuffles,
        permutes=node.shuffles and not node.holds,
        near=node.deals,
        units=_units(node),
        window=(window or 0) if held else 0,
        rows=node.made_of,
        keeps=node.keeps,
        grouped=node.grouped,
        inner=node.inner,
        reads=node.reads,
        serial=getattr(node, "in_turn", 0) == 1,
        stays=node.stays,
        asks=node.noting and node.dynamic and not node.keeps,
        count=node.cardinality,
    )


def _units(node: Operator) -> int:
    sizes = node.unit_sizes if node.grouped else None
    return 0 if sizes is None else len(sizes)


def _function(node: Operator) -> str:
    for each in fields(node):
        value = getattr(node, each.name)
        if callable(value) and not isinstance(value, (OwnFunction, type, Operator)):
            return function_name(value).rpartition("<locals>.")[2].strip("<>")
    return ""
