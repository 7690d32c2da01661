"""The reference of the operators that end a dataset by a predicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tundish.testing.model.basic import Basic, Item, Pass, arguments, called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class TakingModel(Basic):
    """The reference of `take_while`."""

    def take_while(self, predicate: Callable[..., Any]) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for item in self.items(this):
                verdict = item
                if not item.error:
                    verdict = called(
                        item, lambda *args: bool(predicate(*args)), *arguments(item.value)
                    )
                if verdict.error:
                    yield verdict
                elif verdict.value:
                    yield item
                else:
                    return

        return type(self)(items, self)
