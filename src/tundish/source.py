"""The one protocol of a record source with random access."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Source(Protocol):
    """Anything with a length and items by index: a list, a torch map-style dataset, ...

    ``source[i]`` is called in workers, in any order, for ``0 <= i < len(source)``; it must depend
    on nothing but ``i``. The object is sent to the workers once, by pickle; large arrays that it
    holds are put into shared memory once.

    A source may also have ``__getitems__(indices)``, as Hugging Face datasets have: workers then
    read the records of a task in one call. It returns what ``source[i]`` gives for each index; if
    it raises, the records are read one by one. It is not called of a Hugging Face dataset with a
    format, which gives numbers of another dtype then.
    """

    def __len__(self) -> int:
        """Return the number of records."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """The record at an index."""
        ...
