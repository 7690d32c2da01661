"""Choice of the operators of a plan that are counted and timed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tundish.loader.protocols.chains import computes

if TYPE_CHECKING:
    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.watch.watch import StageMeter


def is_watched(options: Options) -> bool:
    """Return True if times are measured: not if ``StatsOptions.enabled`` is False or ``TUNDISH_WATCH=0``."""
    return options.stats.enabled is not False and os.environ.get("TUNDISH_WATCH") != "0"


def measured_plan(root: Operator, options: Options, *, edges: bool = True) -> Operator:
    """Return the plan with its edges measured as its options say; this does not change an iterator's state.

    Parameters
    ----------
    root, options
        The plan, and its options.
    edges : bool
        Whether every edge is measured where the options want it.
    """
    watched, edges = is_watched(options), edges and bool(options.stats.latency_all_edges)
    if watched and not edges:
        return root
    from tundish.loader.operators.measuring import (  # noqa: PLC0415 - most plans are as they are
        with_all_edges,
        without_measuring,
    )

    return with_all_edges(root) if watched else without_measuring(root)


def meter_of(
    node: Operator, context: Context, where: str, computed: Operator | None = None
) -> StageMeter:
    """Make the meter of the stage that ends at a node; `computed` is the node at which another stage ends."""
    if context.watch.is_inner:
        return context.watch.meter("", (), where)
    nodes = [
        (context.label(each), each.calls_each, each.seeded) for each in evaluated(node, computed)
    ]
    return context.watch.meter(context.label(node.acting), nodes, where)


def evaluated(node: Operator, computed: Operator | None = None) -> list[Operator]:
    """Return the nodes that a stage evaluates, from its source to its last, without those up to `computed`."""
    if node is computed:
        return []
    found: list[Operator] = []
    if computes(node) and not (node.noting or node.elementwise):
        if node.expands and not computes(node.inputs[0]):
            # Its inputs are made where their datasets are opened.
            found = evaluated(node.inputs[0], computed)
        return [*found, node]  # it is computed upstream: the stage only puts it into place
    for up in node.inputs:
        within = up.elementwise and (node.elementwise or node.noting)
        if within or not computes(up):
            found += evaluated(up, computed)
    return found if node.transparent else [*found, node]
