"""An iterator whose progress is shown."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from tundish.progressbar.numbers import LoopCount

if TYPE_CHECKING:
    from tundish.progressbar.bar import TqdmBar
    from tundish.progressbar.line import TextLine

_T = TypeVar("_T")


class ProgressIterator(Generic[_T]):
    """The elements of an iterator whose progress is shown; made by `progress`.

    Its other attributes are those of the iterator, and then those of what was iterated over: ``state_dict``,
    ``load_state_dict``, ``save``, ``restore``, ``stats``, ``explain``, ...
    """

    def __init__(
        self,
        source: Iterator[_T],
        iterable: Any,
        display: TqdmBar | TextLine,
        total: int | None,
        every: float,
    ) -> None:
        self._source, self._iterable, self._every = source, iterable, every
        self._next = source.__next__
        self._counted = LoopCount(display, source, iterable, total)
        self._at = 0.0
        self._end = weakref.finalize(self, self._counted.end)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        try:
            element = self._next()
        except StopIteration:
            self._end()
            raise
        self._counted.count += 1
        if perf_counter() >= self._at:
            self._counted.show(element, self._source)
            self._at = perf_counter() + self._every
        return element

    def __len__(self) -> int:
        length = getattr(self._source, "__len__", None) or getattr(self._iterable, "__len__", None)
        if length is None:
            raise TypeError(f"{type(self._source).__name__} has no length")
        found: int = length()
        return found

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying and pickling look for these
            raise AttributeError(name)
        for each in (vars(self).get("_source"), vars(self).get("_iterable")):
            if hasattr(each, name):
                return getattr(each, name)
        raise AttributeError(f"{type(self._source).__name__} has no {name!r}", name=name)

    def close(self) -> None:
        """Show the last numbers, and close the iterator."""
        self._end()
        close = getattr(self._source, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
