"""tf.data's window shuffle of positions, with many draws at once in numpy.

A draw takes the item at one slot of the window, and moves the item at the window's head there. So a draw finds what the
previous draw at the same slot moved there: the item at that draw's head, which an earlier draw may have moved there.
These links from draw to draw are followed for all draws at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.items import End, Ref, to_json
from tundish.loader.protocols.lineage import note_wanted, refs
from tundish.loader.protocols.positional import listed, numbers_in
from tundish.loader.protocols.refs import ints, pieced
from tundish.loader.protocols.state_parsing import count, load_part

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Mark
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.positional import Positions
    from tundish.loader.protocols.refs import Refs
    from tundish.loader.protocols.shuffling import Draws

_FIRST, _MOST = 64, 2**14
"""The number of draws at once: at first, and at most."""
_LISTED = 1024


def draw(buffer: np.ndarray, size: int, draws: np.ndarray) -> np.ndarray:
    """Draw from a window repeatedly, refilling it after each draw with the next item.

    Parameters
    ----------
    buffer : (n,) int64 ndarray
        The window and the items after it. On return, its entries from index k on are what remains.
    size : int
        The size of the window, while there are enough items.
    draws : (k,) uint64 ndarray
        At most n random numbers.

    Returns
    -------
    (k,) int64 ndarray
        The items, in the order in which they were drawn.

    Examples
    --------
    >>> buffer = np.arange(5)
    >>> draw(buffer, 3, np.array([2, 2, 1], np.uint64)), buffer[3:]
    (array([2, 3, 1]), array([0, 4]))
    """
    if not len(draws):
        return buffer[:0]
    steps = np.arange(len(draws))
    window = np.minimum(size, len(buffer) - steps).astype(np.uint64)
    slots = (draws % window).astype(np.int64) + steps
    # By slot, then by step: each draw follows the previous draw from the same slot.
    bits = len(draws).bit_length()
    keys = (slots << bits) | steps
    keys.sort()
    by_slot, by_step = keys >> bits, keys & ((1 << bits) - 1)
    same = by_slot[1:] == by_slot[:-1]
    before = np.full(len(draws), -1)
    before[by_step[1:][same]] = by_step[:-1][same]
    last = np.flatnonzero(np.append(~same, True))
    slot, step = by_slot[last], by_step[last]
    # Follow the links between steps until they end: one link at a time, then two, four, ...
    passed = slot < len(draws)
    head = steps.copy()
    head[slot[passed]] = step[passed]
    while not np.array_equal(further := head[head], head):
        head = further
    found = buffer[np.where(before < 0, slots, head[before])]
    buffer[slot[~passed]] = buffer[head[step[~passed]]]
    return found


class ShuffledPositions:
    """tf.data's window shuffle of positions, draw for draw; the window holds positions, not refs.

    A mark is (snapshot, number of draws, position of the input). A snapshot is a number of draws, the window after them, and
    the input's position then: the window is copied only once in as many draws as it is long, and a state is made by
    repeating the draws from there.

    Parameters
    ----------
    node : Operator
        The input.
    up : Positions
        The input's stream of positions.
    size : int
        The size of the window.
    draws : Draws
        The random draws of the pass.
    pass_ : int
        The number of the pass.
    context : Context
        The iterator's context.
    """

    def __init__(
        self,
        node: Operator,
        up: Positions,
        size: int,
        draws: Draws,
        *,
        pass_: int,
        context: Context,
    ) -> None:
        self._node, self._up, self._size, self._draws = node, up, size, draws
        self._pass, self._context = pass_, context
        self._loaded: np.ndarray | list[Ref] = []
        self._many, self._most = _FIRST, _MOST
        self._begin(0, np.empty(0, np.int64))

    def _begin(self, drawn: int, window: np.ndarray) -> None:
        """Continue with a window after `drawn` draws."""
        self._buffer, self._head, self._stop = window, 0, len(window)
        self._refs: Refs = ()  # the refs of the last draws
        self._listed: Iterator[Ref] = iter(())
        # The number of draws before the last ones, and how many of the last ones were given.
        self._first, self._given = drawn, 0
        # The input's position at the first of them, and how many items have come since.
        self._at, self._coming = self._up.mark(), 0
        self._snapshot = (drawn, window.copy(), self._at)

    def next(self) -> Any:
        for ref in self._listed:
            self._given += 1
            return ref
        self._ahead()
        self._listed = iter(ints(self._refs[self._given : self._given + _LISTED]))
        self._given += 1
        return next(self._listed)

    def take(self, most: int) -> Refs:
        """Return one to `most` refs."""
        self._ahead()
        self._listed = iter(())
        found = self._refs[self._given : self._given + most]
        self._given += len(found)
        return found

    def _ahead(self) -> None:
        """Draw more, if everything drawn has been given."""
        if self._given < len(self._refs):
            return
        drawn = self._first + self._given
        if drawn - self._snapshot[0] >= self._stop - self._head:
            window = self._buffer[self._head : self._stop].copy()
            self._snapshot = (drawn, window, self._up.mark())
        self._pull(self._size - (self._stop - self._head))
        have = self._stop - self._head
        if not have:
            raise End
        at = self._up.mark()
        coming = self._pull(self._many - 1) if have == self._size else 0
        many = min(self._many, have + coming)
        numbers = draw(
            self._buffer[self._head : self._stop], self._size, self._draws.numbers(drawn, many)
        )
        self._head += many
        self._refs = self._named(numbers)
        self._first, self._given, self._at, self._coming = drawn, 0, at, coming
        most = self._most // numbers_in(self._refs[0])
        self._many = max(1, min(2 * self._many, most))

    def _pull(self, wanted: int) -> int:
        """Append up to `wanted` positions of the input to the window; return how many there were."""
        first = self._up.mark()
        self._up.advance(wanted)
        came, have = self._up.mark() - first, self._stop - self._head
        if self._stop + came > len(self._buffer):
            buffer = np.empty(2 * (have + came), np.int64)
            buffer[:have] = self._buffer[self._head : self._stop]
            self._buffer, self._head, self._stop = buffer, 0, have
        self._buffer[self._stop : self._stop + came] = np.arange(first, first + came)
        self._stop += came
        return came

    def _named(self, numbers: np.ndarray) -> Refs:
        """Return the refs of positions; negative numbers index the window that was loaded from a state."""
        loaded = numbers < 0
        if not loaded.any():
            return self._up.at(numbers)
        old, new = np.flatnonzero(loaded), np.flatnonzero(~loaded)
        known, places = self._loaded, ~numbers[old]
        found = known[places] if isinstance(known, np.ndarray) else [known[k] for k in places]
        parts: list[tuple[Any, Refs]] = [(old, found)]
        if len(new):
            parts.append((new, self._up.at(numbers[new])))
        return pieced(parts, len(numbers))

    def mark(self, left: int = 0) -> Mark:
        given = self._given - left
        # All draws but the first made room for one of the input, which came just before the next.
        came = max(0, min(given - 1, self._coming))
        return (self._snapshot, self._first + given, self._at + came)

    def dump(self, mark: Mark) -> Any:
        (first, window, since), drawn, at = mark
        buffer = np.concatenate((window, np.arange(since, at)))
        draw(buffer, self._size, self._draws.numbers(first, drawn - first))
        left = listed(self._named(buffer[drawn - first :])) if drawn - first < len(buffer) else []
        return {"draws": drawn, "window": to_json(tuple(left)), "up": self._up.dump(at)}

    def load(self, state: Any) -> None:
        drawn = count(state, "draws")
        window = refs(state, "window", self._node, most=self._size)
        note_wanted(self._node, window, self._pass, self._context)
        load_part(self._up, state)
        plain = all(type(ref) is int for ref in window)
        self._loaded = np.array(window, np.int64) if plain else window
        self._begin(drawn, ~np.arange(len(window)))
