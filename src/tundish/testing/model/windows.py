"""The reference of windows: elements that are datasets."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Self

from tundish.errors import SpecError
from tundish.testing.model.basic import Basic, Item, Pass
from tundish.testing.nests import is_tuple, taken_apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class WindowsModel(Basic):
    """The reference of `window`."""

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> Self:
        step = size if shift is None else shift

        def items(this: Pass) -> Iterator[Item]:
            stream = enumerate(self.items(this))
            held: dict[int, Item] = {}
            for k in itertools.count():
                places = range(k * step, k * step + size * stride, stride)
                while places[-1] not in held:
                    at, item = next(stream, (None, None))
                    if at is None or item is None:
                        break
                    held[at] = item
                row = [held[place] for place in places if place in held]
                if not row or (drop_remainder and len(row) < size):
                    return
                yield this.at(k, self._nest(row))
                held = {place: item for place, item in held.items() if place >= places[0] + step}

        return type(self)(items, self)

    def _nest(self, row: list[Item]) -> Any:
        """Make a dataset of each leaf of several items."""
        like = next((item.value for item in row if not item.error), None)
        leaves, build = taken_apart(like)
        columns: list[list[Item]] = [[] for _ in leaves]
        for item in row:
            parts = None if item.error else _parts(like, item.value)
            error = item.error or (SpecError("another structure") if parts is None else None)
            for at, column in enumerate(columns):
                column.append(item._replace(value=parts and parts[at], error=error))
        return build([self._at_hand(column) for column in columns])

    def _at_hand(self, row: Sequence[Item]) -> Self:
        """Make a dataset of several items."""
        return type(self)(
            lambda this: (this.at(i, item.value, item.error) for i, item in enumerate(row))
        )


def _parts(like: Any, value: Any) -> list[Any] | None:
    """Return a value's leaves in another one's order; None if the structures differ."""
    if isinstance(like, dict):
        if type(value) is not dict or like.keys() != value.keys():
            return None
        pairs = [(like[key], value[key]) for key in like]
    elif is_tuple(like):
        if type(like) is not type(value) or len(like) != len(value):
            return None
        pairs = list(zip(like, value, strict=True))
    else:
        return None if isinstance(value, dict) or is_tuple(value) else [value]
    found = [_parts(*pair) for pair in pairs]
    if any(part is None for part in found):
        return None
    return [leaf for part in found if part for leaf in part]
