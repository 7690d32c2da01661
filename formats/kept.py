"""Decoded parts of files, kept within a number of bytes for who asks again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

ROOM = 64 << 20
"""So many bytes are kept unless somebody says otherwise."""


class Kept:
    """The parts used last, by key; the newest stays, however large it is.

    Parameters
    ----------
    room : int
        How many bytes (``nbytes`` of each) may be kept.
    """

    def __init__(self, room: int = ROOM) -> None:
        self.room, self.used = room, 0
        self._found: OrderedDict[Any, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Any) -> Any:
        """Return the part under a key; None if there is none."""
        found = self._found.get(key)
        if found is None:
            return None
        self._found.move_to_end(key)
        return found[0]

    def put(self, key: Any, what: Any) -> None:
        """Keep something, and of what was kept before as much as there is room for."""
        self.pop(key)
        nbytes = int(what.nbytes)
        self._found[key] = what, nbytes
        self.used += nbytes
        while self.used > self.room and len(self._found) > 1:
            self.used -= self._found.popitem(last=False)[1][1]

    def pop(self, key: Any) -> None:
        """Keep a part no longer."""
        self.used -= self._found.pop(key, (None, 0))[1]

    def items(self) -> list[tuple[Any, Any]]:
        """All that is kept, with its keys."""
        return [(key, what) for key, (what, _) in self._found.items()]

    def clear(self) -> None:
        """Keep nothing."""
        self._found.clear()
        self.used = 0
