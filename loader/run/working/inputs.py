"""The items of a task: named by numbers, or told in its tail or in a slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.told import kept, open_all
from tundish.loader.run.messages import POINTER, Items, Task
from tundish.shm.encode import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.protocols.context import Context
    from tundish.shm.memory import Arena


class Inputs:
    """Reads the items of tasks.

    Parameters
    ----------
    arena : Arena or None
        Where some of them lie.
    context : Context
        Is told what comes with them: elements that take a replay.
    """

    def __init__(self, arena: Arena | None, context: Context) -> None:
        self._arena, self._context = arena, context

    def of(self, task: Task, tail: bytes | memoryview) -> Sequence[Any]:
        """The items of a task."""
        if task.items == Items.RANGE:
            return range(task.start, task.start + task.rows * task.step, task.step)
        if task.items == Items.INDICES:
            return np.frombuffer(tail, np.int64).tolist()  # type: ignore[no-any-return]
        return self.decoded(tail)

    def decoded(self, tail: bytes | memoryview, *, private: bool = False) -> list[Any]:
        """The items of a tail, or of the slot that it names; `private`: as this process's own."""
        if tail[0]:
            assert self._arena is not None
            slot, nbytes = POINTER.unpack_from(tail, 1)
            root = self._arena.root(slot, nbytes)
            # A copy, as it is of a small tail: functions may change what they are given, and the
            # task may have to be run again.
            items, captured = decode(root.copy())
        else:
            items, captured = decode(bytearray(tail[1:]))
        self._context.captured.update(captured)
        opened = open_all(items, self._arena)
        return [kept(item) for item in opened] if private else opened
