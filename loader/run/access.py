"""Answers about a dataset without iterating it: an element by position, the cardinality, the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.errors import SpecError
from tundish.loader.operators.files import check_readable, reads
from tundish.loader.plan.checks import check_count
from tundish.loader.plan.node import global_seed, why_unnumbered
from tundish.loader.plan.options import Options
from tundish.loader.protocols.context import Context, first_seed
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.raised import opened
from tundish.loader.protocols.specs import static_spec
from tundish.loader.run.evaluating.effective import effective
from tundish.loader.run.inline.reference import open_inline
from tundish.loader.run.storing.indexing import indexed_for_access
from tundish.loader.run.storing.setup import resolve
from tundish.normalising import copy_element
from tundish.spec import spec_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.protocols.operator import Operator


def stored_rows(node: Operator) -> Callable[[int], Any] | None:
    """Return a function for random access to a complete snapshot, or to files; None for any other plan."""
    if not node.awaited and node.random_access() is None:
        return None
    found = indexed_for_access(resolve(effective(node), 0, None, fresh=True, write=False).root)
    return found.random_access()


def element_at(node: Operator, index: int) -> Any:
    """Return the element at a position of a positional plan."""
    node = indexed_for_access(resolve(effective(node), 0, None, fresh=True, write=False).root)
    if not node.positional:
        why = why_unnumbered(node)
        raise TypeError(f"{node.label} has no random access{why}; iterate over the dataset")
    at, count = check_count("index", index), node.cardinality
    if at < 0 and count >= 0:
        at += count
    if at < 0 or (count >= 0 and at >= count):
        allowed = f"from {-count} to {count - 1}" if count > 0 else "at least 0"
        raise IndexError(f"index must be {allowed} in a dataset of {count} elements, not {index}")
    context = Context(node, 0, first_seed(), global_seed())
    network = open_inline(context, Options())
    network.load(at)
    item = network.next()
    if type(item) is Failure:
        raise opened(item.error)
    return copy_element(item.value)


def counted(node: Operator) -> int:
    """Return the cardinality of a plan, from its files if necessary.

    Raises
    ------
    OSError, RecordCorruptError
        One of its files cannot be opened, so that the number of its records is unknown.
    """
    if not reads(node):
        return node.cardinality
    known = indexed_for_access(effective(node))
    check_readable(known)
    return known.cardinality


def learnt_spec(node: Operator) -> Any:
    """Return the spec of a plan's elements: from the plan, or from its first element."""
    return static_spec(node, _first_spec)


def _first_spec(node: Operator) -> Any:
    """Return the spec of a plan's first element."""
    setup = resolve(effective(node), 0, global_seed(), fresh=True, write=False)
    context = Context(setup.root, 0, setup.seed, setup.graph_seed)
    context.live = setup.live
    network = open_inline(context, Options())
    while True:
        try:
            item = network.next()
        except End:
            raise SpecError(
                "the dataset is empty: it has no element to learn the spec from"
            ) from None
        if type(item) is Failure:
            raise opened(item.error)
        return spec_of(item.value)
