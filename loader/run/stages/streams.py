"""Inner datasets by workers: several are read ahead, each in chunks.

They are `Inners`, for the same machines that read them in this process.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.flat_map import NOT_OPENED
from tundish.loader.protocols.block import Block
from tundish.loader.protocols.items import End, Failure, NotReady, Ref, ref_of
from tundish.loader.protocols.machines import Counts
from tundish.loader.protocols.rows import Row
from tundish.loader.run.stages.chunkrefs import InnerRefs, PlacedRefs, told_places
from tundish.loader.run.stages.pace import TASK_S, Pace

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Machine, Mark
    from tundish.loader.run.stages.parallel import StageOwner
    from tundish.loader.watch.watch import StageMeter

_CHUNK_ROWS = 2048
_CHUNK_BYTES = 1 << 20
_FIRST_FIT = 16
_CHUNKS_AHEAD = 3
_ROWS_AHEAD = 16
"""A stream is read ahead so far: in chunks, and where they are of few rows, in rows."""


class Stream:
    """One inner dataset: its chunks, as far as they are made or asked for.

    Parameters
    ----------
    stage : StreamStage
        Whose it is.
    number : int
        Its name towards workers.
    item : object
        The input item it is made of.
    after : Mark
        Of the input, behind the item.
    first : int
        The first element that is wanted.
    """

    __slots__ = (
        "_stage", "after", "asked", "chunks", "deaths", "ended", "flying", "item", "number", "outer",
        "peer", "row", "taken",
    )  # fmt: skip

    def __init__(self, stage: StreamStage, number: int, item: Any, after: Mark, first: int) -> None:
        self._stage, self.number, self.item, self.after = stage, number, item, after
        self.outer = ref_of(item)
        self.asked = self.taken = first
        self.chunks: deque[Block] = deque()
        self.row = self.deaths = 0
        self.ended = self.flying = False
        self.peer: Any = None

    def next(self) -> Any:
        """Return its next item; raise End or NotReady."""
        return self._stage.next_of(self)

    @property
    def ready(self) -> int:
        """The number of rows of a chunk that can be taken in one run."""
        block = self._at_hand()
        return 0 if block is None else block.total - self.row

    @property
    def at_once(self) -> int:
        """The number of elements that may be taken when one is asked for."""
        block = self._at_hand()
        return block.total - self.row if block is not None and block.small else 1

    def take(self, most: int) -> tuple[Block, int, int] | None:
        """Take the next rows of a chunk, `most` at most: the chunk, and from where to where in it; None: ask `next`."""
        block = self._stage.head(self)
        if block is None or not block.clean:
            return None
        first = self.row
        self.row = min(block.total, first + most)
        self.taken = block.refs.after(self.row - 1)
        return block, first, self.row

    def _at_hand(self) -> Block | None:
        """A chunk that is made and in which nothing failed, of which rows are left."""
        block = self.chunks[0] if self.chunks else None
        if block is None or block.left or not block.clean or self.row >= block.total:
            return None
        return block


class StreamStage:
    """Read inner datasets in workers.

    Each is read in chunks, one after another, by the worker that has it open, or by another that
    goes on where a dead one left it. The next inputs' are begun before they are asked for.

    Parameters
    ----------
    owner : StageOwner
        Who hands out the tasks.
    number : int
        The stage's name towards workers.
    up : Machine
        The stream of inputs.
    cycle : int
        How many the machine above reads in turn.
    placed : bool
        Whether elements are named by their places: a chunk's answer tells them.
    meter : StageMeter
        Where it is counted.
    """

    def __init__(
        self,
        owner: StageOwner,
        number: int,
        up: Machine,
        *,
        cycle: int,
        placed: bool,
        meter: StageMeter,
    ) -> None:
        self._owner, self.number, self._up = owner, number, up
        self._refs: Any = PlacedRefs if placed else InnerRefs
        self._cycle, self.meter = cycle, meter
        self._open: OrderedDict[int, Stream] = OrderedDict()  # as their turns will come
        self._waiting: deque[Stream] = deque()
        self._numbers, self._current = 0, -1
        self._ended = self._full = False
        self._skip = 0  # of the first stream, after a restore
        self.in_chunks = True
        # A mark is good just after an item: one that is not ready may have moved a part of it.
        self._reached: Mark = up.mark()
        self._given: Mark = self._reached
        self.counts = Counts()
        self.pace = Pace()
        self.blocks = self.nbytes = self.waiting = self.block_nbytes = self.window = 0
        self.ahead = 0  # blocks that there may be, by what tasks took; 0: nobody knows
        self.ragged = True
        self.group = 1

    @property
    def exhausted(self) -> bool:
        """True if the input has ended and every inner dataset has."""
        return self._ended and all(stream.ended for stream in self._streams())

    @property
    def _width(self) -> int:
        """The number of inner datasets that may be begun: those that are read in turn, and some ahead."""
        return self._cycle + self._owner.workers + 1

    @property
    def _depth(self) -> int:
        """The number of chunks of a stream that may be ready or on the way."""
        return max(_CHUNKS_AHEAD, _ROWS_AHEAD // self._rows())

    @property
    def least_window(self) -> int:
        """The number of chunks it needs to read all streams ahead, if there is memory."""
        return self._width * self._depth

    def _streams(self) -> Iterator[Stream]:
        """Yield all that are begun, what is wanted first at the front."""
        # Copies: another thread may ask for `stats`.
        yield from list(self._open.values())
        yield from list(self._waiting)

    def forget(self) -> list[Block]:
        """Take nothing more, and give up all blocks: nobody will ask again."""
        self._ended = True
        blocks = [block for stream in self._streams() for block in stream.chunks]
        self.meter.gave(*self.begun())
        self._open.clear()
        self._waiting.clear()
        return blocks

    def queued(self) -> list[Block]:
        """The chunks that are on the way or ready."""
        return [block for stream in self._streams() for block in list(stream.chunks)]

    def begun(self) -> tuple[int, int, int]:
        """Return how many elements of the chunks at hand were given, left out, and given as errors."""
        at_hand = [
            stream.chunks[0].outcomes(stream.row)
            for stream in self._streams()
            if stream.chunks and stream.row
        ]
        return tuple(map(sum, zip(*at_hand, strict=True))) if at_hand else (0, 0, 0)  # type: ignore[return-value]  # of three

    # -- asking for chunks ---------------------------------------------------------------------

    def feed(self) -> bool:
        """Take inputs and ask for chunks as long as there is room."""
        moved = False
        while not self._ended and len(self._open) + len(self._waiting) < self._width:
            try:
                item = self._up.next()
            except NotReady:
                break
            except End:
                self._ended = True
                break
            self._reached = self._up.mark()
            self._waiting.append(self._begin(item, self._reached, self._skip))
            self._skip = 0
            moved = True
        return (not self._full and self._ask_all()) or moved

    def _begin(self, item: Any, after: Mark, first: int) -> Stream:
        stream = Stream(self, self._numbers, item, after, first)
        self._numbers += 1
        stream.ended = type(item) is Failure
        self._full = False
        return stream

    def _ask_all(self) -> bool:
        """Ask for chunks, where fewest are ready first; return True if there was anything to ask for."""
        streams = list(self._streams())
        moved = False
        for depth in range(self._depth):
            for k, stream in enumerate(streams):
                if stream.ended or stream.flying or len(stream.chunks) != depth:
                    continue
                if k and not self._owner.may_issue(self):
                    return moved
                self._ask(stream, self._rows())
                moved = True
        self._full = True
        return moved

    def _rows(self) -> int:
        nbytes = self.pace.row_nbytes
        fit = max(1, _CHUNK_BYTES // nbytes) if nbytes else _FIRST_FIT
        return min(_CHUNK_ROWS, fit, self.pace.rows_in(TASK_S))

    def _ask(self, stream: Stream, rows: int) -> None:
        refs = self._refs(stream.outer, stream.asked, rows)
        block = Block(self._owner.next_block(), refs, self)
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

    def chunk_done(self, block: Block, rows: int, nbytes: int, *, ended: bool) -> None:
        """Take in a chunk: `rows` of it in so many bytes, and whether the inner dataset ended there."""
        if rows and nbytes:
            self.pace.row_nbytes = -(-nbytes // rows)
        stream = block.inputs
        stream.flying = self._full = False
        refs = block.refs
        if isinstance(refs, InnerRefs):
            stream.asked += rows
        elif not block.gone:
            refs.made(told_places(block, refs, rows))
            stream.asked = refs.after(rows - 1) if rows else stream.asked
        stream.deaths = 0
        stream.ended = ended
        block.total = rows

    # -- giving elements -----------------------------------------------------------------------

    def open(self) -> Stream:
        """Open the next input's stream."""
        if not self._waiting:
            self.feed()
        if not self._waiting:
            if not self._ended:
                raise NotReady
            self._given = self._up.mark()
            self._retire()
            raise End
        stream = self._waiting.popleft()
        self._given = stream.after
        self._open[stream.number] = stream
        return stream

    def reopen(self, outer: Ref, taken: int) -> Stream:
        """Open the stream that a state names."""
        stream = self._begin(outer, None, taken)
        self._open[stream.number] = stream
        return stream

    def next_of(self, stream: Stream) -> Any:
        """The next item of a stream."""
        block, row = self.head(stream), stream.row
        if block is None or block.gone:
            self._close(stream)
            self.meter.fail(self.meter.name)
            error = stream.item.error if block is None else block.error_of(row)
            return Failure((stream.outer, NOT_OPENED), error)
        stream.row += 1
        refs = block.refs
        stream.taken = refs.after(row)
        ref = refs[row]
        return Failure(ref, block.error_of(row)) if row in block.errors else Row(ref, block, row)

    def head(self, stream: Stream) -> Block | None:
        """The chunk whose row is next, or which is an error; None if what the stream is made of is one."""
        self.turn_to(stream)
        if type(stream.item) is Failure:
            return None
        while stream.chunks:
            block = stream.chunks[0]
            if block.left:
                raise NotReady
            if not stream.row:  # what was told when it was opened
                self.counts.add(list(block.events.pop(0, ())))
            if block.gone or stream.row < block.total:
                return block
            self._drop_chunk(stream)
        if stream.ended:
            self._close(stream)
            raise End
        self._full = False
        self.feed()
        raise NotReady

    def turn_to(self, stream: Stream) -> None:
        """Note which stream is read: the one before it is wanted last."""
        if stream.number != self._current:
            if self._current in self._open:
                self._open.move_to_end(self._current)
            self._current = stream.number
            self._open.move_to_end(self._current, last=False)

    def _drop_chunk(self, stream: Stream) -> None:
        block = stream.chunks.popleft()
        self.meter.gave(*block.outcomes(stream.row))
        stream.row = 0
        self.blocks -= 1
        self.nbytes -= block.nbytes
        self._full = False
        self._owner.moved = True

    def _close(self, stream: Stream) -> None:
        while stream.chunks:
            self._drop_chunk(stream)
        del self._open[stream.number]
        self._full = False
        self._owner.moved = True
        self._retire()

    def _retire(self) -> None:
        if self._ended and not self._open and not self._waiting:
            self._owner.retire(self)

    # -- state ---------------------------------------------------------------------------------

    def mark(self) -> Mark:
        return self._given

    def dump(self, mark: Mark) -> Any:
        return self._up.dump(mark)

    def load(self, state: Any, skip: int = 0) -> None:
        self._up.load(state)
        self._skip = skip
        self._reached = self._given = self._up.mark()
