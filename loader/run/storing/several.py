"""Elements of a complete snapshot, several at once: views of what lies in memory already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.operators.stored import reader_of
from tundish.loader.protocols.items import End
from tundish.loader.protocols.positional import Positions
from tundish.loader.protocols.raised import element_error
from tundish.loader.run.plain import PlainStage

if TYPE_CHECKING:
    from tundish.loader.operators.stored import Found


class StoredStage(PlainStage):
    """As `InlineStage`, over positions of a snapshot whose elements are views of files."""

    found: Found
    """Of which snapshot."""

    def several(self, most: int) -> Any:
        up = self._up
        if not isinstance(up, Positions):
            return None
        before = up.mark()
        try:
            reader = reader_of(self.found)
            most = min(most, reader.at_once)
            return None if most == 1 else reader.handed(up.run(most))
        except End:
            raise
        except BaseException as error:  # noqa: BLE001 - told at its element, when they are asked for one by one
            element_error(error)
            up.load(up.dump(before))
            return None
