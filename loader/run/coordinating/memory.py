"""The shared memory of one iterator: its blocks' slots, within its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from tundish.errors import SharedMemoryError
from tundish.loader.protocols.ownership import COPY_BELOW
from tundish.loader.run.coordinating.store import (
    Reserve,
    SlotHolder,
    quarantine_slots,
    release_quarantined,
    shared_ring,
)
from tundish.loader.run.wire.messages import NO_SLOT, POINTER

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from tundish.loader.protocols.block import Block
    from tundish.loader.run.pool.peers import Job, Peer
    from tundish.loader.run.stages.stage import Stage
    from tundish.shm.layout import Encoded
    from tundish.shm.memory import Arena
    from tundish.shm.pinned import PinnedSlots

TAIL_BYTES = 32768
"""A task's input of more bytes is written to a slot."""
EVERY_SLOT = "every slot is in use: let go of batches, or of iterators"
_UNKNOWN = 16
"""The part of the budget that a block of unknown size may take: one in this many."""


class Memory:
    """Allocates slots for an iterator's blocks, within its budget.

    Parameters
    ----------
    budget : int
        The number of bytes that its slots may have in total.

    Attributes
    ----------
    ring : Ring or None
        The process's slots; None: everything is sent over the channels.
    reserve : Reserve
        Counts bytes promised to blocks beyond those in use.
    copies : int
        The number of elements copied because a view would have left too little memory.
    """

    def __init__(self, budget: int) -> None:
        self.ring = shared_ring()
        if self.ring is not None:
            budget = self.ring.arena.bounded(budget)
        self.budget = budget
        self.copies = 0
        self.reserve = Reserve(self.ring, budget)
        self._ready: WeakSet[Block] = WeakSet()
        self._pins: PinnedSlots | None = None

    @property
    def arena(self) -> Arena | None:
        """The arena in which the slots lie."""
        return self.ring.arena if self.ring is not None else None

    @property
    def leased(self) -> int:
        """The number of the process's slots that somebody holds a view of."""
        return self.ring.leased if self.ring is not None else 0

    @property
    def used_bytes(self) -> int:
        """The bytes used by the process's slots."""
        return self.ring.used_bytes if self.ring is not None else 0

    def open(self) -> None:
        """Release quarantined slots that are free by now."""
        release_quarantined()
        if self.ring is not None and self.ring.used_bytes > self.budget:
            self.ring.trim(self.budget)

    # -- how much there is ---------------------------------------------------------------------

    def quota(self, stage: Stage, stages: int) -> int:
        """Return the bytes that a block of a stage may take without asking the coordinator, given the number of stages."""
        known = stage.block_nbytes
        if known:
            return min(self.budget, known + known // 8 + COPY_BELOW)
        if stage.meter.made:  # its blocks travel in messages
            return min(self.budget, COPY_BELOW)
        return self.budget // (_UNKNOWN * max(1, stages))

    def has_room(self, stage: Stage, stages: int, spare: int) -> bool:
        """Return True if there is memory for one more block of a stage, and more than `spare` slots."""
        ring = self.ring
        if ring is None:
            return True
        if ring.free <= spare:
            return False
        nbytes = self.quota(stage, stages)
        if (stage.blocks + 1) * nbytes > self.budget // max(1, stages):
            return False
        return self.budget - ring.used_bytes - self.reserve.nbytes + ring.free_bytes >= nbytes

    def runs_short(self, need: int, workers: int) -> bool:
        """Return True if the remaining memory is not enough for the workers to continue, if nothing is released."""
        ring = self.ring
        assert ring is not None
        used = ring.used_bytes + self.reserve.nbytes
        if used + need <= self.budget and ring.free > 2 * workers + 8:
            return False
        room = self.budget - used + ring.free_bytes
        if room >= need and ring.free > workers + 4:
            return False
        self.copies += 1
        return True

    # -- what a block has ----------------------------------------------------------------------

    def give(self, block: Block, nbytes: int) -> bool:
        """Give a block a slot and promise it `nbytes`; return False if they are not available now."""
        ring = self.ring
        if ring is not None and block.slot is None:
            block.slot = ring.acquire()
            if block.slot is None:
                self.evict()
                block.slot = ring.acquire()
        return self.reserve.take(block, nbytes)

    def had_by(self, block: SlotHolder) -> int:
        """Return the size of a block's slot in bytes."""
        ring = self.ring
        return ring.allocated(block.slot) if ring is not None and block.slot is not None else 0

    def has_slot(self, block: SlotHolder) -> bool:
        """Return True if a block has a slot, or there are none at all."""
        return self.ring is None or block.slot is not None

    def slot_of(self, block: SlotHolder) -> int:
        """Return the number of a block's slot in messages."""
        return NO_SLOT if block.slot is None else block.slot

    def keep(self, block: Block) -> None:
        """Lease the slot of a computed block, or release it if the rows came in messages."""
        ring, stage = self.ring, block.stage
        if block.slot is not None and ring is not None:
            if block.nbytes > 0:
                ring.grew(block.slot, block.nbytes)
                if self._pins is not None and not block.leased:
                    self._pins.lend(block.slot, ring.allocated(block.slot))
                if not block.leased:
                    block.root = ring.lease(block.slot, block.nbytes)
                    block.leased = True
                self._ready.add(block)
            else:
                ring.release(block.slot)
                block.slot = None
            stage.block_nbytes = max(block.nbytes, stage.block_nbytes // 2)
            stage.nbytes += block.nbytes

    def rows_of(self, job: Job, spans: list[tuple[int, int]], nbytes: int) -> np.ndarray | None:
        """Return the slot of a task's block, to receive rows that came in a message; None if it has none.

        Parameters
        ----------
        job : Job
            The task.
        spans : list of (int, int)
            Its own byte ranges in the slot: offset and length.
        nbytes : int
            The bytes of the slot that the block needs, within what the task was granted.

        Raises
        ------
        SharedMemoryError
            The system has less than the budget allows.
        """
        ring, slot = self.ring, job.block.slot
        if ring is None or slot is None:
            return None
        if nbytes > job.task.have:
            for offset, length in spans:
                ring.arena.allocate(slot, offset, length)
        return ring.arena.root(slot, nbytes)

    def abandon(self, block: Block) -> None:
        """Release the slot of an abandoned block once the last worker that may write to it has answered."""
        if block.flying == 0 and block.slot is not None:
            if not block.leased:
                assert self.ring is not None
                if block.reserved:
                    self.ring.empty(block.slot)  # it may have grown without being counted
                self.ring.release(block.slot)
            self.reserve.give_back(block)
            block.slot = None

    def pin(self) -> bool:
        """From now on, register delivered slots with a device's driver; return False if no driver is known."""
        from tundish.shm.pinned import PinnedSlots, find_driver  # noqa: PLC0415 - few have a device

        ring = self.ring
        if ring is None:
            return False
        if ring.pinned is None:
            driver = find_driver()
            if driver is None:
                return False
            ring.pinned = PinnedSlots(ring.arena, driver)
        self._pins = ring.pinned
        return True

    def evict(self) -> None:
        """Move ready but undelivered blocks to private memory, when every slot is taken."""
        for block in list(self._ready):
            if block.evict():
                block.slot = None

    # -- what a task's input has ---------------------------------------------------------------

    def told(self, piece: Encoded | bytes) -> tuple[bytes, list[int]]:
        """Return a task's input as a tail, and the slots held for it: the tail of a large input names a slot."""
        ring = self.ring
        nbytes = len(piece) if isinstance(piece, bytes) else piece.nbytes
        if ring is None or nbytes <= TAIL_BYTES:
            return b"\0" + (piece if isinstance(piece, bytes) else piece.to_bytes()), []
        slot = ring.acquire_pages(nbytes)
        if slot is None:
            raise SharedMemoryError("a task's input", nbytes, 0, EVERY_SLOT)
        start = slot * ring.arena.stride
        target = memoryview(ring.arena.map)[start : start + nbytes]
        if isinstance(piece, bytes):
            target[:] = piece
        else:
            piece.write(target)
        return b"\1" + POINTER.pack(slot, nbytes), [slot]

    def by_value(self, tail: bytes) -> bytes:
        """Return a tail that contains the input, even if the given one names a slot."""
        if not tail[0]:
            return tail
        assert self.ring is not None
        slot, nbytes = POINTER.unpack_from(tail, 1)
        start = slot * self.ring.arena.stride
        return b"\0" + memoryview(self.ring.arena.map)[start : start + nbytes]

    def let_go(self, job: Job) -> None:
        """Release the slots of a task's input."""
        held, job.held = job.held, []
        for slot in held:
            assert self.ring is not None
            self.ring.release(slot)

    # -- the end -------------------------------------------------------------------------------

    def end(self, slots: list[int], there: list[Peer], keep: Iterable[Job]) -> None:
        """Release slots as soon as no worker can write to them any more.

        Parameters
        ----------
        slots : list of int
            The slots.
        there : list of Peer
            The workers that may still write to them.
        keep : iterable of Job
            Their tasks, whose input must be kept as long.
        """
        ring = self.ring
        if ring is None or not slots:
            return
        if there:
            quarantine_slots(ring, there, slots, keep)
            return
        for slot in slots:
            if self.reserve.nbytes:
                ring.empty(slot)  # it may have grown without being counted
            ring.release(slot)
