"""Evaluators of whole stages: functions from an item to its element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.protocols.chains import computes
from tundish.loader.protocols.operator import Unary
from tundish.loader.run.evaluating.values import Maker, OpenInner

if TYPE_CHECKING:
    from tundish.loader.operators.flat_map import FlatMap
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Gather, Hand, Identity, Sweep, Value
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.watching.timing import Timer


def compile_values(
    top: Operator,
    context: Context,
    open_inner: OpenInner,
    timer: Timer | None = None,
    *,
    hand: Hand = None,
) -> tuple[Value, Identity]:
    """Compile the evaluator of a node; its items may have been computed somewhere upstream.

    Parameters
    ----------
    top : Operator
        The node whose elements are computed.
    context : Context
        The iterator's context.
    open_inner : callable
        Opens the inner dataset of a `flat_map`.
    timer : Timer, optional
        Times each node.
    hand : callable, optional
        How an element made by a user's function is handed on: `lent`, `owned`, or None for as it is.
    """
    looks = context.looks if timer is None else (*context.looks, timer.look)
    maker = Maker(context, open_inner, looks)
    if top.noting:
        assert isinstance(top, Unary)
        return maker.noted(top), maker.identity(top.up)  # the items are its input's
    with maker.handing(hand):
        value = maker.value(top)
    gathered = computes(top) and not top.elementwise
    return maker.at_hand(value) if gathered else value, maker.identity(top)


def compile_gather(top: Operator, context: Context, open_inner: OpenInner) -> Gather | None:
    """Compile a function from many refs of a node to columns; None if each element is made separately."""
    return None if top.noting else Maker(context, open_inner).gather(top)


def compile_inner(node: FlatMap, context: Context, open_inner: OpenInner) -> tuple[Value, Identity]:
    """Compile a flat_map's two closures: the inner plan of an input item, and the item's identity."""
    maker = Maker(context, open_inner, context.looks)
    return node.inner_dataset(maker), maker.identity(node.up)


def compile_sweep(top: Operator, base: Operator, context: Context) -> Sweep | None:
    """Compile a generator of the elements of a range of refs; None if the plan is not simple enough.

    It is one plain function over numbers: for a cheap user function the closures of `compile_values` would cost
    more than the function itself.
    """
    top, base = _past_settings(top), _past_settings(base)
    numbers = None if base.inputs else base.progression  # shuffled ones are no range of refs
    if numbers is None or not top.inputs or _past_settings(top.inputs[0]) is not base:
        return None
    return top.sweep(numbers, context)


def _past_settings(node: Operator) -> Operator:
    while node.transparent and not node.makes:
        node = node.inputs[0]
    return node
