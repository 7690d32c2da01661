"""The stage whose items are computed by workers.

A `ParallelStage` takes items from its input ahead of demand, cuts them into blocks and the blocks into tasks,
and delivers the results in the order of its input. `RowBatches` batches the results: a batch whose rows are
consecutive rows of one block is delivered as it lies; otherwise a worker gathers the runs.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tundish.loader.protocols.block import Block
from tundish.loader.protocols.items import End, Failure, Made, NotReady, ref_of
from tundish.loader.protocols.machines import Counts, added
from tundish.loader.protocols.pieces import Pieces, RowChunk, mark_behind
from tundish.loader.protocols.positional import Positions
from tundish.loader.protocols.rows import Row, Rows, as_ref
from tundish.loader.protocols.state_parsing import own
from tundish.loader.run.stages.overtaking import load_stage, with_left_out
from tundish.loader.run.stages.stage import Stage

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import AtHome, Machine, Mark
    from tundish.loader.watch.watch import StageMeter

_TAKING_S = 0.002
"""Seconds for which items are taken in one go, while the consumer waits."""

_LATE_S = 0.02
"""Seconds that a block may wait until it is full, if it is needed now."""

_FIRST_FIT = 16
_MOST_PASSING = 16
_BLOCK_BYTES = 1 << 20


class StageOwner(Protocol):
    """The interface of a stage's owner, the coordinator, which hands out the stage's blocks."""

    workers: int
    """The number of workers that compute."""

    moved: bool
    """Set when something was done that may let other stages continue."""

    def may_issue(self, stage: Any) -> bool:
        """Return True if a stage may have one more block in flight."""
        ...

    def issue(self, block: Block) -> object:
        """Cut a block into tasks and send them to workers."""
        ...

    def next_block(self) -> int:
        """Return a number for a new block."""
        ...

    def busy(self) -> bool:
        """Return True if any worker has a task."""
        ...

    def idle(self) -> bool:
        """Return True if any worker has no task."""
        ...

    def retire(self, stage: Any) -> None:
        """Unregister a stage that has delivered everything."""
        ...


class ParallelStage(Stage):
    """Compute the items of a stream in workers, ahead of demand and in order.

    Parameters
    ----------
    owner : StageOwner
        The coordinator, which hands out the tasks.
    number : int
        The stage's number in messages to workers.
    up : Machine
        The machine that gives the stage's input.
    tasks : Tasks
        How its blocks are cut into tasks, and answers taken in.
    chain : bool
        False if the evaluator only computes the item, so that an item that is already computed passes unchanged.
    ordered : bool
        True to deliver elements in input order, False to deliver each as soon as it is ready.
    meter : StageMeter
        Counts what the stage delivers.
    continues : bool, default False
        True if it continues a run of operators that another stage has begun: in a state, the two are one.
    at_home : callable, optional
        Makes an item's element in this process, or returns None to leave it to a worker.
    """

    def __init__(
        self,
        owner: StageOwner,
        number: int,
        up: Machine,
        *,
        tasks: Any,
        chain: bool,
        ordered: bool,
        meter: StageMeter,
        continues: bool = False,
        at_home: AtHome | None = None,
    ) -> None:
        super().__init__(number, tasks, meter)
        self._continues, self._at_home = continues, at_home
        self._owner, self._up, self._chain = owner, up, chain
        self._queue: deque[Any] = deque()
        self._passing = 0  # how many entries of `_queue` are computed items and not blocks
        self._at = 0
        self._ended = self._done = False
        self._counts = Counts()
        self._last: Any = up.mark()
        # The items of the block that is being filled, and their marks; if `_in_runs`, stretches of them.
        self._partial: list[Any] = []
        self._partial_marks: list[Any] = []
        self._rows = 0  # rows in `_partial`
        self._in_runs = chain and getattr(up, "gives_runs", False)
        self._ordered = ordered
        self._pulled = 0
        self._before: Mark = up.mark()
        self._partial_before: Mark = None
        self._partial_since = 0.0
        self.waiting = 0  # rows that have not been taken

    # -- taking items --------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        return self._ended

    @property
    def gives_runs(self) -> bool:
        """True if rows may be taken in runs, since their marks can be computed without the stage."""
        return self._ordered

    def queued(self) -> list[Block]:
        # A copy: another thread may ask for `stats`.
        return [entry for entry in list(self._queue) if type(entry) is Block]

    def forget(self) -> None:
        self._ended = True
        blocks = self.queued()
        if blocks and self._at:
            self.meter.gave(*blocks[0].outcomes(self._at))
        self._queue.clear()
        self._partial, self._partial_marks, self._rows = [], [], 0

    def feed(self, *, until_one: bool = False) -> bool:
        """Issue blocks while there is room, or until one is issued; return True if anything changed."""
        moved = False
        issue = self._issue_refs if isinstance(self._up, Positions) else self._issue_items
        while not (moved and until_one) and not self._ended and self._passing < _MOST_PASSING:
            if self.window and self.blocks >= self.window:
                break
            try:
                if not self._owner.may_issue(self) or not issue():
                    break
            except NotReady:
                break
            moved = True
        return moved

    def _size(self) -> int:
        """Return the number of rows for the next block."""
        group, rows = self.group, self.rows_in_task(self._owner.workers)
        # As long as no row has been seen, its size is not known either.
        fit = max(1, _BLOCK_BYTES // self.pace.row_nbytes) if self.pace.row_nbytes else _FIRST_FIT
        if group == 1:
            return max(1, min(rows, fit))
        off = self.waiting % group
        many = max(1, min(rows, fit) // group)
        return group * many - off

    def _issue_refs(self) -> bool:
        up: Any = self._up
        base = up.mark()
        refs = up.take(self._size())
        if not len(refs):
            self._ended = True
            return False
        self._block(refs, base, (self._pulled, base))
        self._pulled += len(refs)
        self._before = base + len(refs)
        return True

    def _issue_items(self) -> bool:
        up: Any = self._up
        size = self._size() if self._rows else 0  # not needed while items pass unchanged
        began, taken, look = perf_counter(), 0, 1
        try:
            while not self._rows or self._rows < size:
                if taken == look:  # now and then: most items cost less than the clock
                    look *= 2
                    if perf_counter() - began > _TAKING_S:
                        return self._take_later()
                taken += 1
                if self._in_runs:
                    chunk = up.take((size or self._size()) - self._rows)
                    if chunk is not None:
                        marks, _, stop = stretch = chunk.marks
                        self._add(chunk.items, stretch, len(chunk), marks[stop - 1])
                        size = size or self._size()
                        continue
                item = up.next()
                mark = up.mark()
                made = self._made_at_home(item)
                if made is not None or self._passes(item):
                    self._flush_partial()
                    self._queue.append((made or item, mark, self._pulled, self._before))
                    self._passing += 1
                    self._pulled, self._before = self._pulled + 1, mark
                    return True
                if self._in_runs:
                    self._add(([item], 0, 1), ([mark], 0, 1), 1, mark)
                else:
                    self._add(item, mark, 1, mark)
                size = size or self._size()
        except End:
            self._ended = True
        except NotReady:
            # Wait until the block is full, unless no worker has a task, or the block is late and wanted.
            late = perf_counter() - self._partial_since > _LATE_S
            if self._rows and ((late and self._is_wanted()) or not self._owner.busy()):
                self._flush_partial()
                return True
            raise
        moved = self._rows > 0
        self._flush_partial()
        return moved

    def _add(self, item: Any, mark: Any, rows: int, after: Mark) -> None:
        """Append an item and its mark, or several rows and their marks, to the block that is being filled."""
        if not self._rows:
            self._partial_before, self._partial_since = self._before, perf_counter()
        self._partial.append(item)
        self._partial_marks.append(mark)
        self._rows += rows
        self._pulled, self._before = self._pulled + rows, after

    def _take_later(self) -> bool:
        """Pause taking when items come slowly from a generator in this process, so that the consumer does not wait."""
        if self._is_wanted():
            self._flush_partial()
        return False

    def _is_wanted(self) -> bool:
        """Return True if a block is of use before it is full: nothing else can be delivered, or a worker is idle."""
        return not self._queue or self._owner.idle()

    def _made_at_home(self, item: Any) -> Made | Failure | None:
        """Make an element in this process, if it is composed of others and that costs less than a message."""
        if self._at_home is None or type(item) is not tuple:
            return None
        return self._at_home(item)

    def _passes(self, item: Any) -> bool:
        kind = type(item)
        if kind is Failure:
            return True
        if self._chain:
            return False
        if kind is Rows:
            return bool(item.is_one)
        return kind is Made or (kind is Row and not item.block.gone)

    def _flush_partial(self) -> None:
        if self._partial:
            refs: Any = self._partial
            marks: Any = self._partial_marks
            self._partial, self._partial_marks, self._rows = [], [], 0
            if self._in_runs:
                refs, marks = Pieces(refs), Pieces(marks)
            elif all(type(x) is int for x in refs):
                refs = np.array(refs, np.int64)
            self._block(refs, marks, (self._pulled - len(refs), self._partial_before))

    def _block(self, refs: Any, marks: Any, origin: tuple[int, Mark]) -> None:
        block = Block(self._owner.next_block(), refs, self)
        block.marks, block.origin = marks, origin
        self._queue.append(block)
        self.blocks += 1
        self.waiting += block.total
        self._owner.issue(block)

    def split(self, block: Block, size: int) -> None:
        at = self._queue.index(block)
        self._queue.remove(block)
        pieces = []
        for first in range(0, block.total, size):
            piece = Block(self._owner.next_block(), block.refs[first : first + size], self)
            marks = block.marks
            piece.marks = marks + first if type(marks) is int else marks[first : first + size]
            before = mark_behind(marks, first - 1) if first else block.origin[1]
            piece.origin = (block.origin[0] + first, before)
            pieces.append(piece)
        for piece in reversed(pieces):
            self._queue.insert(at, piece)
        self.blocks += len(pieces) - 1
        for piece in pieces:
            self._owner.issue(piece)

    # -- giving them ---------------------------------------------------------------------------

    def _head(self) -> Any:
        """Return the block or item to deliver next; raise NotReady or End."""
        queue = self._queue
        while True:
            if not queue:
                if self._done:
                    raise End
                self.feed(until_one=True)
                if not queue:
                    if not self._ended:
                        raise NotReady
                    self._done = True
                    self._last = self._up.mark()
                    self._owner.retire(self)
                    raise End
            head = queue[0]
            if type(head) is not Block:
                return head
            if self._at < head.total:
                if head.left:
                    if self._ordered or not self._overtake():
                        raise NotReady
                    continue
                return head
            queue.popleft()
            self.meter.gave(*head.outcomes(head.total))
            self._at = 0
            self.blocks -= 1
            self.nbytes -= head.nbytes
            self._owner.moved = True

    def _overtake(self) -> bool:
        """Move blocks that are ready before those that are not; return True if there were any."""
        for entry in self._queue:
            if type(entry) is tuple or not entry.left:
                self._queue.remove(entry)
                self._queue.appendleft(entry)
                return True
        return False

    def next(self) -> Any:
        while True:
            head = self._head()
            if type(head) is tuple:
                self._queue.popleft()
                self._passing -= 1
                item, self._last = head[:2]
                self.meter.pass_on(failed=type(item) is Failure)
                return item
            row = self._at
            self._at += 1
            self.waiting -= 1
            if row in head.events:
                self._counts.add(list(head.events[row]))
            if row in head.drops:
                continue
            self._last = (head, row)
            if row in head.errors:
                return Failure(ref_of(as_ref(head.refs[row])), head.error_of(row))
            return Row(ref_of(as_ref(head.refs[row])), head, row)

    def take(self, most: int) -> RowChunk | None:
        """Take up to `most` rows of the current block; None if one failed or was dropped: call `next`."""
        head = self._head()
        if type(head) is tuple or not head.clean:
            return None
        first = self._at
        stop = self._at = min(head.total, first + most)
        self.waiting -= stop - first
        self._last = (head, stop - 1)
        return RowChunk(head, first, stop, self._counts.by_event)

    @property
    def at_once(self) -> int:
        """The number of elements that may be taken at once without waiting; raises NotReady."""
        try:
            head = self._head()
        except End:
            return 1  # `next` raises it: a machine that asks through others may continue after it
        small = type(head) is Block and head.small and self._ordered
        return head.total - self._at if small else 1

    def begun(self) -> tuple[int, int, int]:
        """Return how many elements of the current block were delivered, dropped, and delivered as errors."""
        head = self._queue[0] if self._queue else None
        return head.outcomes(self._at) if type(head) is Block else (0, 0, 0)

    # -- state ---------------------------------------------------------------------------------

    def mark(self, left: int = 0) -> Mark:
        if not self._ordered:
            return (self._counts.by_event, self._unordered_mark(left))
        last = self._last
        if type(last) is tuple and len(last) == 2 and type(last[0]) is Block:
            block, row = last
            return (self._counts.by_event, mark_behind(block.marks, row - left))
        return (self._counts.by_event, last)

    def _unordered_mark(self, left: int) -> Mark:
        """Return the mark of the oldest undelivered item, and the ranges after it that were delivered."""
        waiting: list[tuple[int, int, Mark]] = []
        for entry in self._queue:
            if type(entry) is tuple:
                waiting.append((entry[2], entry[2] + 1, entry[3]))
                continue
            first, before = entry.origin
            begun = self._at - left if entry is self._queue[0] else 0
            if begun < entry.total:
                mark = before if not begun else mark_behind(entry.marks, begun - 1)
                waiting.append((first + begun, first + entry.total, mark))
        if self._partial:
            first = self._pulled - self._rows
            waiting.append((first, self._pulled, self._partial_before))
        if not waiting:
            return (self._before, [])
        waiting.sort(key=lambda w: w[0])
        oldest, at = waiting[0][2], waiting[0][1]
        start, ahead = waiting[0][0], []
        for first, stop, _ in waiting[1:]:
            if first > at:
                ahead.append([at - start, first - start])
            at = stop
        if self._pulled > at:
            ahead.append([at - start, self._pulled - start])
        return (oldest, ahead)

    def dump(self, mark: Mark) -> Any:
        counts, up = mark
        ahead: list[list[int]] = []
        if not self._ordered:
            up, ahead = up
        below = with_left_out(self._up.dump(up), ahead)
        if self._continues and counts and own(below, "counts"):
            counts = added(below["counts"], counts)
            below = below["up"]
        return {"counts": counts, "up": below} if counts else below

    def load(self, state: Any) -> None:
        self._up = load_stage(self._up, state, self._counts)
        self._in_runs = self._in_runs and getattr(self._up, "gives_runs", False)
        self._before = self._up.mark()
        self._last = self._up.mark()
