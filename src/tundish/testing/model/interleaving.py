"""The reference of the operator that reads several datasets in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tundish.testing.model.basic import Basic, arguments, called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tundish.testing.model.basic import Item, Pass


class InterleavingModel(Basic):
    """The reference of `interleave` and `flat_map`."""

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: int = 16,
        block_length: int = 1,
        num_parallel_calls: int | None = None,
    ) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            inputs = self.items(this)
            slots: list[Iterator[Item] | None] = [None] * cycle_length
            more, at, come = True, 0, 0
            while more or any(slots):
                slot = slots[at]
                if slot is None and more:
                    outer = next(inputs, None)
                    if outer is None:
                        more = False
                        continue
                    made = outer
                    if not outer.error:
                        made = called(outer, map_func, *arguments(outer.value))
                    if made.error:
                        yield made  # and the next input is for the same slot
                    else:
                        slots[at] = made.value.within(outer)
                    continue
                item = next(slot, None) if slot is not None else None
                if item is None:
                    slots[at] = None
                else:
                    yield item
                    come += item.error is None
                if item is None or come == block_length:
                    at, come = (at + 1) % cycle_length, 0

        return type(self)(items, self)
