"""`flat_map` by workers: several inner datasets are read at once and delivered in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tundish.loader.run.inline import Counts
from tundish.loader.run.items import End, Failure, NotReady, Ref, ref_of
from tundish.loader.run.shared import Block, Row
from tundish.loader.run.stages import TASK_S, Pace, StageOwner

if TYPE_CHECKING:
    from tundish.loader.run.machines import Machine, Mark

_CHUNK_ROWS = 512
_CHUNK_BYTES = 1 << 20
_FIRST_FIT = 16
_AHEAD = 2


class Stream:
    """One inner dataset: its chunks, as far as they are made or asked for.

    Parameters
    ----------
    number : int
        Its name towards workers.
    item : object
        The input item it is made of.
    before, after : Mark
        Of the input, around the item.
    first : int
        The first element that is wanted.
    """

    __slots__ = (
        "after",
        "asked",
        "before",
        "chunks",
        "ended",
        "first",
        "flying",
        "item",
        "number",
        "peer",
    )

    def __init__(self, number: int, item: Any, before: Mark, after: Mark, first: int) -> None:
        self.number, self.item, self.before, self.after = number, item, before, after
        self.first = self.asked = first
        self.chunks: deque[Block] = deque()
        self.ended = self.flying = False
        self.peer: Any = None


class InnerRefs(Sequence[Any]):
    """The refs of a chunk's rows: (outer ref, ordinal); -1 for one that could not be opened."""

    __slots__ = ("first", "outer", "size")

    def __init__(self, outer: Ref, first: int, size: int) -> None:
        self.outer, self.first, self.size = outer, first, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [(self.outer, self.first + k) for k in range(*row.indices(self.size))]
        return (self.outer, self.first + row)


class StreamStage:
    """Read the inner datasets of a flat_map in workers.

    Each is read in chunks, one after another, by the worker that has it open, or by another that
    goes on where a dead one left it.

    Parameters
    ----------
    owner : StageOwner
        Who hands out the tasks.
    number : int
        The stage's name towards workers.
    up : Machine
        The stream of inputs.
    width : int
        How many inner datasets may be open.
    """

    def __init__(self, owner: StageOwner, number: int, up: Machine, width: int) -> None:
        self._owner, self.number, self._up, self._width = owner, number, up, width
        self._streams: deque[Stream] = deque()
        self._numbers = 0
        self._ended = self._done = False
        self._row = 0
        self._skip = 0  # of the first stream, after a restore
        # A mark is good just after an item: one that is not ready may have moved a part of it.
        self._reached: Mark = up.mark()
        self._mark: tuple[int, Mark] = (0, self._reached)
        self._counts = Counts()
        self.pace = Pace()
        self.blocks = self.nbytes = self.waiting = self.block_nbytes = self.window = 0
        self.ragged = True
        self.group = 1

    @property
    def exhausted(self) -> bool:
        """Whether the input has ended and every inner dataset has."""
        return self._ended and all(s.ended for s in self._streams)

    # -- asking for chunks ---------------------------------------------------------------------

    def feed(self) -> bool:
        """Open inner datasets and ask for chunks as long as there is room."""
        moved = False
        while not self._ended and len(self._streams) < self._width:
            before = self._reached
            try:
                item = self._up.next()
            except NotReady:
                break
            except End:
                self._ended = True
                break
            self._reached = self._up.mark()
            stream = Stream(self._numbers, item, before, self._reached, self._skip)
            self._numbers += 1
            self._skip = 0
            stream.ended = type(item) is Failure
            self._streams.append(stream)
            moved = True
        for k, stream in enumerate(self._streams):
            if stream.ended or stream.flying or len(stream.chunks) > _AHEAD:
                continue
            if k and not self._owner.may_issue(self):
                break
            self._ask(stream, self._rows())
            moved = True
        return moved

    def _rows(self) -> int:
        nbytes = self.pace.row_nbytes
        fit = max(1, _CHUNK_BYTES // nbytes) if nbytes else _FIRST_FIT
        return min(_CHUNK_ROWS, fit, self.pace.rows_in(TASK_S))

    def _ask(self, stream: Stream, rows: int) -> None:
        block = Block(
            self._owner.next_block(), InnerRefs(ref_of(stream.item), stream.asked, rows), self
        )
        block.inputs = stream
        stream.chunks.append(block)
        stream.flying = True
        self.blocks += 1
        self._owner.issue(block)

    def split(self, block: Block, size: int) -> None:
        """Ask for fewer rows of a chunk: a worker died on it, or it is too large."""
        stream = block.inputs
        assert stream.chunks[-1] is block
        stream.chunks.pop()
        self.blocks -= 1
        self._ask(stream, size)

    def chunk_done(self, block: Block, rows: int, *, ended: bool) -> None:
        """A chunk was made: `rows` of it, and whether the inner dataset ended there."""
        stream = block.inputs
        stream.flying = False
        stream.asked += rows
        stream.ended = ended
        block.total = rows

    # -- giving elements -----------------------------------------------------------------------

    def next(self) -> Any:
        while True:
            if not self._streams:
                self._refill()
            stream = self._streams[0]
            if type(stream.item) is Failure:
                self._pop()
                return Failure((stream.item.ref, -1), stream.item.error)
            if not stream.chunks:
                if not stream.ended:
                    self.feed()
                    raise NotReady
                self._pop()
                continue
            block = stream.chunks[0]
            if block.left:
                raise NotReady
            row = self._row
            if row >= block.total:
                self._drop_chunk(stream)
                continue
            self._row += 1
            if row in block.events:
                self._counts.add(list(block.events[row]))
            if block.gone:  # the inner dataset could not be opened
                error = block.errors[row]
                self._pop()
                return Failure((ref_of(stream.item), -1), error)
            ref = block.refs[row]
            self._mark = (ref[1] + 1, stream.before)
            if row in block.errors:
                return Failure(ref, block.errors[row])
            return Row(ref, block, row)

    def _refill(self) -> None:
        if self._done:
            raise End
        self.feed()
        if self._streams:
            return
        if not self._ended:
            raise NotReady
        self._done = True
        self._mark = (0, self._up.mark())
        self._owner.retire(self)
        raise End

    def _drop_chunk(self, stream: Stream) -> None:
        block = stream.chunks.popleft()
        self._row = 0
        self.blocks -= 1
        self.nbytes -= block.nbytes
        self._owner.moved = True

    def _pop(self) -> None:
        stream = self._streams[0]
        while stream.chunks:
            self._drop_chunk(stream)
        self._streams.popleft()
        self._mark = (0, stream.after)
        self._owner.moved = True

    # -- state ---------------------------------------------------------------------------------

    def mark(self) -> Mark:
        return (self._counts.by_event, *self._mark)

    def dump(self, mark: Mark) -> Any:
        counts, at, up = mark
        body = {"inner": at, "up": self._up.dump(up)}
        # Not at the top: a stage above tells its own counts from a state without any there.
        return {**body, "opened": {"counts": counts}} if counts else body

    def load(self, state: Any) -> None:
        self._counts.by_event = dict(state.get("opened", {}).get("counts", {}))
        self._skip = state["inner"]
        self._up.load(state["up"])
        self._reached = self._up.mark()
        self._mark = (self._skip, self._reached)
