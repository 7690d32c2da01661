"""Workers' answers: their rows are put into blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.failure import loads_exception
from tundish.loader.protocols.raised import carried
from tundish.loader.run.wire.messages import ROWS_INLINE, align, share_offset
from tundish.shm.layout import decode

if TYPE_CHECKING:
    from tundish.loader.protocols.block import Block
    from tundish.loader.run.coordinating.memory import Memory
    from tundish.loader.run.wire.messages import Done
    from tundish.shm.layout import Layout


def in_slot(block: Block, done: Done, layout: Layout | None, memory: Memory) -> Any:
    """Return the encoded part that lies in a block's slot."""
    ring = memory.ring
    assert ring is not None
    assert block.slot is not None
    arena, single = ring.arena, done.rows == block.total
    if single:
        offset = align(layout.nbytes if layout is not None else 0)
        ring.grew(block.slot, done.nbytes)
    else:
        offset = share_offset(arena.stride, done.first, block.total)
    start = block.slot * arena.stride + offset
    piece: Any = np.frombuffer(arena.map, np.uint8, done.encoded, start)
    if single and not done.flags & ROWS_INLINE:
        # In the slot for good: one lease covers it and the rows.
        block.root = ring.lease(block.slot, done.nbytes)
        block.leased = True
        return block.root[offset : offset + done.encoded]
    piece = piece.copy()  # the block's memory, if any, is not this slot
    if not single:
        arena.discard(block.slot, offset, done.encoded)
    return piece


def add(block: Block, piece: Any) -> None:
    """Add an encoded part to a block: drops, errors, events of single rows, and leaves outside the columns."""
    drops, errors, events, extras, elements, notes, told = decode(piece)
    if told is not None:
        block.told.append(told)
    block.drops.update(drops)
    block.errors.update({k: carried(loads_exception(data)) for k, data in errors.items()})
    block.events.update(events)
    block.notes.update(notes)
    for at, extra in extras.items():
        block.extras.setdefault(at, {}).update(extra)
    if elements is not None:
        block.elements.update(elements)


def copy_rows(
    block: Block, root: np.ndarray | None, spans: list[tuple[int, int]], rows: memoryview
) -> None:
    """Copy rows that came inside the message to their places in the block's slot, or in its private memory."""
    assert block.layout is not None
    if root is None:
        if block.root is None:
            block.root = np.empty(block.layout.nbytes, np.uint8)
        root = block.root
    at = 0
    for offset, nbytes in spans:
        root[offset : offset + nbytes] = rows[at : at + nbytes]
        at += nbytes
