"""A new file on its way: nobody sees it until `publish`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer


class Sink(ABC):
    """What a store gives for a new file.

    Attributes
    ----------
    name : str
        What it will be called.
    offset : int
        How many bytes were written.
    closed : bool
        Whether it was published or abandoned.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.closed = False

    def write(self, data: Buffer) -> None:
        """Append bytes: all of them, or an error."""
        self.writev([data])

    def writev(self, pieces: Iterable[Buffer]) -> None:
        """Append the bytes of several buffers, without putting them together."""
        views = [view for view in (memoryview(piece).cast("B") for piece in pieces) if view]
        size = sum(view.nbytes for view in views)  # they are used up
        self._append(views)
        self.offset += size

    @abstractmethod
    def _append(self, views: list[memoryview]) -> None: ...

    @abstractmethod
    def sync(self) -> None:
        """Send what was written to the disk, so that publishing is short."""

    @abstractmethod
    def publish(self) -> bool:
        """Make it durable and give it its name; False if the name is taken."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove it, unless it was published."""
