"""Draws from torch's generator of the whole process that no state holds.

A sampler of torch's that a user's own sampler makes, or holds by a name that we do not know, draws its order there. Its
code does not show it, but the generator has moved when the first keys have come.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tundish.loader.dataloader.generators import as_generator

if TYPE_CHECKING:
    from collections.abc import Callable


class DrawWatch:
    """A look at the generators as a sampler is begun, and as it gives its first keys.

    Parameters
    ----------
    unknown : bool
        False for samplers whose draws are recorded: there is nothing to look for.

    Attributes
    ----------
    drew : bool
        True if one has moved, without having been seeded meanwhile.
    """

    def __init__(self, *, unknown: bool) -> None:
        self.drew = False
        self._looks = 2 if unknown else 0

    def asked(self, ask: Callable[[], Any]) -> Any:
        """Return what asking gives; the first two times, look at the generators before and after."""
        if not self._looks:
            return ask()
        self._looks -= 1
        before = _positions()
        try:
            return ask()
        finally:
            # Torch may have been imported meanwhile.
            pairs = zip(before, _positions(), strict=False)
            moved = [was["seed"] == now["seed"] and was != now for was, now in pairs]
            self.drew = self.drew or any(moved)


def _positions() -> list[dict[str, Any]]:
    """Return the positions of the generators that samplers without one of their own draw from: ours, torch's."""
    torch: Any = sys.modules.get("torch")
    theirs = [] if torch is None else [torch.default_generator]
    return [as_generator(each).state_dict() for each in (None, *theirs)]
