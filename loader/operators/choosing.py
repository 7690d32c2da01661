"""skip, take, shard: operators that keep elements by their positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.plan.checks import check_count
from tundish.loader.plan.groups import SHARD_HINT
from tundish.loader.plan.node import INFINITE_CARDINALITY
from tundish.loader.protocols.chunk import at_once, taken
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End
from tundish.loader.protocols.operator import Passing, Unary
from tundish.loader.protocols.refs import scaled
from tundish.loader.protocols.state_parsing import count, load_part

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Mark
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.refs import Positions, Refs


_MANY = 10_000
"""The most skipped elements (such as the header of a text file) that are read, which is faster than indexing the files."""


@dataclass(frozen=True, eq=False)
class Choosing(Unary):
    """Elements ``first, first + step, ...`` of the input."""

    passes = relays = choosing = True

    @property
    def chosen(self) -> tuple[int, int]:
        """The position of the first element to keep, and the distance from one to the next."""
        raise NotImplementedError

    @property
    def stop(self) -> int | None:
        """The number of input elements that are needed; None for all."""
        return None

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        first, step = self.chosen
        return self.up.refs_at(scaled(where, step, first), pass_, context)

    @property
    def unit_sizes(self) -> np.ndarray | None:
        sizes, (first, step) = self.up.unit_sizes, self.chosen
        if sizes is None or step > 1:
            return None
        ends = np.clip(np.cumsum(sizes), first, first + self.cardinality)
        kept: np.ndarray = np.diff(ends, prepend=first)
        return kept[kept > 0]

    def nested(self, at: int) -> Any:
        first, step = self.chosen
        seen = first + (at - 1) * step + 1 if at else 0
        return {"seen": seen, "up": self.up.expand(seen)}

    def position(self, state: dict[str, Any]) -> int:
        first, step = self.chosen
        return max(0, -(-(count(state, "seen") - first) // step))

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Chosen(builder.build(self.up, pass_), *self.chosen, self.stop)


@dataclass(frozen=True, eq=False)
class Skip(Choosing):
    """All but the first `count` elements; a negative count skips all."""

    count: int

    contiguous = True

    @property
    def asks_numbers(self) -> bool:
        return self.count > _MANY

    @property
    def chosen(self) -> tuple[int, int]:
        return max(0, self.count), 1

    @property
    def stop(self) -> int | None:
        return 0 if self.count < 0 else None

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if self.count < 0:
            return 0
        return max(0, below - self.count) if below >= 0 else below


@dataclass(frozen=True, eq=False)
class Take(Choosing):
    """The first `count` elements; a negative count takes all."""

    count: int

    contiguous = True

    @property
    def chosen(self) -> tuple[int, int]:
        return 0, 1

    @property
    def stop(self) -> int | None:
        return self.count

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if self.count < 0 or self.count == 0:
            return below if self.count < 0 else 0
        if below == INFINITE_CARDINALITY:
            return self.count
        return min(below, self.count) if below >= 0 else below

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return builder.build(self.up, pass_) if self.count < 0 else super().machine(builder, pass_)


@dataclass(frozen=True, eq=False)
class Shard(Choosing):
    """Every `count`-th element, from `index`."""

    count: int
    index: int

    asks_numbers = True

    @property
    def chosen(self) -> tuple[int, int]:
        return self.index, self.count

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        return self.up.dealt_at(where, self.count, self.index, pass_, context)

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        return max(0, -(-(below - self.index) // self.count)) if below >= 0 else below


@dataclass(frozen=True, eq=False)
class ShardHint(Passing):
    """Marks where `td.distribute` divides a dataset; until then every element passes."""

    op = "shard_hint"

    def sharded(self, count: int, index: int) -> Operator:
        return Shard(self.up, count, index)


class Chosen:
    """The items ``first, first + step, ...`` before ``stop`` of a stream."""

    def __init__(self, up: Machine, first: int, step: int, stop: int | None) -> None:
        self._up, self._first, self._step, self._stop = up, first, step, stop
        self._seen = 0

    def next(self) -> Any:
        up, first, step = self._up, self._first, self._step
        while True:
            if self._seen < first:
                left_out = taken(up, first - self._seen)
                if left_out is not None:
                    self._seen += len(left_out)
                    continue
            if self._stop is not None and self._seen >= self._stop:
                raise End
            item = up.next()
            at = self._seen - first
            self._seen += 1
            if at >= 0 and at % step == 0:
                return item

    def take(self, most: int) -> Any:
        """Take several elements at once from the input; return None if elements between them are left out."""
        if self._stop is not None:
            most = min(most, self._stop - self._seen)
        if self._step > 1 or self._seen < self._first or most < 1:
            return None
        found = taken(self._up, most)
        if found is not None:
            self._seen += len(found)
        return found

    @property
    def at_once(self) -> int:
        """The number of elements that may be taken at once."""
        return at_once(self._up)

    def mark(self, left: int = 0) -> Mark:
        up: Any = self._up
        return (self._seen - left, up.mark(left) if left else up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"seen": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._seen = count(state, "seen")
        load_part(self._up, state)


class ChoosingMethods(Fluent):
    """Methods of `Dataset` that keep elements by their positions."""

    def skip(self, count: int, name: str | None = None) -> Self:
        """Skip the first `count` elements.

        Parameters
        ----------
        count : int
            The number of elements to skip. A negative number skips all.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        An element whose function failed is counted. tf.data starts to count again after it.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(4).skip(2)]
        [2, 3]
        """
        return self._then(Skip, check_count("count", count))

    def take(self, count: int, name: str | None = None) -> Self:
        """Keep the first `count` elements.

        Parameters
        ----------
        count : int
            The number of elements to keep. A negative number keeps all.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        An element whose function failed is counted. In tf.data it is not.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(4).take(2)]
        [0, 1]
        """
        return self._then(Take, check_count("count", count))

    def shard(self, num_shards: int, index: int, name: str | None = None) -> Self:
        """Keep the elements whose position modulo `num_shards` is `index`.

        Parameters
        ----------
        num_shards : int
            The number of shards, at least 1.
        index : int
            The shard to keep, from 0 to ``num_shards - 1``. If both arguments are ``SHARD_HINT``,
            `td.distribute` sets them if the options say HINT; until then every element is kept.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        ValueError
            `num_shards` is less than 1, or `index` is out of range.

        Notes
        -----
        Shards are disjoint and complete, and their sizes differ by at most one element. After
        ``shuffle(None, units=k)`` a shard has the same size but consists of units of its own. A
        `shuffle` before `shard` needs a seed, the same for all shards. `num_shards` and `index` are
        part of the plan; use `shard_by_process` to keep them out of it.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(7).shard(3, 1)]
        [1, 4]
        """
        if num_shards == index == SHARD_HINT:
            return self._then(ShardHint)
        num_shards = check_count("num_shards", num_shards, least=1)
        index = check_count("index", index)
        if not 0 <= index < num_shards:
            allowed = f"from 0 to {num_shards - 1} (num_shards is {num_shards})"
            raise ValueError(f"index must be {allowed}, not {index}")
        return self._then(Shard, num_shards, index)
