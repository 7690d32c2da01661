"""Places for rows that come over a connection from workers without the shared memory of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.run.wire.messages import DONE, ROWS_INLINE

if TYPE_CHECKING:
    import numpy as np

    from tundish.loader.run.wire.messages import Done
    from tundish.shm.frames import Placing


def placing(done: Done, root: np.ndarray, spans: list[tuple[int, int]]) -> Placing:
    """Receive the rows that follow an answer into their places; give out the answer without them."""
    memory, extra = root.data, bytearray(done.encoded)
    parts = [memory[offset : offset + nbytes] for offset, nbytes in spans]
    yield [memoryview(bytearray(DONE.size)), *parts, memoryview(extra)]
    told = done._replace(flags=done.flags & ~ROWS_INLINE, tail=done.encoded)
    return DONE.pack(*told) + extra
