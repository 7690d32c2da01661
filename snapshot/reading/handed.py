"""Elements that are made at once and handed out one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(eq=False, repr=False)
class Handed(Sequence[Any]):
    """Views of mapped files, each handed out only if its file has not shrunk.

    Parameters
    ----------
    elements : list
        The elements.
    places : sequence of pair
        For each element its batch, and the open shard that it is a view of.
    fail : callable
        ``fail(batch, problem)`` raises the error of a batch.
    """

    elements: list[Any]
    places: Sequence[tuple[int, Any]]
    fail: Callable[[int, str], Any]

    def __len__(self) -> int:
        return len(self.elements)

    def __getitem__(self, k: Any) -> Any:
        return self.elements[k]

    def __iter__(self) -> _Handing:
        return _Handing(self)


class _Handing:
    """Iterator over `Handed`; after an element's error, the next element follows."""

    __slots__ = ("_at", "_handed", "_left")

    def __init__(self, handed: Handed) -> None:
        self._handed: Handed | None = handed
        self._at, self._left = 0, len(handed)

    def __iter__(self) -> _Handing:
        return self

    def __length_hint__(self) -> int:
        return self._left

    def __next__(self) -> Any:
        handed, at = self._handed, self._at
        if not self._left or handed is None:
            self._handed = None  # the elements are held no longer
            raise StopIteration
        self._at, self._left = at + 1, self._left - 1
        b, shard = handed.places[at]
        if shard.size() != shard.whole:
            handed.fail(b, f"has {shard.size():,} bytes, {shard.whole:,} were written")
        return handed.elements[at]
