"""Messages between the coordinator and a worker: fixed records, some with a tail.

A message is one or more records. To a worker: STAGE (what to compute), TASK (which rows, into which
slot). From it: HELLO (ready), LAYOUT (the columns of the blocks to come), DONE (rows are made),
NEED (the slot may not grow that far), PROGRESS (which element is being made, if that is asked
for), FATAL (the worker could not start), ASK (a question about globals, answered by TOLD). A LAYOUT, HELLO, FATAL, ASK or TOLD
that is large is sent as several records. See `docs/design/001-transport.md`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

NO_SLOT = 0xFFFFFFFF


class MessageKind(IntEnum):
    """The kind of a record: its first byte."""

    STAGE = 1
    TASK = 2
    HELLO = 3
    LAYOUT = 4
    DONE = 5
    NEED = 6
    FATAL = 7
    PROGRESS = 8
    ASK = 9
    TOLD = 10


class ItemsForm(IntEnum):
    """The encoding of a task's elements."""

    RANGE = 0  # start and step
    INDICES = 1  # int64 in the tail
    ENCODED = 2  # items in the tail, or in a slot that it names
    ORDER = 4  # for a writer; as ENCODED
    STREAM = 3  # the next elements of a flat_map's inner dataset; its item as ENCODED


WRITING = 2
"""The flag of a stage whose tasks are orders for a writer. The flag 1 marks a stage that reads streams."""

CONTINUING = 3
"""The flag of a stage whose items were computed at its base by another stage."""

RECORD = struct.Struct("<BBHII")
"""kind, flag, stage, number, length of the tail: STAGE, HELLO, LAYOUT, PROGRESS, FATAL, ASK, TOLD."""

MORE = 1
"""The flag of a RECORD whose tail the next one continues."""

# The most bytes of a tail in one message: a message has to fit into a packet.
_PIECE_BYTES = 128 << 10


def in_pieces(kind: MessageKind, number: int, tail: bytes) -> Iterator[bytes]:
    """Return the messages that carry a record with a tail of any size."""
    for at in range(0, max(1, len(tail)), _PIECE_BYTES):
        part = tail[at : at + _PIECE_BYTES]
        more = MORE if at + len(part) < len(tail) else 0
        yield RECORD.pack(kind, more, 0, number, len(part)) + part


TASK = struct.Struct("<BBHIIIIIQQqqI")
"""kind, items, stage, block, slot, first row, rows, rows of the block, bytes the slot has, bytes
it may have, start, step, length of the tail."""

DONE = struct.Struct("<BBHIIIIIIIQQ")
"""kind, flags, stage, block, first row, rows, layout, microseconds, microseconds that a core
was busy, length of the tail, bytes of the slot now in use, bytes of the encoded part in the slot."""


POINTER = struct.Struct("<IQ")
"""Where encoded items are when the tail begins with 1: slot, bytes. With 0 they follow it."""


class Task(NamedTuple):
    """The fields of a TASK record."""

    kind: int
    items: int
    stage: int
    block: int
    slot: int
    first: int
    rows: int
    total: int
    have: int
    may: int
    start: int
    step: int
    tail: int


class Done(NamedTuple):
    """The fields of a DONE record, and of NEED."""

    kind: int
    flags: int
    stage: int
    block: int
    first: int
    rows: int
    layout: int
    micros: int
    busy: int
    tail: int
    nbytes: int
    encoded: int


ROWS_INLINE = 1
"""The tail begins with the rows themselves: they are not in the slot."""

EXTRA = 2
"""There is an encoded part: drops, errors, leaves without a fixed size."""

EXTRA_IN_SLOT = 4
"""The encoded part is in the slot, after the columns or in the task's own share of it."""

STREAM_END = 8
"""A stream has no more elements."""

NOT_OPENED = 16
"""A stream's inner dataset could not be made: its only row is the error."""

NO_LAYOUT = 0xFFFFFFFF

INLINE_BLOCK = 16384
"""Blocks whose columns are no larger travel in the message."""

INLINE_EXTRA = 32768
"""Encoded parts that are no larger travel in the message."""


def share_offset(stride: int, first: int, total: int) -> int:
    """Return the offset in a slot of a task's own share for an encoded part."""
    half = stride // 2
    return (half + half // total * first) // 4096 * 4096


def align(nbytes: int) -> int:
    """Return the next multiple of 128 bytes."""
    return -(-nbytes // 128) * 128
