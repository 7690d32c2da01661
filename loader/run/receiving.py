"""Taking in rows that came in a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tundish.loader.protocols.block import Block
    from tundish.shm.layout import Layout


def copy_rows(block: Block, own: Layout, first: int, rows: memoryview) -> None:
    """Rows that came packed in the message: each column's to its place in the block's private memory."""
    assert block.layout is not None
    if block.root is None:
        block.root = np.empty(block.layout.nbytes, np.uint8)
    at = 0
    for offset, nbytes in block.layout.spans(first, own.rows):
        block.root[offset : offset + nbytes] = rows[at : at + nbytes]
        at += nbytes
