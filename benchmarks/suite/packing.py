"""Lines of text, tokens of lines, and rows of tokens: what the peers without a packing operator share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from data import CACHE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LENGTH, BATCH, LINES = 2048, 32, 64


def lines(count: int) -> Iterator[list[bytes]]:
    """Yield lists of 64 lines."""
    every = (CACHE / "text.txt").read_bytes().splitlines()[:count]
    for start in range(0, len(every), LINES):
        yield every[start : start + LINES]


def pack(tokens: Iterable[Any]) -> Iterator[np.ndarray]:
    """Cut the tokens into rows of 2,048, 32 rows a batch; a remainder of less than a batch is left out."""
    held: list[np.ndarray] = []
    number = 0
    for piece in tokens:
        held.append(np.asarray(piece).reshape(-1))
        number += len(held[-1])
        if number >= LENGTH * BATCH:
            joined = np.concatenate(held)
            cut = len(joined) // (LENGTH * BATCH) * LENGTH * BATCH
            yield from joined[:cut].reshape(-1, BATCH, LENGTH)
            held, number = [joined[cut:]], len(joined) - cut


class again:  # noqa: N801
    """An iterable that calls a function for each pass."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __iter__(self) -> Iterator[Any]:
        return iter(self.function())
