"""Records of files by their number, many at once, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.items import End
from tundish.loader.protocols.positional import Positions
from tundish.loader.protocols.refs import ints
from tundish.loader.run.inline import InlineStage

if TYPE_CHECKING:
    from tundish.formats.files import RecordFiles
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.refs import Refs


def innermost(ref: Ref) -> int:
    """The number in a ref."""
    while type(ref) is tuple:
        ref = ref[-1]
    return int(ref)


class FileStage(InlineStage):
    """As `InlineStage`, over positions of files; it gives several records at once."""

    owning = False  # nothing a user wrote is in it

    source: RecordFiles
    """The files."""

    def several(self, most: int) -> list[Any] | None:
        """The next elements at once; None where they have to be asked for one by one."""
        up = self._up
        if not isinstance(up, Positions):  # a state leaves out what came out of turn
            return None
        refs = up.take(most)
        if not len(refs):
            raise End
        values = self._values(refs)
        up.back(len(refs) - len(values))
        return values or None

    def _values(self, refs: Refs) -> list[Any]:
        """Records up to the first that cannot be read, or as many as are read at once."""
        source, count = self.source, len(self.source)
        if isinstance(refs, range) and refs.step == 1:
            number = refs[0] % count
            found = source.run(number, min(len(refs), count - number))
            return [] if isinstance(found, Exception) else found[0].part(*found[1:])
        values = source.get([innermost(ref) % count for ref in ints(refs)])
        bad = [k for k, value in enumerate(values) if isinstance(value, Exception)]
        return values[: bad[0]] if bad else values
