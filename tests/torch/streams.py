"""An iterable dataset without a length, of torch's own kind; a worker imports this module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    """0, 1, 2, ..."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))
