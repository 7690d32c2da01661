"""Evaluators of whole stages: functions from an item to its element, or from many refs to elements.

Where no user code runs, elements are computed many at a time, ahead of demand: numbers, paths, records, rows of
snapshots. Computing one such element at a time costs more than the element is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.plan.node import walk
from tundish.loader.protocols.chains import computes
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.refs import ints
from tundish.loader.run.evaluating.values import EvaluatorMaker, OpenInner

if TYPE_CHECKING:
    from tundish.formats.files import RecordFiles
    from tundish.loader.operators.flat_map import FlatMap
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import (
        Elements,
        Gather,
        Hand,
        Identity,
        StoredElements,
        Sweep,
        Value,
    )
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.refs import Refs
    from tundish.loader.run.watching.timing import StreamTimer, Timer


def compile_values(
    top: Operator,
    context: Context,
    open_inner: OpenInner,
    timer: Timer | None = None,
    *,
    hand: Hand = None,
    computed: Operator | None = None,
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
    computed : Operator, optional
        The node at which another stage has computed all items.
    """
    looks = context.looks if timer is None else (*context.looks, timer.look)
    maker = EvaluatorMaker(context, open_inner, looks, computed)
    if top.noting:
        assert isinstance(top, Unary)
        noted = maker.noted(top)
        if timer is not None:
            noted = timer.look(context.label(top), noted)
        return noted, maker.identity(top.up)  # the items are its input's
    with maker.handing(hand):
        value = maker.value(top)
    gathered = computes(top) and not top.elementwise
    return maker.at_hand(value) if gathered else value, maker.identity(top)


def compile_gather(top: Operator, context: Context, open_inner: OpenInner) -> Gather | None:
    """Compile a function from many refs of a node to columns; None if each element is made separately."""
    return None if top.noting else EvaluatorMaker(context, open_inner).gather(top)


def compile_together(
    top: Operator, context: Context, open_inner: OpenInner
) -> tuple[Elements, int] | None:
    """Compile a function that makes several small batches at once, and say how many; None if each is made on demand."""
    return EvaluatorMaker(context, open_inner).together(top)


def compile_inner(
    node: FlatMap, context: Context, open_inner: OpenInner, timer: StreamTimer | None = None
) -> tuple[Value, Identity]:
    """Compile a flat_map's two closures: the inner plan of an input item, and the item's identity."""
    looks = context.looks
    if timer is not None and not all(each.light for each in walk(node.up)):
        looks = (*looks, timer.inputs.look)
    maker = EvaluatorMaker(context, open_inner, looks)
    return node.inner_dataset(maker), maker.identity(node.up)


def compile_sweep(top: Operator, base: Operator, context: Context) -> Sweep | None:
    """Compile a generator of the elements of a range of refs; None if the plan is not simple enough.

    It is one plain function over numbers: for a cheap user function the closures of `compile_values` would cost
    more than the function itself.
    """
    top, base = _past_settings(top), _past_settings(base)
    # The refs of a shuffled range form no range.
    numbers = None if base.inputs else base.progression
    if numbers is None or not top.inputs or _past_settings(top.inputs[0]) is not base:
        return None
    return top.sweep(numbers, context)


def _past_settings(node: Operator) -> Operator:
    while node.transparent and not node.makes:
        node = node.inputs[0]
    return node


def elements_of(node: Operator, value: Value, gather: Gather | None) -> Elements | None:
    """Return a function that makes several elements of a plan at once; None if each is made on demand."""
    stored = node.stored
    if stored is not None and stored.mapped and stored.safe:
        return _stored(stored)
    if node.record_files is not None:
        return _records(node.record_files)
    return _plain(value, gather) if is_plain(node) else None


def is_plain(root: Operator) -> bool:
    """Return True if a plan consists of light sources and operators that only order their elements."""
    return all(
        node.light or node.choosing or node.relays or (node.transparent and not node.measures)
        for node in walk(root)
    )


def _plain(value: Value, gather: Gather | None) -> Elements:
    def elements(refs: Refs, pass_: int) -> Sequence[Any]:
        rows = None if gather is None else _rows(gather(refs, pass_))
        return [value(ref, pass_) for ref in ints(refs)] if rows is None else rows

    return elements


def _rows(columns: Any) -> list[Any] | None:
    """Convert columns of numbers to rows, in tuples like the columns; None for any other columns."""
    if type(columns) is not tuple:
        return list(columns) if isinstance(columns, np.ndarray) else None
    parts = [part for column in columns if (part := _rows(column)) is not None]
    return list(zip(*parts, strict=True)) if len(parts) == len(columns) else None


def _stored(found: StoredElements) -> Elements:
    return lambda refs, _: found.reader.handed(ints(refs))


def _records(files: RecordFiles) -> Elements:
    count = len(files)

    def elements(refs: Refs, _: int) -> Sequence[Any]:
        if isinstance(refs, range) and refs.step == 1:
            number = refs[0] % count
            found = files.run(number, min(len(refs), count - number))
            return [] if isinstance(found, Exception) else found[0].part(*found[1:])
        values = files.get([_innermost(ref) % count for ref in ints(refs)])
        bad = (k for k, value in enumerate(values) if isinstance(value, Exception))
        return values[: next(bad, len(values))]

    return elements


def _innermost(ref: Ref) -> int:
    while type(ref) is tuple:
        ref = ref[-1]
    return int(ref)
