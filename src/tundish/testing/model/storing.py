"""The reference of storing elements in files, which has no effect except on elements' identities.

What is below runs once, in pass 0. What comes out is a source of its own: element n is element n,
whoever made it, and however much of it stood in files before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from tundish.testing.model.basic import Basic, Item, Pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["StoringModel"]


class StoringModel(Basic):
    """The reference of `cache`, `snapshot`, `save` and `load`."""

    def snapshot(
        self,
        path: str,
        compression: str | None = None,
        reader_func: Callable[..., Any] | None = None,
        shard_func: Callable[..., Any] | None = None,
        **_: Any,
    ) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for index, item in enumerate(self.items(replace(this, number=0))):
                yield this.at(index, item.value, item.error)

        return type(self)(items, self)

    def cache(self, filename: str = "") -> Self:
        return self.snapshot(filename) if filename else super().cache()

    def save(self, path: str, **_: Any) -> None:
        """Store the elements for `load`."""
        _SAVED[str(path)] = self

    @classmethod
    def load(cls, path: str, *_: Any, **__: Any) -> Self:
        saved = _SAVED[str(path)]
        return cls(
            lambda this: (
                this.at(index, item.value, item.error)
                for index, item in enumerate(saved.items(Pass(0, saved.numbers())))
            )
        )


_SAVED: dict[str, Any] = {}
"""The elements given to `save`, by path."""
