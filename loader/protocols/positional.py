"""The stream of a positional node: index arithmetic over blocks of positions.

A keyed permutation costs several times less per position for many positions than for few. So with one in the plan, refs
are computed ahead of demand, more each time, and handed out in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.node import walk, why_unnumbered
from tundish.loader.protocols.items import End, Ref
from tundish.loader.protocols.refs import BatchRefs, ints

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.refs import Refs

_CHUNK = 8192
_AHEAD = 2**16
"""The largest number of refs that are computed ahead; `_FIRST` is the number at the beginning."""
_FIRST = 64


class Positions:
    """The stream of a positional node; its state is one integer."""

    def __init__(self, node: Operator, pass_: int, context: Context) -> None:
        self._node, self._pass, self._context = node, pass_, context
        count = node.cardinality
        self._count = count if count >= 0 else None
        self._at = 0
        self._size = _FIRST if node.int_refs else 4  # a ref of a batch is as long as the batch
        self._chunk: Iterator[Any] = iter(())
        # At most a few passes of a shuffled input, since each pass over few elements costs much.
        permuted = [below.cardinality for below in walk(node, running=True) if below.shuffles]
        self._most = min(_AHEAD, 4 * max(permuted)) if permuted else 0
        self._ahead: Any = ()
        self._first = self._wanted = (
            0  # the position of the first of those, and how many to make next
        )

    def next(self) -> Any:
        for item in self._chunk:
            self._at += 1
            return item
        refs = self._refs(self._size)
        if not len(refs):
            raise End
        self._size = min(2 * self._size, max(1, _CHUNK // numbers_in(refs[0])))
        self._chunk = iter(ints(refs))
        self._at += 1
        return next(self._chunk)

    def take(self, count: int) -> Any:
        """Return up to `count` refs as a range, array or list, fewer where a look-ahead ends; none at the end."""
        refs = self._refs(count)
        self._at += len(refs)
        self._chunk = iter(())
        return refs

    def _refs(self, count: int) -> Any:
        stop = self._at + count
        if self._count is not None:
            stop = min(stop, self._count)
        if stop <= self._at:
            return ()
        return self._looked_ahead(stop) if self._most else self._made(self._at, stop)

    def _made(self, first: int, stop: int) -> Any:
        return self._node.refs_at(range(first, stop), self._pass, self._context)

    def _looked_ahead(self, stop: int) -> Any:
        """Return refs from what was computed ahead, up to position `stop`; compute more if nothing is left."""
        at, skip = self._at, self._at - self._first
        if not 0 <= skip < len(self._ahead):
            end = max(stop, at + self._wanted)
            made = self._made(at, end if self._count is None else min(end, self._count))
            most = self._most // numbers_in(made[0])
            self._wanted = min(max(2 * self._wanted, _FIRST), most)
            self._ahead, self._first, skip = made, at, 0
        return self._ahead[skip : skip + stop - at]

    def at(self, positions: np.ndarray) -> Refs:
        """Return the refs at any positions, without moving the stream."""
        return self._node.refs_at(positions, self._pass, self._context)

    def advance(self, count: int) -> None:
        """Skip `count` items without computing them."""
        self._at += count if self._count is None else min(count, self._count - self._at)
        self._chunk = iter(())

    def mark(self, left: int = 0) -> int:
        return self._at - left

    def dump(self, mark: int) -> Any:
        return self._node.expand(mark)

    def load(self, state: Any) -> None:
        self._at = self._node.contract(state)
        self._chunk = iter(())


class TakenPositions:
    """Counts the positions taken from a stream and not put back; holds no elements.

    Parameters
    ----------
    up : Positions
        The stream of positions.

    Attributes
    ----------
    rest : iterator
        Refs that were taken in advance and not given to anybody yet.
    """

    __slots__ = ("_first", "_up", "rest")

    def __init__(self, up: Positions) -> None:
        self._up, self.rest = up, iter(())
        self._first = up.mark()

    def __call__(self) -> int:
        return self._up.mark() - self._first - length_hint(self.rest)

    def restart(self) -> None:
        """Restart the count at the stream's present position."""
        self._first = self._up.mark()


def numbers_in(ref: Any) -> int:
    """Return how many ints a ref contains."""
    if type(ref) is tuple:
        return sum(map(numbers_in, ref))
    return len(ref) if isinstance(ref, BatchRefs) else 1


def listed(refs: Any) -> list[Ref]:
    """Return refs given as a range, array or list, as a list."""
    return refs.tolist() if isinstance(refs, np.ndarray) else list(refs)


def is_awaited(node: Operator) -> bool:
    """Return True if files before a node have to be opened before its positions are known."""
    return any(below.awaited for below in walk(node))


def check_positions(shuffle: Operator) -> None:
    """Raise if the files that exist now give ``shuffle(None)`` no positions to permute.

    Raises
    ------
    SpecError
        The input of the shuffle has no random access, or no end.
    """
    if shuffle.positional and shuffle.cardinality >= 0:
        return
    for node in reversed(list(walk(shuffle))):
        if node.unpositioned:
            raise SpecError(f"shuffle(None) permutes positions{node.unpositioned}")
    raise no_permutation(shuffle.inputs[0])


def no_permutation(node: Operator) -> SpecError:
    """Return the error for ``shuffle(None)`` after a node without positions."""
    return SpecError(
        "shuffle(None) permutes positions and needs a finite dataset with random access; "
        f"{node.label} has none{why_unnumbered(node)}; use shuffle(buffer_size)"
    )
