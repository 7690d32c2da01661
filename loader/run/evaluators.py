"""Evaluators: from an item to its element, for whole stretches of a plan.

The closures of all families of operators are joined here; the planner, workers and whoever makes
again what a state names compile theirs from these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.counting import Range
from tundish.loader.operators.elementwise import Enumerate, FlatMap, Map
from tundish.loader.operators.options import Prefetch, WithOptions
from tundish.loader.protocols.blame import STOPPED
from tundish.loader.protocols.chains import computes
from tundish.loader.protocols.operator import Hand, Unary, Value
from tundish.loader.protocols.ownership import SCALARS, owned_result
from tundish.loader.protocols.raised import element_error
from tundish.loader.protocols.results import checked
from tundish.loader.run.files import values as files
from tundish.loader.run.operators import (
    batching,
    elementwise,
    flattening,
    grouping,
    packing,
    padding,
    rebatching,
    windows,
    zipping,
)
from tundish.loader.run.storing import stored
from tundish.loader.run.values import Maker, OpenInner, Tables

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Identity, Operator
    from tundish.loader.run.watching.timing import Timer

TABLES = Tables(
    values={
        **elementwise.VALUES,
        **zipping.VALUES,
        **batching.VALUES,
        **flattening.VALUES,
        **padding.VALUES,
        **rebatching.VALUES,
        **packing.VALUES,
        **windows.VALUES,
        **grouping.VALUES,
        **files.VALUES,
        **stored.VALUES,
    },
    notes={
        **padding.NOTES,
        **grouping.NOTES,
    },
)


def hands_on(node: Operator, *, refs: bool) -> bool:
    """Return True where a node's evaluator, given a hand, hands on all that it makes.

    Parameters
    ----------
    node : Operator
        Whose elements are made.
    refs : bool
        Whether it makes them of refs alone; else parts of them may have been computed elsewhere.
    """
    while not (node.noting or type(node) in TABLES.values or node.makes):
        node = node.inputs[0]  # it chooses or orders elements
    if isinstance(node, Enumerate):
        return refs and hands_on(node.up, refs=refs)
    return isinstance(node, (Map, Range))


def compile_values(
    top: Operator,
    context: Context,
    open_inner: OpenInner,
    timer: Timer | None = None,
    *,
    hand: Hand = None,
) -> tuple[Value, Identity]:
    """Make the evaluator of a node, from items that may be computed somewhere below it.

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
    maker = Maker(context, open_inner, TABLES, looks)
    if top.noting:
        assert isinstance(top, Unary)
        return maker.noted(top), maker.identity(top.up)  # the items are its input's
    with maker.handing(hand):
        value = maker.value(top)
    gathered = computes(top) and not top.elementwise
    return maker.at_hand(value) if gathered else value, maker.identity(top)


def compile_inner(node: FlatMap, context: Context, open_inner: OpenInner) -> tuple[Value, Identity]:
    """Make the closures of a flat_map's input: the inner plan of an item, and its identity."""
    maker = Maker(context, open_inner, TABLES, context.looks)
    return flattening.inner_dataset(maker, node), maker.identity(node.up)


def past_settings(node: Operator) -> Operator:
    """The first node that does more than saying how others are run."""
    while isinstance(node, (Prefetch, WithOptions)):
        node = node.up
    return node


def compile_sweep(top: Operator, base: Operator) -> Callable[[range], Iterator[Any]] | None:
    """Make a generator of the elements of a whole range of refs, where that is simple.

    One plain function over a range: the closures of `compile_values` would cost more than a cheap
    function itself.
    """
    top, base = past_settings(top), past_settings(base)
    if not (isinstance(top, Map) and past_settings(top.up) is base and isinstance(base, Range)):
        return None
    if top.seed is not None or top.on_error in ("skip", "retry") or top.signature is not None:
        return None
    function, start, step = top.function, base.start, base.step
    dtype, int64 = np.dtype(base.dtype or np.int64), np.int64

    def sweep(refs: range) -> Iterator[Any]:
        held = False  # after a number all are gathered before they are written
        first, last = start + refs.start * step, start + refs.stop * step
        for number in list(np.arange(first, last, refs.step * step).astype(dtype, copy=False)):
            try:
                result = function(number)
            except StopIteration as stop:  # within a generator it would get another message
                raise RuntimeError(STOPPED) from stop
            except Exception:
                raise
            except BaseException as error:
                raise element_error(error) from error
            if type(result) is int64:
                held = True
                yield result
            elif held:
                yield owned_result(result, result := None)
            else:
                found = checked(result)
                held = type(found) in SCALARS
                yield found

    return sweep
