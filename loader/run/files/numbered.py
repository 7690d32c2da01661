"""Records of files by their number, many at once, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.formats.format import Records, Run
from tundish.loader.operators.records import mark_as_own
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.positional import Positions, listed
from tundish.loader.protocols.refs import Stretch
from tundish.loader.run.inline import InlineStage

if TYPE_CHECKING:
    from tundish.formats.files import RecordFiles
    from tundish.loader.protocols.contracts import Mark
    from tundish.loader.protocols.items import Ref

Several = tuple[Stretch, Run, int, int] | Failure
"""Refs, a run, and from where to where in it; or an error."""


def innermost(ref: Ref) -> int:
    """The number in a ref."""
    while type(ref) is tuple:
        ref = ref[-1]
    return int(ref)


class FileStage(InlineStage):
    """As `InlineStage`, over positions of files; it gives runs of records, as `FileSequence` does."""

    owning = False  # nothing a user wrote is in it

    source: RecordFiles
    """The files."""

    def several(self, most: int) -> list[Any] | None:
        """The next elements at once; None where they have to be asked for one by one."""
        if not isinstance(self._up, Positions):
            return None
        found = self.some(most)
        if isinstance(found, Failure):
            self._meter.fail(self._meter.name, -1)
            self._up.back(1)
            return None
        _, run, first, stop = found
        return run.part(first, stop)

    def some(self, most: int) -> Several:
        """As `next`, but as many records as lie one behind the other: (refs, run, first, stop)."""
        up = self._up
        if not isinstance(up, Positions):  # a state leaves out what came out of turn
            item: Any = self.next()
            if type(item) is Failure:
                return item
            return Stretch(None, [item.ref], 0, 1), Records([], 0, [item.value]), 0, 1
        refs = up.take(most)
        if not len(refs):
            raise End
        if not isinstance(refs, range) or refs.step != 1:
            return self._scattered(up, listed(refs))
        number = refs[0] % len(self.source)
        found = self.source.run(number, min(len(refs), len(self.source) - number))
        if isinstance(found, Exception):
            up.back(len(refs) - 1)
            return self._damaged(refs[0], found)
        run, first, stop = found
        up.back(len(refs) - (stop - first))
        return Stretch(None, refs, 0, stop - first), run, first, stop

    def _scattered(self, up: Positions, refs: list[Ref]) -> Several:
        """Records that lie here and there, up to the first that cannot be read."""
        count = len(self.source)
        if type(refs[0]) is tuple:  # of a repeat of what has no end, say
            numbers: list[int] = [innermost(ref) % count for ref in refs]
        else:
            numbers = [ref % count for ref in refs]
        values = self.source.get(numbers)
        good = next((k for k, x in enumerate(values) if isinstance(x, Exception)), len(refs))
        up.back(len(refs) - max(good, 1))
        if not good:
            return self._damaged(refs[0], values[0])
        return Stretch(None, refs, 0, good), Records([], 0, values[:good]), 0, good

    def _damaged(self, ref: Ref, error: Exception) -> Failure:
        mark_as_own(error, self.source.form)
        self._meter.fail(self._meter.name)
        return self._failed(ref, error)

    def back(self, count: int) -> None:
        """Give the last records again."""
        assert isinstance(self._up, Positions)
        self._up.back(count)

    def mark_back(self, left: int) -> Mark:
        """The mark so many elements before the last one of `several`."""
        assert isinstance(self._up, Positions)
        return (self._counts.by_event, self._up.mark_back(left))
