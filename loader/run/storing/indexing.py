"""Files that a plan reads by record number: they are indexed when an iterator is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tundish.loader.operators.files import ByNumber, ReadFiles, by_number, reads
from tundish.loader.operators.sources import FromSource
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, walk
from tundish.loader.plan.rebuilding import changed, exchanging
from tundish.loader.protocols.operator import Operator

if TYPE_CHECKING:
    from tundish.loader.run.storing.live import Setup

Exchange = Callable[[Operator], Operator]
"""Gives a node of a plan as it is run."""

_STAND_IN = FromSource((), 0)
"""A stand-in with random access, to see what a plan would be with an index."""


def look_at_files(setup: Setup) -> None:
    """Index the files of a plan that need it; snapshots that are not complete are those of the new plan."""
    as_run = indexed(setup.root)
    waiting = [node for node in walk(setup.root) if id(node) in setup.live]
    setup.live = {id(as_run(node)): setup.live[id(node)] for node in waiting}
    setup.root = as_run(setup.root)


def indexed(root: Operator) -> Exchange:
    """Return a rewrite of a plan that reads files by record number where the plan needs it; it indexes those files.

    Whether a file is indexed depends on the plan alone, so that a state means the same everywhere. It is if operators
    that choose by position (`shuffle(None)`, `shard`, a large `skip`) could get random access from everything before
    them; if ``index=True`` asks for it; and if the format has an index at no cost.
    """
    return _exchanging(_asked(root))


def foreseen(root: Operator) -> Operator:
    """Return the same plan without opening any file, for display."""
    shown = {id(node): ByNumber(node.up, node.format) for node in _asked(root)}
    plan: Operator = exchanging(shown)(root)
    return plan


def _asked(root: Operator) -> list[ReadFiles]:
    """Return the files of a plan that need to be read by record number."""
    able = [node for node in reads(root) if node.indexable]
    wanted = {id(node) for node in able if node.index or node.format.cheap}
    for node in walk(root, running=True):
        if node.asks_numbers:
            below = [up for up in walk(node, running=True) if up in able]
            if below and _with_stand_ins(node, below).positional:
                wanted |= {id(up) for up in below}
    return [node for node in able if id(node) in wanted]


def indexed_for_access(root: Operator) -> Operator:
    """Return a plan for ``len(ds)`` and ``ds[i]``: all files are indexed where that gives random access."""
    able = [node for node in reads(root) if node.indexable]
    if _with_stand_ins(root, able).cardinality == UNKNOWN_CARDINALITY:
        return root  # nothing is looked at in vain
    return _exchanging(able)(root)


def _with_stand_ins(node: Operator, files: list[ReadFiles]) -> Operator:
    plan: Operator = exchanging({id(each): _STAND_IN for each in files})(node)
    return plan


def _exchanging(files: list[ReadFiles]) -> Exchange:
    """Return an exchange of file readers for indexed ones; all iterators share the nodes, as they share caches."""
    return exchanging({id(node): by_number(node) for node in files}, changed)
