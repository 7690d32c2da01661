"""The stage that reads inner datasets in workers: several ahead, each in chunks.

It is an `Inners`, so the machines that read inner datasets in this process use it unchanged.
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
from tundish.loader.run.stages.stage import Stage

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Machine, Mark
    from tundish.loader.run.stages.parallel import StageOwner
    from tundish.loader.watch.watch import StageMeter

_CHUNK_ROWS = 2048
_CHUNK_BYTES = 1 << 20
_FIRST_FIT = 16
_CHUNKS_AHEAD = 3
_ROWS_AHEAD = 16
"""The distance that a stream is read ahead: in chunks, or in rows if a chunk has few."""


class Stream:
    """One inner dataset and its chunks that are computed or in flight.

    Parameters
    ----------
    stage : StreamStage
        The stage it belongs to.
    number : int
        Its number in messages to workers.
    item : object
        The input item that the inner dataset is made from.
    after : Mark
        The input's mark after that item.
    first : int
        The ordinal, or the offset in a file, of the first element to read.
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
        """Return the next item; raise End or NotReady."""
        return self._stage.next_of(self)

    @property
    def ready(self) -> int:
        """The number of rows of the current chunk that can be taken as one run."""
        block = self._at_hand()
        return 0 if block is None else block.total - self.row

    @property
    def at_once(self) -> int:
        """The number of elements that may be taken at once."""
        block = self._at_hand()
        return block.total - self.row if block is not None and block.small else 1

    def take(self, most: int) -> tuple[Block, int, int] | None:
        """Take up to `most` rows of a chunk: (chunk, first row, end row); None: call `next`."""
        block = self._stage.head(self)
        if block is None or not block.clean:
            return None
        first = self.row
        self.row = min(block.total, first + most)
        self.taken = block.refs.after(self.row - 1)
        return block, first, self.row

    def _at_hand(self) -> Block | None:
        """Return the current chunk if it is computed, without failures, and has rows left."""
        block = self.chunks[0] if self.chunks else None
        if block is None or block.left or not block.clean or self.row >= block.total:
            return None
        return block


class StreamStage(Stage):
    """Read inner datasets in workers.

    Each is read chunk by chunk, by the worker that has it open, or after that worker's death by another. Reading of
    the next inputs begins before they are requested.

    Parameters
    ----------
    owner : StageOwner
        The coordinator, which hands out the tasks.
    number : int
        The stage's number in messages to workers.
    up : Machine
        The machine that gives the inputs.
    tasks : Tasks
        How its chunks are made tasks, and answers taken in.
    cycle : int
        The number of inner datasets that the downstream machine reads in turn.
    placed : bool
        True if elements are named by their offsets in a file, which workers report with each chunk.
    meter : StageMeter
        Counts what the stage delivers.
    """

    ragged = True

    def __init__(
        self,
        owner: StageOwner,
        number: int,
        up: Machine,
        *,
        tasks: Any,
        cycle: int,
        placed: bool,
        meter: StageMeter,
    ) -> None:
        super().__init__(number, tasks, meter)
        self._owner, self._up, self._cycle = owner, up, cycle
        self._refs: Any = PlacedRefs if placed else InnerRefs
        self._open: OrderedDict[int, Stream] = OrderedDict()  # in the order of their turns
        self._waiting: deque[Stream] = deque()
        self._numbers, self._current = 0, -1
        self._ended = self._full = False
        self._skip = 0  # where the first stream begins after a restore
        self.in_chunks = True
        # A mark is valid only right after an item: a machine that is not ready may have moved in part.
        self._reached: Mark = up.mark()
        self._given: Mark = self._reached
        self.counts = Counts()

    @property
    def exhausted(self) -> bool:
        """True if the input and every inner dataset have ended."""
        return self._ended and all(stream.ended for stream in self._streams())

    @property
    def _width(self) -> int:
        """The number of inner datasets that may be open: those that are read in turn, and a few ahead."""
        return self._cycle + self._owner.workers + 1

    @property
    def _depth(self) -> int:
        """The number of chunks of one stream that may be ready or in flight."""
        return max(_CHUNKS_AHEAD, _ROWS_AHEAD // self._rows())

    @property
    def least_window(self) -> int:  # type: ignore[override]  # it is only read
        """The number of chunks needed to read all streams ahead, memory permitting."""
        return self._width * self._depth

    def _streams(self) -> Iterator[Stream]:
        """Yield all open streams, those that are needed soonest first."""
        # Copies: another thread may ask for `stats`.
        yield from list(self._open.values())
        yield from list(self._waiting)

    def forget(self) -> None:
        self._ended = True
        self.meter.gave(*self.begun())
        self._open.clear()
        self._waiting.clear()

    def queued(self) -> list[Block]:
        """Chunks that are in flight or ready."""
        return [block for stream in self._streams() for block in list(stream.chunks)]

    def begun(self) -> tuple[int, int, int]:
        """Return how many elements of the current chunks were delivered, dropped, and delivered as errors."""
        at_hand = [
            stream.chunks[0].outcomes(stream.row)
            for stream in self._streams()
            if stream.chunks and stream.row
        ]
        return tuple(map(sum, zip(*at_hand, strict=True))) if at_hand else (0, 0, 0)  # type: ignore[return-value]  # of three

    # -- asking for chunks ---------------------------------------------------------------------

    def feed(self) -> bool:
        """Take inputs and request chunks while there is room; return True if anything changed."""
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
        """Request chunks, for the streams with the fewest ready first; return True if any was requested."""
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
        return min(_CHUNK_ROWS, fit, self.pace.rows_in_task())

    def _ask(self, stream: Stream, rows: int) -> None:
        refs = self._refs(stream.outer, stream.asked, rows)
        block = Block(self._owner.next_block(), refs, self)
        block.inputs = stream
        stream.chunks.append(block)
        stream.flying = True
        self.blocks += 1
        self._owner.issue(block)

    def split(self, block: Block, size: int) -> None:
        """Request fewer rows of a chunk: a worker died on it, or it is too large for a slot."""
        stream = block.inputs
        assert stream.chunks[-1] is block
        stream.chunks.pop()
        self.blocks -= 1
        self._ask(stream, size)

    def chunk_done(self, block: Block, rows: int, nbytes: int, *, ended: bool) -> None:
        """Record that a chunk was computed with `rows` rows in `nbytes` bytes; `ended` if it is the stream's last."""
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
        """Open the stream of the next input."""
        if not self._waiting:
            self.feed()
        if not self._waiting:
            if not self._ended:
                raise NotReady
            self._given = self._up.mark()
            self._retire()
            raise End
        self.meter.opened += 1
        stream = self._waiting.popleft()
        self._given = stream.after
        self._open[stream.number] = stream
        return stream

    def reopen(self, outer: Ref, taken: int) -> Stream:
        """Open the stream that a restored state names."""
        stream = self._begin(outer, None, taken)
        self._open[stream.number] = stream
        return stream

    def next_of(self, stream: Stream) -> Any:
        """Return the next item of a stream."""
        block, row = self.head(stream), stream.row
        if block is None or block.gone:
            self._close(stream)
            if block is None:
                self.meter.fail(self.meter.name)
                return Failure((stream.outer, NOT_OPENED), stream.item.error)
            self.meter.errors += 1  # it was counted at its node when it was computed
            return Failure((stream.outer, NOT_OPENED), block.error_of(row))
        stream.row += 1
        refs = block.refs
        stream.taken = refs.after(row)
        ref = refs[row]
        return Failure(ref, block.error_of(row)) if row in block.errors else Row(ref, block, row)

    def head(self, stream: Stream) -> Block | None:
        """Return the chunk of the next row, or of an error; None if the stream's input is itself an error."""
        self.turn_to(stream)
        if type(stream.item) is Failure:
            return None
        while stream.chunks:
            block = stream.chunks[0]
            if block.left:
                raise NotReady
            if not stream.row:  # events of the opening
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
        """Note which stream is being read; the one before it is then needed last."""
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
