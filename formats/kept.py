"""A cache with a limit of bytes, for decoded parts of files."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

ROOM = 64 << 20
"""So many bytes are kept unless somebody says otherwise."""


class ByteCache:
    """The most recently used parts, by key; the newest is kept, however large it is.

    Parameters
    ----------
    room : int
        The limit in bytes (``nbytes`` of each part).
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
        """Add a part, and evict the least recently used ones if there is not enough room."""
        self.pop(key)
        nbytes = int(what.nbytes)
        self._found[key] = what, nbytes
        self.used += nbytes
        while self.used > self.room and len(self._found) > 1:
            self.used -= self._found.popitem(last=False)[1][1]

    def pop(self, key: Any) -> None:
        """Remove a part."""
        self.used -= self._found.pop(key, (None, 0))[1]

    def items(self) -> list[tuple[Any, Any]]:
        """Return all parts with their keys."""
        return [(key, what) for key, (what, _) in self._found.items()]

    def clear(self) -> None:
        """Remove all parts."""
        self._found.clear()
        self.used = 0
