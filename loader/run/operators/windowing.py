"""tf.data's shuffle as a machine: a window that is drawn from and refilled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.order import Shuffle
from tundish.loader.protocols.items import End, Ref, ref_of, to_json
from tundish.loader.protocols.lineage import note_wanted, refs
from tundish.loader.protocols.positional import Positions, listed
from tundish.loader.protocols.shuffling import Draws
from tundish.loader.protocols.stated import count, load_part

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator
    from tundish.loader.run.machines import MakeMachine


class WindowShuffle:
    """tf.data's shuffle: draw from a window that is refilled, draw for draw.

    A mark is (snapshot, draws since, items pulled since, mark of the input): a window is copied
    once in as many draws as it is long, and a state is made by replaying from there.
    """

    def __init__(self, node: Shuffle, up: Machine, pass_: int, context: Context) -> None:
        self._node, self._up, self._pass, self._context = node, up, pass_, context
        count = node.cardinality
        self._size = node.window if node.window is not None and node.window > 0 else max(1, count)
        if node.window == -2 and count < 0:
            self._size = 2**62
        key = pass_ if node.reshuffle else None
        self._draws = Draws(context.pair_of(node), key)
        self._chunk: Iterator[int] = iter(())
        self._drawn = 0
        self._window: list[Any] = []
        self._head = self._rate = 0
        self._snapshot()

    def _snapshot(self) -> None:
        self._since: tuple[int, list[Ref], list[Ref]] = (
            self._drawn,
            [ref_of(x) for x in self._window[self._head :]],
            [],
        )
        self._until = max(1024, len(self._window) - self._head)

    def next(self) -> Any:
        window, head, size = self._window, self._head, self._size
        have = len(window) - head
        if have < size:
            pull, pulled = self._up.next, self._since[2]
            try:
                while have < size:
                    item = pull()
                    window.append(item)
                    pulled.append(item if type(item) is int else ref_of(item))
                    have += 1
            except End:
                if not have:
                    raise
        draw = next(self._chunk, -1)
        if draw < 0:
            draw = self._more_draws()
        at = head + draw % have
        item = window[at]
        window[at] = window[head]
        window[head] = None
        self._head = head + 1
        self._drawn += 1
        self._until -= 1
        if self._until <= 0:
            self._tidy()
        return item

    def run(self, most: int) -> list[Ref] | None:
        """As `next`, but several refs at once; None where the input does not tell refs ahead.

        All of them but the last make room for one of the input each, or none does: so that
        `mark_back` can tell where each stands.
        """
        up = self._up
        if not isinstance(up, Positions):
            return None
        if self._until <= 0:
            self._tidy()
        window, size, pulled = self._window, self._size, self._since[2]
        have = len(window) - self._head
        if have < size:
            first = listed(up.take(size - have))
            window += first
            pulled += first
            have += len(first)
        if not have:
            raise End
        head, drawn = self._head, self._drawn
        draws = self._draws.some(drawn)[: min(most, have)]
        coming = listed(up.take(len(draws) - 1)) if have == size else []
        self._rate = int(have == size and (len(draws) == 1 or bool(coming)))
        if self._rate:
            draws = draws[: len(coming) + 1]
        count = len(draws)
        left = np.full(count, size) if self._rate else np.arange(have, have - count, -1)
        places = (
            (draws % left.astype(np.uint64)).astype(np.int64) + np.arange(head, head + count)
        ).tolist()
        window += coming
        pulled += coming
        found: list[Ref] = []
        take = found.append
        for here, at in enumerate(places, head):
            take(window[at])
            window[at] = window[here]
        self._head, self._drawn = head + count, drawn + count
        self._chunk = iter(())
        self._until -= count
        return found

    def _more_draws(self) -> int:
        self._chunk = iter(self._draws.some(self._drawn))
        return next(self._chunk)

    def _tidy(self) -> None:
        """Once in as many draws as the window is long: forget what has gone, and copy it."""
        del self._window[: self._head]
        self._head = 0
        self._snapshot()

    def mark(self) -> Mark:
        return (self._since, self._drawn, len(self._since[2]), self._up.mark())

    def mark_back(self, left: int) -> Mark:
        """The mark so many items before the last one of a run."""
        since, drawn, pulled, up = self.mark()
        come = self._rate * left
        return (since, drawn - left, pulled - come, up - come)

    def dump(self, mark: Mark) -> Any:
        (first, window, pulled), drawn, taken, up = mark
        buffer = list(window)
        come = iter(pulled[:taken])
        head = 0
        for k in range(first, drawn):
            while len(buffer) - head < self._size:
                ref = next(come, None)
                if ref is None:
                    break
                buffer.append(ref)
            at = head + self._draws(k) % (len(buffer) - head)
            buffer[at] = buffer[head]
            head += 1
        return {"draws": drawn, "window": to_json(tuple(buffer[head:])), "up": self._up.dump(up)}

    def load(self, state: Any) -> None:
        self._drawn = count(state, "draws")
        self._chunk = iter(())
        self._window = refs(state, "window", self._node.up, most=self._size)
        self._head = 0
        note_wanted(self._node.up, self._window, self._pass, self._context)
        load_part(self._up, state)
        self._snapshot()


def _shuffled(builder: Builder, node: Shuffle, pass_: int) -> Machine:
    return WindowShuffle(node, builder.build(node.up, pass_), pass_, builder.context)


MACHINES: dict[type[Operator], MakeMachine] = {Shuffle: _shuffled}
