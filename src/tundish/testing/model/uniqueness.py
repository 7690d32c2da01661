"""The reference of the operator that removes repetitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.testing.model.basic import Basic, Item, Pass, called
from tundish.testing.nests import taken_apart

if TYPE_CHECKING:
    from collections.abc import Iterator


class UniquenessModel(Basic):
    """The reference of `unique`."""

    def unique(self) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            seen: list[Any] = []
            for item in self.items(this):
                key = item if item.error else called(item, _key, item.value)
                if key.error:
                    yield key
                elif key.value not in seen:
                    seen.append(key.value)
                    yield item

        return type(self)(items, self)


def _key(value: Any) -> Any:
    leaves, _ = taken_apart(value)
    if len(leaves) != 1:
        raise SpecError("a nest")
    (leaf,) = leaves
    if isinstance(leaf, str | bytes):
        return ascii(leaf)
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "iubO":
        listed = np.asarray(leaf).ravel().tolist()
        if leaf.dtype.kind != "O" or all(isinstance(text, str | bytes) for text in listed):
            return ascii((leaf.dtype.str, leaf.shape, listed))
    raise SpecError("no key")
