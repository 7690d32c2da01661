"""shuffle: tf.data's window shuffle, or a keyed permutation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.operators.counting import Range
from tundish.loader.operators.shuffled import ShuffledPositions
from tundish.loader.operators.units import UnitShuffle, check_units
from tundish.loader.plan.checks import LARGEST, check_count, check_optional_flag, check_seed
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, walk
from tundish.loader.plan.rebuilding import exchanging
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Made, Ref, ref_of, to_json
from tundish.loader.protocols.lineage import note_wanted, refs
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.permuting import permute
from tundish.loader.protocols.positional import (
    Positions,
    check_positions,
    no_permutation,
)
from tundish.loader.protocols.refs import array_of
from tundish.loader.protocols.shuffling import Draws
from tundish.loader.protocols.state_parsing import count, load_part

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Mark
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.refs import Positions as Places
    from tundish.loader.protocols.refs import Refs

_MOST_DRAWS = 2**14


@dataclass(frozen=True, eq=False)
class Shuffle(Unary):
    """A window shuffle, or with no window a keyed permutation."""

    window: int | None
    seed: int | None
    reshuffle: bool

    seeded = shuffles = passes = choosing = distributive = True

    @property
    def seedless(self) -> bool:
        return self.seed is None

    @property
    def holds(self) -> bool:
        return self.window is not None

    @property
    def asks_numbers(self) -> bool:
        return self.window is None

    @property
    def redone(self) -> str:
        if not self.window or not any(node.calls for node in walk(self.up)):
            return ""
        return f"the {self.window:,} elements of a shuffle's window are computed again"

    @property
    def undivided(self) -> str:
        if not self.up.files:
            return ""
        return "of list_files has no order that ranges share: list_files(shuffle=False)"

    @property
    def positional(self) -> bool:
        return self.window is None and self.up.positional

    def refs_at(self, where: Places, pass_: int, context: Context) -> Refs:
        key = pass_ if self.reshuffle else 0
        moved = permute(array_of(where), self.cardinality, context.seed_of(self), key)
        return self.up.refs_at(moved, pass_, context)

    def check(self) -> None:
        if self.window is None:
            check_positions(self)

    def machine(self, builder: Builder, pass_: int) -> Machine:
        up, context, count = builder.build(self.up, pass_), builder.context, self.cardinality
        size = self.window if self.window is not None and self.window > 0 else max(1, count)
        if self.window == -2 and count < 0:
            size = 2**62
        draws = Draws(context.pair_of(self), pass_ if self.reshuffle else None)
        if isinstance(up, Positions):
            return ShuffledPositions(self.up, up, size, draws, pass_=pass_, context=context)
        return WindowShuffle(self, up, size, draws, pass_=pass_, context=context)


def may_permute(node: Operator) -> bool:
    """Return True if ``shuffle(None)`` may follow a node: it has random access, or may have it when an iterator is made.

    A snapshot has it once it is complete, and files if they can be indexed.
    """
    awaited = {id(each): Range(0, 1, 1) for each in walk(node) if each.awaited}
    then: Operator = exchanging(awaited)(node)
    return then.positional and then.cardinality >= 0


class WindowShuffle:
    """tf.data's window shuffle, draw for draw.

    A mark is (snapshot, draws since, items pulled since, mark of the input): a window is copied
    only once in as many draws as it is long, and a state is made by replaying the draws from there.
    """

    def __init__(
        self, node: Shuffle, up: Machine, size: int, draws: Draws, *, pass_: int, context: Context
    ) -> None:
        self._node, self._up, self._pass, self._context = node, up, pass_, context
        self._size = size
        self._draws = draws
        self._chunk: Iterator[int] = iter(())
        self._many = 32  # draws at once
        self._drawn = 0
        self._window: list[Any] = []
        self._head = 0
        self._snapshot()

    def _snapshot(self) -> None:
        self._since: tuple[int, list[Ref], list[Ref]] = (
            self._drawn,
            [ref_of(x) for x in self._window[self._head :]],
            [],
        )
        self._until = self._drawn + max(1024, len(self._window) - self._head)

    def next(self) -> Any:
        window, head, size = self._window, self._head, self._size
        have = len(window) - head
        if have < size:
            pull, pulled = self._up.next, self._since[2]
            try:
                while have < size:
                    item = pull()
                    window.append(item)
                    pulled.append(item.ref if type(item) is Made else ref_of(item))
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
        self._drawn = drawn = self._drawn + 1
        if drawn >= self._until:
            self._tidy()
        return item

    def _more_draws(self) -> int:
        # A stream that has used up its draws will need more of them.
        self._many = min(2 * self._many, _MOST_DRAWS)
        self._chunk = iter(self._draws.numbers(self._drawn, self._many).tolist())
        return next(self._chunk)

    def _tidy(self) -> None:
        """Copy the window and drop the items that were drawn, once in as many draws as the window is long."""
        del self._window[: self._head]
        self._head = 0
        self._snapshot()

    def mark(self) -> Mark:
        return (self._since, self._drawn, len(self._since[2]), self._up.mark())

    def dump(self, mark: Mark) -> Any:
        (first, window, pulled), drawn, taken, up = mark
        buffer = list(window)
        come = iter(pulled[:taken])
        head = 0
        for draw in self._draws.numbers(first, drawn - first).tolist():
            while len(buffer) - head < self._size:
                ref = next(come, None)
                if ref is None:
                    break
                buffer.append(ref)
            at = head + draw % (len(buffer) - head)
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


class ShuffleMethods(Fluent):
    """The method of `Dataset` that shuffles it."""

    def shuffle(
        self,
        buffer_size: int | None,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
        *,
        units: int | None = None,
    ) -> Self:
        """Shuffle the elements.

        Parameters
        ----------
        buffer_size : int or None
            An int is tf.data's window shuffle, draw for draw: each element is drawn from the next
            `buffer_size` elements that have not been delivered yet (-2: from all). None is a true permutation of the
            whole dataset in O(1) memory; it needs random access to the operators before it.
        seed : int, optional
            The seed, of at most 64 bits. Without one, it is derived from a number that the dataset object draws
            for its first iterator, and that every iterator's state contains.
        reshuffle_each_iteration : bool, optional
            True, the default, for another order in each iteration and each pass of a `repeat`.
        name : str, optional
            Accepted as in tf.data, and ignored.
        units : int, optional
            For ``shuffle(None)`` of files or a snapshot: permute the units in which they are stored
            (row groups, record batches, runs of about 1 MiB), and then the records of this many units at a time. So a
            batch is read from a few units. A `shard` after it divides the units.

        Raises
        ------
        SpecError
            ``shuffle(None)`` of a dataset without random access (after a generator or a filter), or of an
            infinite one; `units` for a dataset that is not stored in units.
        ValueError
            `buffer_size` is less than 1, and not -2; `units` is less than 1, or given with a `buffer_size`.

        Notes
        -----
        With a `buffer_size` the order is tf.data's for the same seed; tf.data has no ``shuffle(None)``. An
        element whose function failed is shuffled like any other, and its error is raised where the element would
        have been delivered. tf.data raises it while the window is filled.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(6).shuffle(3, seed=1)]
        [1, 3, 0, 5, 2, 4]
        >>> sorted(int(x) for x in td.Dataset.range(6).shuffle(None, seed=1))
        [0, 1, 2, 3, 4, 5]
        """
        reshuffle = check_optional_flag("reshuffle_each_iteration", reshuffle_each_iteration)
        reshuffle = reshuffle is None or reshuffle
        if buffer_size is None:
            if not may_permute(self._node):
                raise no_permutation(self._node)
        else:
            buffer_size = check_count("buffer_size", buffer_size, most=LARGEST)
            if buffer_size < 1 and buffer_size != UNKNOWN_CARDINALITY:
                raise ValueError(f"buffer_size must be at least 1, or None, not {buffer_size}")
        if units is not None:
            units = check_units(self._node, buffer_size, units)
            return self._then(UnitShuffle, units, check_seed(seed), reshuffle)
        return self._then(Shuffle, buffer_size, check_seed(seed), reshuffle)
