"""Refs of many records, written out only where somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from tundish.loader.protocols.items import Ref


class Stretch:
    """Refs of records that lie one behind the other.

    Parameters
    ----------
    outer : Ref or None
        Of the file: refs are (outer, place); None: they are the numbers themselves.
    places : sequence of int
        Of a whole run, or the numbers.
    first, stop : int
        Which of them.
    """

    __slots__ = ("first", "outer", "places", "stop")

    def __init__(
        self, outer: Ref, places: Sequence[int] | np.ndarray, first: int, stop: int
    ) -> None:
        self.outer, self.places, self.first, self.stop = outer, places, first, stop

    def __len__(self) -> int:
        return self.stop - self.first

    def __iter__(self) -> Iterator[Ref]:
        outer = self.outer
        for place in self.places[self.first : self.stop]:
            yield int(place) if outer is None else (outer, int(place))


class BatchRefs:
    """The refs of a batch's rows: stands for a tuple of them, which takes longer to make than the batch.

    `ref` is that tuple: where refs are gathered for a state it takes this one's place.
    """

    __slots__ = ("_parts", "_ref")

    def __init__(self, parts: list[Stretch]) -> None:
        self._parts = parts
        self._ref: tuple[Ref, ...] | None = None

    @property
    def ref(self) -> tuple[Ref, ...]:
        """The refs themselves."""
        if self._ref is None:
            self._ref = tuple([ref for part in self._parts for ref in part])
            self._parts = []
        return self._ref

    def __len__(self) -> int:
        return len(self.ref)

    def __iter__(self) -> Iterator[Ref]:
        return iter(self.ref)

    def __getitem__(self, row: Any) -> Any:
        return self.ref[row]

    def __hash__(self) -> int:
        return hash(self.ref)

    def __eq__(self, other: object) -> bool:
        return self.ref == (other.ref if isinstance(other, BatchRefs) else other)
