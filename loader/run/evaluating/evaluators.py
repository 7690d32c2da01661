"""Evaluators: from an item to its element, for whole stretches of a plan."""

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
    """Make the evaluator of a node, from items that may be computed somewhere upstream.

    Parameters
    ----------
    top : Operator
        Whose elements are wanted.
    context : Context
        Of the iterator.
    open_inner : callable
        How a `flat_map`'s inner dataset is read.
    timer : Timer, optional
        What times each node.
    hand : callable, optional
        How a user's function that makes the elements hands them on.
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
    """Make what gives columns of many elements of a node, given their refs; None where each is made by itself."""
    return None if top.noting else Maker(context, open_inner).gather(top)


def compile_inner(node: FlatMap, context: Context, open_inner: OpenInner) -> tuple[Value, Identity]:
    """Make the closures of a flat_map's input: the inner plan of an item, and its identity."""
    maker = Maker(context, open_inner, context.looks)
    return node.inner_dataset(maker), maker.identity(node.up)


def compile_sweep(top: Operator, base: Operator, context: Context) -> Sweep | None:
    """Make a generator of the elements of a whole range of refs, where that is simple.

    One plain function over numbers: the closures of `compile_values` would cost more than a cheap
    function itself.
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
