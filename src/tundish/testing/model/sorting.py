"""The reference of the operator that sorts within windows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.testing.model.basic import Basic, Item, Pass, arguments, called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SortingModel(Basic):
    """The reference of `sort_within`."""

    def sort_within(self, window: int, key: Callable[..., Any], *, reverse: bool = False) -> Self:
        def keyed(item: Item) -> Item:
            found = item if item.error else called(item, key, *arguments(item.value))
            if not found.error and not _is_comparable(found.value):
                return found._replace(error=SpecError("no key"))
            return found

        def items(this: Pass) -> Iterator[Item]:
            below = self.items(this)
            while held := list(itertools.islice(below, window)):
                keys = [keyed(item) for item in held]
                sound = [at for at, found in enumerate(keys) if not found.error]
                while sound:  # of those that are left the first one that no other has to precede
                    pick = max if reverse else min
                    first = pick(sound, key=lambda at: keys[at].value.item())  # numpy would round
                    sound.remove(first)
                    yield held[first]
                yield from (found for found in keys if found.error)

        return type(self)(items, self)


def _is_comparable(value: Any) -> bool:
    if not isinstance(value, np.bool_ | np.integer | np.floating):
        return False
    return bool(value == value)  # noqa: PLR0124 - which NaN is not
