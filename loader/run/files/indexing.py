"""Which files are read by number: those of which a plan asks where record i stands."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from tundish.formats.files import RecordFiles
from tundish.loader.operators.choosing import Shard, Skip
from tundish.loader.operators.files import ByNumber, Indexed, ReadFiles, paths_node
from tundish.loader.operators.sharing import ShardByProcess
from tundish.loader.operators.shuffle import Shuffle
from tundish.loader.operators.sources import FromSource
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, walk
from tundish.loader.plan.rebuilding import changed, exchanging
from tundish.loader.protocols.context import Context
from tundish.loader.protocols.operator import Operator
from tundish.loader.protocols.positional import listed

if TYPE_CHECKING:
    from tundish.formats.index import Index

__all__ = ["foreseen", "indexed", "indexed_for_access"]

Exchange = Callable[[Operator], Operator]
"""Gives a node of a plan as it is run."""

_MANY = 10_000
"""To skip no more (the header of a file of text) is to read them: sooner done than looking at all."""

_STAND_IN = FromSource((), 0)
"""What has random access: to see what a plan would be."""

_MADE: weakref.WeakKeyDictionary[ReadFiles, tuple[list[Index], Indexed]] = (
    weakref.WeakKeyDictionary()
)


def indexed(root: Operator) -> Exchange:
    """How a plan is run: files of which it asks where record i stands are looked at, and read by number.

    What is asked is a matter of the plan alone, so that a state means the same everywhere: operators
    that choose by position (`shuffle(None)`, `shard`, `skip` of many) ask where all below them could answer;
    ``index=True`` asks, and where a format tells it for nothing the answer is always taken.
    """
    return _exchanging(_asked(root))


def foreseen(root: Operator) -> Operator:
    """The same without looking at any file, to show a plan."""
    shown = {id(node): ByNumber(node.up, node.format) for node in _asked(root)}
    plan: Operator = exchanging(shown)(root)
    return plan


def _asked(root: Operator) -> list[ReadFiles]:
    """The files of which a plan asks where record i stands."""
    reads = [node for node in walk(root, running=True) if isinstance(node, ReadFiles)]
    able = [node for node in reads if node.indexable]
    wanted = {id(node) for node in able if node.index or node.format.cheap}
    for node in walk(root, running=True):
        if _asks(node):
            below = [up for up in walk(node, running=True) if up in able]
            if below and _with_stand_ins(node, below).positional:
                wanted |= {id(up) for up in below}
    return [node for node in able if id(node) in wanted]


def indexed_for_access(root: Operator) -> Operator:
    """A plan for ``len(ds)`` and ``ds[i]``: all files are looked at, where that answers."""
    able = [
        node for node in walk(root, running=True) if isinstance(node, ReadFiles) and node.indexable
    ]
    if _with_stand_ins(root, able).cardinality == UNKNOWN_CARDINALITY:
        return root  # nothing is looked at in vain
    return _exchanging(able)(root)


def _asks(node: Operator) -> bool:
    if isinstance(node, Shuffle):
        return node.window is None
    if isinstance(node, Skip):
        return node.count > _MANY
    return isinstance(node, (Shard, ShardByProcess))


def _with_stand_ins(node: Operator, files: list[ReadFiles]) -> Operator:
    plan: Operator = exchanging({id(each): _STAND_IN for each in files})(node)
    return plan


def _looked_at(node: ReadFiles) -> Indexed:
    """The records of files by number; the same node for all iterators, while the files are the same."""
    # pyarrow takes a while to load, and is needed by nobody else.
    from tundish.formats.index import indexes_of  # noqa: PLC0415 - see above

    paths, at = named_paths(node.up)
    found = indexes_of(node.format, paths, keep="beside" if node.index == "beside" else True)
    known = _MADE.get(node)
    if known is not None and all(a is b for a, b in zip(known[0], found, strict=True)):
        return known[1]
    source = RecordFiles(node.format, paths, found)
    made = Indexed(source, len(source), at)
    _MADE[node] = (found, made)
    return made


def named_paths(node: Operator) -> tuple[list[str], tuple[int, ...]]:
    """The paths that a plan chooses from a list, and where each stands in it."""
    files = paths_node(node)
    assert files is not None
    refs = listed(node.refs_at(range(node.cardinality), 0, Context(node, 0, 0)))
    return [files.paths[ref] for ref in refs], tuple(refs)


def _exchanging(files: list[ReadFiles]) -> Exchange:
    """Exchange files for their records by number; the same nodes for all iterators, since caches are shared."""
    return exchanging({id(node): _looked_at(node) for node in files}, changed)
