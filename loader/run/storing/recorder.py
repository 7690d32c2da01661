"""The recorder of one snapshot of one iterator: writes chunks, commits, finishes.

::

    items pass --> chunk --(batch_bytes)--> order: write  -->  a writer, in a process of its own
                          --(a minute, 1 GiB, save, close)--> order: commit
                          --(the end)--> order: finish: index, manifest

It decides what is written, in which order, and when that is durable; it opens no file itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tundish.errors import SnapshotError
from tundish.loader.protocols.items import Failure, NotReady
from tundish.loader.run.storing.chunk import MOST_ROWS, PendingElements, part_of
from tundish.loader.run.storing.orders import Answer, Carrier, Commit, LocalCarrier, Order, Target
from tundish.loader.watch.stats import SnapshotStats
from tundish.snapshot.manifest import RunOutcome

if TYPE_CHECKING:
    from tundish.loader.protocols.block import Block
    from tundish.snapshot.run import Prefix

COMMIT_S = 60.0
COMMIT_BYTES = 1 << 30
RENEW_S = 20.0
"""So often the lease is renewed while nothing is written; elsewhere it is stale after a minute."""
_ORDERS = 16
_PENDING_BYTES = 64 << 20


WRITING: set[str] = set()
"""The tokens of the leases of this process's recorders."""

_leasing = threading.Lock()

_RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()


def leasing() -> threading.Lock:
    """Return the lock that is held while a lease is taken and registered, so that threads see both or neither."""
    return _leasing


@dataclass(eq=False)
class Recorder:
    """Records one snapshot for one iterator.

    Parameters
    ----------
    target : Target
        The run to write.
    prefix : Prefix
        The part of it that is durable.
    batch_bytes : int
        The size at which a chunk is written.
    manifest : callable
        ``manifest(counts)`` returns the fields of the manifest.
    replaces : tuple of str
        The runs of the complete snapshot that this one replaces.
    wait : callable or None
        Waits for a writer's answer; None if the caller is to try again later.
    sorts : bool
        True if each item carries the number of its user shard as a note.
    owner : machine or None
        The stream that is being recorded.
    mark : object
        The mark of the owner's input after the last recorded element.
    torn : bool
        True while elements are being recorded. If an interrupt leaves it True, elements and mark may not match,
        and nothing more is committed.
    """

    target: Target
    prefix: Prefix
    batch_bytes: int
    manifest: Callable[[dict[str, int]], dict[str, Any]]
    sorts: bool = False
    replaces: tuple[str, ...] = ()
    carrier: Carrier = field(default_factory=LocalCarrier)
    wait: Callable[[], None] | None = None
    owner: Any = None
    mark: Any = None
    torn: bool = False
    complete: bool = False
    error: BaseException | None = None
    written: int = 0
    commits: int = 0

    def __post_init__(self) -> None:
        _RECORDERS.add(self)
        self.durable = self.at = self.prefix.next
        self.records = self._ordered = self.prefix.records  # on disk, and asked for
        self._state = self.prefix.state
        self._counts = dict(self.prefix.counts)
        self._chunk = PendingElements(self.at)
        self._since, self._when = 0, time.monotonic()
        self._ordered_at = self._when  # when the last order was given
        self._pending: deque[tuple[Order, int, Answer]] = deque()
        self._committing = self._finishing = self._left = self._given_up = False

    # -- what passes ---------------------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """True if the run has all elements and only lacks its manifest."""
        return self.prefix.outcome is RunOutcome.FINISHED

    @property
    def start(self) -> tuple[int, Any]:
        """Return where a stream must start to be recorded: the index, and the state of its input."""
        return self.durable, self._state

    def room(self) -> None:
        """Wait, or raise NotReady, while the writer's queue is full."""
        self.settle()
        while self._is_full():
            self._come_again()

    def _is_full(self) -> bool:
        pending = sum([nbytes for _, nbytes, _ in self._pending])
        return len(self._pending) >= _ORDERS or pending > max(_PENDING_BYTES, 2 * self.batch_bytes)

    def _come_again(self) -> None:
        if self.wait is None:
            raise NotReady
        self.wait()
        self.settle()

    def settled(self) -> None:
        """Wait, or raise NotReady, until all orders have been answered."""
        self.settle()
        while self._pending:
            self._come_again()

    def take_rows(self, block: Block, first: int, stop: int, mark: Any) -> None:
        """Record the next elements, rows of a block with one layout; `mark` is the mark after them."""
        if self.error is not None:
            return
        assert block.layout is not None
        each = max(1, block.layout.row_nbytes)
        self.torn = True
        while first < stop:
            chunk = self._chunk
            room = max(1, (self.batch_bytes - chunk.nbytes) // each)
            end = min(stop, first + room, first + MOST_ROWS - chunk.rows)
            chunk.add_rows(block, first, end)
            self.at += end - first
            first = end
            self._write_full()
        self.mark, self.torn = mark, False
        self.settle()
        self.renew()

    def take(self, item: Any, mark: Any) -> None:
        """Record the next item; its note, if any, is the number of its user shard."""
        if self.error is not None:
            return
        part = part_of(item)  # before anything is changed: copying may take long
        chunk = self._chunk
        self.torn = True
        if self.sorts and type(item) is not Failure:
            chunk.shards.append(int(item.note))
        chunk.add(item, part)
        self.at += 1
        self._write_full()
        self.mark, self.torn = mark, False
        self.settle()
        self.renew()

    def renew(self) -> None:
        """Renew the lease if nothing was ordered for a while, such as while the elements on disk are read."""
        if time.monotonic() - self._ordered_at < RENEW_S:
            return
        if not (self._left or self._finishing or self.error):
            self._put(Order(self.target))
            self.settle()

    def due(self) -> bool:
        """Return True if it is time for a commit."""
        if self._committing or self.error is not None:
            return False
        return self._since >= COMMIT_BYTES or (
            self.at > self.durable and time.monotonic() - self._when >= COMMIT_S
        )

    def commit(self, state: Any, *, leave: bool = False) -> None:
        """Commit everything recorded so far; `state` is the input's state after it."""
        if self.error is not None or self._finishing:
            return
        if self.at > self.durable:
            self.torn = True
            order = self._order(commit=self._commit(state), leave=leave)
            self._ordered += 1
            self._committing = True
            self._put(order)
            self.torn = False
        elif leave:
            self._put(self._order(leave=True))
        self.settle()

    def end(self, state: Any) -> bool:
        """Finish the run; return True if its manifest is published. Raise NotReady until that is known."""
        if not self._finishing and self.error is None:
            self.torn = self._finishing = True
            commit = None
            if self.at > self.durable or not self._ordered:
                commit = self._commit(state)
                self._ordered += 1
            self._put(
                self._order(
                    commit=commit, finish=self.manifest(self._counts), replaces=self.replaces
                )
            )
            self.torn = False
        self.settled()
        self.told()
        return self.complete

    def leave(self) -> None:
        """Commit, and release the lease: nothing more will be recorded."""
        if not self._left:
            WRITING.discard(self.target.token)
            self._depart()
            self._left = True
            self.owner = None  # it refers to this; its open files are released with it
        self.settle()  # also when it is called again: an interrupt may have cut the first time

    def _depart(self) -> None:
        failed = self.error is not None and not self._given_up  # the writer has released it
        if not self.pending and (self.at == self.durable or failed):
            with contextlib.suppress(OSError, SnapshotError):  # it is a hint, and becomes stale
                self.target.lease.release()
        elif self.torn or self._given_up:
            self._chunk = PendingElements(self.at)
            self._put(self._order(leave=True))
        elif self.complete or self._finishing:
            self._put(self._order(leave=True))
        else:
            self.commit(None if self.owner is None else self.owner.state(), leave=True)

    def _commit(self, state: Any) -> Commit:
        self._counts = counts_in(state)
        return Commit(self._ordered, self.at, state, self._counts)

    def _write_full(self) -> None:
        chunk = self._chunk
        if chunk.nbytes >= self.batch_bytes or chunk.rows >= MOST_ROWS:
            nbytes = chunk.nbytes
            self._put(self._order(), nbytes)

    def _order(self, **more: Any) -> Order:
        chunk, self._chunk = self._chunk, PendingElements(self.at)
        shards = tuple(chunk.shards) if self.sorts else None
        return Order(self.target, chunk.start, chunk.parts(), shards, **more)

    def _put(self, order: Order, nbytes: int = 0) -> None:
        self._ordered_at = time.monotonic()
        self._since += nbytes
        try:
            answer = self.carrier.put(order)
        except Exception as error:  # noqa: BLE001 - such as no memory to send it in: elements pass anyway
            self._failed(error)
            return
        self._pending.append((order, nbytes, answer))

    # -- what was answered ---------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """True if an order has not been answered."""
        self.settle()
        return bool(self._pending)

    def settle(self) -> None:
        """Process the answers that have arrived."""
        while self._pending:
            order, _, answer = self._pending[0]
            try:
                found = answer.result()
            except Exception as error:  # noqa: BLE001 - the disk's, told by `told`
                self._failed(error)
                return
            if found is None:
                return
            self.written += found.get("bytes", 0)
            if order.commit is not None:
                self.durable, self._state = order.commit.next, order.commit.state
                self.records = order.commit.n + 1
                self._since, self._when = 0, time.monotonic()
                self._committing = False
                self.commits += 1
            if order.finish is not None:
                self.complete = True  # whether this run won or another one
            self._pending.popleft()  # last: an interrupt before it does all this again

    def _failed(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
        self._pending.clear()
        self._committing = False

    def stats(self) -> SnapshotStats:
        """Return the statistics so far."""
        target = self.target
        return SnapshotStats(
            target.path,
            target.key,
            target.run,
            "write",
            self.at,
            self.durable,
            self.written,
            self.commits,
        )

    def give_up(self, why: BaseException) -> None:
        """Stop recording and committing because of an error; durable elements stay."""
        self._given_up = self.error is None
        # As text, which refers to no frames.
        self._failed(RuntimeError(f"{type(why).__name__}: {why}"))

    def disown(self) -> None:
        """Leave the run to the parent process, after a fork."""
        self.error = _Told("the process that this one was forked from writes it")
        self._pending.clear()
        self.carrier = LocalCarrier()
        self._left = True

    def told(self) -> None:
        """Raise the error with which writing failed, the first time that it is asked for."""
        error = self.error
        if error is not None and not getattr(error, "told", False):
            self.error = _Told(str(error))
            if isinstance(error, SnapshotError):
                error.add_note("tundish: iteration continues; the snapshot is no longer written")
                raise error
            failure = SnapshotError(
                f"{self.target.path}: the snapshot is no longer written: {error}; its first "
                f"{self.durable:,} elements are durable; iteration continues without it"
            )
            raise failure from error


class _Told(Exception):  # noqa: N818 - as End
    """An error of writing that has already been raised."""

    told = True


def counts_in(state: Any) -> dict[str, int]:
    """Return the counts of skipped and retried elements, by operator, from anywhere in a state."""
    found: dict[str, int] = {}
    waiting = [state]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            for key, value in part.items():
                if key == "counts" and isinstance(value, dict):
                    for event, count in value.items():
                        found[event] = found.get(event, 0) + count
                else:
                    waiting.append(value)
    return found


def _after_fork() -> None:
    global _leasing  # noqa: PLW0603 - a thread that is not here may have held it
    _leasing = threading.Lock()
    WRITING.clear()
    for recorder in list(_RECORDERS):
        recorder.disown()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
