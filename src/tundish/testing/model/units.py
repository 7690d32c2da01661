"""The reference of the shuffle of storage units, and of its shards."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

from tundish.testing.model.basic import Basic
from tundish.testing.orders import permutation_of_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tundish.testing.model.basic import Item, Pass

__all__ = ["UnitsModel"]


class UnitsModel(Basic):
    """The reference of operators that depend on the units of storage."""

    deals = False
    """True if each of its shards has units of its own."""

    def shuffle(
        self,
        buffer_size: int | None,
        seed: int = 0,
        reshuffle_each_iteration: bool = True,
        *,
        units: int | None = None,
    ) -> Self:
        if units is None:
            return super().shuffle(buffer_size, seed, reshuffle_each_iteration)

        def items(this: Pass) -> Iterator[Item]:
            whole = list(self.items(replace(this, shard=(1, 0))))
            sizes = [len(list(unit)) for _, unit in groupby(item.unit for item in whole)]
            key = this.number if reshuffle_each_iteration else 0
            for record in permutation_of_units(sizes, units, seed, key, this.shard):
                yield whole[record]

        model = type(self)(items, self)
        model.deals = True
        return model

    def map(
        self, map_func: Callable[..., Any], *args: Any, on_error: str | None = None, **how: Any
    ) -> Self:
        model = super().map(map_func, *args, on_error=on_error, **how)
        model.deals = self.deals and on_error != "skip"
        return model

    def shard(self, num_shards: int, index: int) -> Self:
        if not self.deals:
            return super().shard(num_shards, index)
        return type(self)(lambda this: self.items(replace(this, shard=(num_shards, index))), self)
