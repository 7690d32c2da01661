"""Index arithmetic: which element of the sources stands at a position of a positional node.

A positional node's element p is named without looking at the ones before it, so shuffle(None),
shard, skip, take, repeat and concatenate are arithmetic over blocks of positions, and the state of
a whole tree of them is one integer.

Refs are ints as long as that is possible (a *flat* node): a `repeat`'s is ``pass * space + ref``,
a `concatenate`'s second part is shifted by the first one's space. Else they are tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.plan.batching import Batch
from tundish.loader.plan.counting import Counter, FromList, Random
from tundish.loader.plan.elementwise import Enumerate
from tundish.loader.plan.order import Concatenate, Repeat, Shard, Shuffle, Skip
from tundish.loader.plan.saving import Dealt
from tundish.loader.plan.sources import Files, FromSource, Generator, Range, Slices, Tensors, Zip
from tundish.loader.plan.storing import Snapshot, Stored
from tundish.loader.plan.windows import Elements
from tundish.loader.run.shuffling import permute

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node
    from tundish.loader.run.context import Context

SOURCES = (Range, Tensors, Slices, FromSource, Files, Elements, Counter, Random, FromList)
NUMBERED = (Generator, Snapshot)
"""Their elements are named by number, and how many there are may not be known."""

_ENDLESS_RADIX = 2**32

Positions = range | np.ndarray
Refs = Sequence[Any] | np.ndarray


def space(node: Node) -> int | None:
    """How many int refs a flat node may have; None where refs are tuples or without bound.

    Examples
    --------
    >>> space(Range(0, 10, 1)), space(Repeat(Range(0, 10, 1), 3))
    (10, 30)
    """
    if isinstance(node, SOURCES):
        return node.cardinality if node.cardinality >= 0 else None
    if isinstance(node, NUMBERED) or not node.flat or node.fails:
        return None
    if isinstance(node, Repeat):
        below = space(node.up)
        return None if below is None or node.count is None else below * node.count
    if isinstance(node, Concatenate):
        first, second = space(node.first), space(node.second)
        return None if first is None or second is None else first + second
    return space(node.inputs[0]) if len(node.inputs) == 1 else None


def pass_base(node: Repeat) -> int | None:
    """What a repeat's int refs count a pass by; None where its refs are tuples."""
    return space(node.up)


def concat_base(node: Concatenate) -> int | None:
    """What a concatenate's second part is shifted by; None where its refs are tuples."""
    return space(node.first) if is_flat(node.second) else None


def is_flat(node: Node) -> bool:
    """Whether a node's refs are ints."""
    if isinstance(node, (*SOURCES, *NUMBERED)):
        return True
    if not node.flat or node.fails:
        return False
    if isinstance(node, Repeat):
        return pass_base(node) is not None
    if isinstance(node, Concatenate):
        return concat_base(node) is not None
    return len(node.inputs) == 1 and is_flat(node.inputs[0])


def radix(node: Repeat) -> int:
    """The radix of a repeat's digit in the number of a pass."""
    return _ENDLESS_RADIX if node.count is None else max(1, node.count)


def refs_at(node: Node, where: Positions, pass_: int, context: Context) -> Refs:
    """The refs at positions of a positional node.

    Parameters
    ----------
    node : Node
        Positional.
    where : range or (k,) int64 ndarray
        Positions, each below the node's cardinality.
    pass_ : int
        The number of the pass around the node.
    context : Context
        For the seeds.

    Returns
    -------
    sequence
        A range, an int64 array, or a list of tuples; as long as `where`.
    """
    if isinstance(node, (*SOURCES, Stored)):
        return where
    if isinstance(node, Shard):
        return refs_at(node.up, _scale(where, node.count, node.index), pass_, context)
    if isinstance(node, Skip):
        return refs_at(node.up, _scale(where, 1, max(0, node.count)), pass_, context)
    if isinstance(node, Shuffle):
        key = pass_ if node.reshuffle else 0
        moved = permute(np.asarray(where, np.int64), node.cardinality, context.seed_of(node), key)
        return refs_at(node.up, moved, pass_, context)
    if isinstance(node, Repeat):
        return _repeated(node, where, pass_, context)
    if isinstance(node, Concatenate):
        return _concatenated(node, where, pass_, context)
    if isinstance(node, Zip):
        columns = [refs_at(up, where, pass_, context) for up in node.ups]
        return list(zip(_ints(where), *map(_ints, columns), strict=True))
    if isinstance(node, Enumerate):
        return list(zip(_ints(where), _ints(refs_at(node.up, where, pass_, context)), strict=True))
    if isinstance(node, Dealt):
        return refs_at(node.up, _dealt(node)[np.asarray(where)], pass_, context)
    if isinstance(node, Batch):
        below = node.up.cardinality
        found = []
        for k in _ints(where):
            stop = (k + 1) * node.size if below < 0 else min((k + 1) * node.size, below)
            rows = refs_at(node.up, range(k * node.size, stop), pass_, context)
            found.append((k, tuple(_ints(rows))))
        return found
    return refs_at(node.inputs[0], where, pass_, context)


def _dealt(node: Dealt) -> np.ndarray:
    # pyarrow takes a while to load, and is needed by nobody else.
    from tundish.loader.run.storing.dealing import shard_indices  # noqa: PLC0415 - see above

    assert isinstance(node.up, Stored)
    return shard_indices(node.up.found)[node.number]


def _ints(refs: Refs) -> Sequence[Any]:
    return refs.tolist() if isinstance(refs, np.ndarray) else refs


def _scale(where: Positions, factor: int, offset: int) -> Positions:
    if isinstance(where, range):
        return range(
            where.start * factor + offset, where.stop * factor + offset, where.step * factor
        )
    return where * factor + offset


def _pieces(parts: list[tuple[Any, Refs]], count: int) -> Refs:
    """Put the parts' refs back to where each belongs."""
    if len(parts) == 1:
        return parts[0][1]
    if all(isinstance(refs, (np.ndarray, range)) for _, refs in parts):
        array = np.empty(count, np.int64)
        for at, refs in parts:
            array[at] = np.asarray(refs)
        return array
    filled: list[Any] = [None] * count
    for at, refs in parts:
        for k, ref in zip(at.tolist(), _ints(refs), strict=True):
            filled[k] = ref
    return filled


def _repeated(node: Repeat, where: Positions, pass_: int, context: Context) -> Refs:
    n, base, digits = node.up.cardinality, pass_base(node), radix(node)

    def one(p: int, below: Positions) -> Refs:
        refs = refs_at(node.up, below, pass_ * digits + p, context)
        if base is None:
            return [(p, ref) for ref in _ints(refs)]
        if isinstance(refs, (range, np.ndarray)):
            return _scale(refs, 1, p * base)
        return [p * base + ref for ref in refs]

    if isinstance(where, range) and len(where):
        first, last = where[0] // n, where[-1] // n
        if first == last:
            return one(first, _scale(where, 1, -first * n))
    array = np.asarray(where, np.int64)
    passes = array // n
    parts = [
        (at := np.flatnonzero(passes == p), one(int(p), array[at] - int(p) * n))
        for p in np.unique(passes)
    ]
    return _pieces(parts, len(array)) if parts else []


def _concatenated(node: Concatenate, where: Positions, pass_: int, context: Context) -> Refs:
    n, base = node.first.cardinality, concat_base(node)

    def one(second: bool, below: Positions) -> Refs:
        refs = refs_at(node.second if second else node.first, below, pass_, context)
        if base is None:
            return [(int(second), ref) for ref in _ints(refs)]
        if isinstance(refs, (range, np.ndarray)):
            return _scale(refs, 1, base if second else 0)
        return refs

    if isinstance(where, range) and len(where):
        if where[-1] < n:
            return one(False, where)
        if where[0] >= n:
            return one(True, _scale(where, 1, -n))
    array = np.asarray(where, np.int64)
    behind = array >= n
    parts = [
        (at, one(second, array[at] - (n if second else 0)))
        for second, at in ((False, np.flatnonzero(~behind)), (True, np.flatnonzero(behind)))
        if len(at)
    ]
    return _pieces(parts, len(array)) if parts else []
