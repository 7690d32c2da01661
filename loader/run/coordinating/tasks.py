"""The interface of a stage's tasks: cutting blocks, receiving answers, counting deaths.

A pipeline's stages use `computed`, a writer's seat has orders, a `DataLoader` has whole batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.run.coordinating.memory import Memory
    from tundish.loader.run.pool.peers import Job
    from tundish.loader.run.starting.workerprocess import Exit
    from tundish.loader.run.wire.messages import Done
    from tundish.shm.frames import Placing
    from tundish.shm.layout import Layout


class Tasks:
    """The contract for computing the blocks of a stage."""

    block = "a block of rows for one batch"
    """The name of a block in errors."""
    advice = "set Options(memory_budget=...) or TUNDISH_BUDGET, or use smaller batches"
    """Advice in the error of a block that is larger than the budget."""
    makes_again = True
    """True if another worker can do the task of one that died."""

    def cut(self, block: Any, memory: Memory, quota: int, workers: int) -> list[Job]:
        """Cut a block into tasks for a number of workers; its slot may take `quota` bytes."""
        raise NotImplementedError

    def take_in(
        self, job: Job, done: Done, layout: Layout | None, tail: memoryview, memory: Memory
    ) -> None:
        """Put a worker's answer into the block."""
        raise NotImplementedError

    def by_value(self, job: Job, memory: Memory) -> bytes:
        """Return the tail of a task for a worker that has no part in this process's memory."""
        return memory.by_value(job.tail)

    def place(self, job: Job, done: Done, layout: Layout | None, memory: Memory) -> Placing | None:
        """Return where to receive the rows that follow an answer; None for memory of their own."""
        return None

    def unreadable(self, job: Job, error: Exception) -> BaseException:
        """Return the error of a row that cannot be unpickled."""
        return error

    def completed(self, block: Any) -> None:
        """Note that every row of a block has been computed."""

    def fail(self, block: Any, first: int, rows: int, error: BaseException) -> None:
        """Make rows that cannot be computed errors."""
        for row in range(first, first + rows):
            block.errors[row] = error
        block.left -= rows

    def died(self, job: Job) -> int | None:
        """Count a death; return the number, or None if the task must be split to find the element that caused it."""
        job.deaths += 1
        return job.deaths

    def again(self, job: Job) -> None:
        """Note that a task is done again after a death."""

    def blame(self, job: Job, error: Callable[[str], BaseException]) -> BaseException:
        """Return the error of the element on which a worker died, made by `error` from its description."""
        raise NotImplementedError

    def ended(self, how: Exit) -> str:
        """Describe how a worker ended."""
        return how.how
