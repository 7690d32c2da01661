"""Whether there will be room for all elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.cli.snapshot.estimate import FIRST, stored_bytes
from tundish.cli.snapshot.exits import NO_SPACE, Refusal
from tundish.cli.snapshot.log import amount
from tundish.snapshot.encoding.forms import Form, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Room", "check_space"]

_ENOUGH = 64 << 20
"""So many bytes that were written tell how many there will be."""


def check_space(where: str, need: int, free: int | None, from_what: str) -> None:
    """Refuse what will not fit.

    Raises
    ------
    Refusal
        There is less room than is needed, with both numbers.
    """
    if free is not None and need > free:
        raise Refusal(
            NO_SPACE,
            f"{where} has {amount(free)} free, and about {amount(need)} more are needed "
            f"({from_what}): free some, choose another path, or --compression lz4 or zstd",
        )


class Room:
    """Whether there will be room for all elements, asked before the first byte and on the way.

    Parameters
    ----------
    path : str
        For messages.
    free : callable
        ``free()``: the bytes that may still be written; None: nobody knows.
    left : int or None
        How many elements are to come; None: nobody knows, and nothing is asked.
    compression : {None, "lz4", "zstd"}
        Of batches.
    """

    def __init__(
        self,
        path: str,
        free: Callable[[], int | None],
        left: int | None,
        compression: str | None,
    ) -> None:
        self._path, self._free, self._left = path, free, left
        self._compression = compression
        self._seen = self._bytes = 0
        self.asking = left is not None

    def look(self, element: Any) -> None:
        """Take one of the first elements into account; Refusal when all will not fit."""
        assert self._left is not None
        columns = columns_of([element])
        self._bytes += stored_bytes(Form.of([columns]), columns, self._compression)
        self._seen += 1
        if self._seen >= min(FIRST, self._left):
            self.asking = False
            need = self._bytes * self._left // self._seen
            check_space(self._path, need, self._free(), f"as the first {self._seen} say")

    def written(self, elements: int, nbytes: int) -> None:
        """Ask again when so many of them take so many bytes; Refusal when the rest will not fit."""
        if self._left is None or nbytes < _ENOUGH:
            return
        rest = nbytes * max(0, self._left - elements) // max(1, elements)
        check_space(self._path, rest, self._free(), f"{elements:,} took {amount(nbytes)}")
