"""Taking in rows that came in a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tundish.loader.run.block import Block
    from tundish.shm.layout import Layout


def copy_rows(block: Block, own: Layout, first: int, rows: memoryview) -> None:
    """Rows that came in the message: into the block's private memory."""
    assert block.layout is not None
    if own.rows == block.total and own.rows == block.layout.rows:
        block.root = np.frombuffer(_aligned(own, rows), np.uint8)
        return
    if block.root is None:
        block.root = np.empty(block.layout.nbytes, np.uint8)
    at = 0
    for column, (_, nbytes) in zip(
        [c for c in block.columns if c is not None], own.spans(0, own.rows), strict=True
    ):
        part = np.frombuffer(rows[at : at + nbytes], column.dtype)
        column[first : first + own.rows] = part.reshape(own.rows, *column.shape[1:])
        at += nbytes


def _aligned(own: Layout, rows: memoryview) -> bytearray:
    """Columns that came packed, each moved to its place."""
    spans = own.spans(0, own.rows)
    target = bytearray(own.nbytes)
    at = 0
    for offset, nbytes in spans:
        target[offset : offset + nbytes] = rows[at : at + nbytes]
        at += nbytes
    return target
