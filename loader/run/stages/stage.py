"""The base class of stages: a stage asks for blocks to be computed, and gives their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tundish.loader.watch.watch import StageMeter

TASK_S = 0.004
"""Target duration of a task on rows of a batch: short enough that several workers share a batch."""

_ALONE_S = 0.012
"""Target duration of a task on single elements: nothing waits for the rest of a batch, and messages cost less."""

_TRAINER_S = 0.0001
"""Seconds that this process needs for a task: to make it, send it, and receive its answer."""

_FIRST_ROWS = 1
_MOST_ROWS = 4096


class Pace:
    """Time and size of one row, as measured so far; set by the code that receives results."""

    __slots__ = ("row_nbytes", "row_s")

    def __init__(self) -> None:
        self.row_s: float | None = None
        self.row_nbytes = 0

    def rows_in_task(self, workers: int = 1, *, alone: bool = False) -> int:
        """Return how many rows a task should have; 1 until a row has been measured.

        With many workers, tasks are longer, so that handling them takes at most half of this thread's time.

        Parameters
        ----------
        workers : int
            The number of workers.
        alone : bool
            True if the rows are single elements, not rows of a batch.
        """
        if self.row_s is None:
            return _FIRST_ROWS
        task_s = max(_ALONE_S if alone else TASK_S, 2 * workers * _TRAINER_S)
        return max(1, min(_MOST_ROWS, int(task_s / max(self.row_s, 1e-7))))


class Stage:
    """The base of all stages: the part that the coordinator knows.

    Parameters
    ----------
    number : int
        Its number in messages to workers.
    tasks : Tasks
        Cuts its blocks into tasks, and takes in the answers.
    meter : StageMeter
        The meter that counts its elements.

    Attributes
    ----------
    group : int
        How many rows the reader takes at once; set before anything is handed out.
    ragged : bool
        Whether elements differ in shape: then a block is one task.
    blocks, nbytes : int
        The number of blocks in flight or ready, and their bytes.
    block_nbytes : int
        The bytes of a recent block; 0 if none is known yet.
    window : int
        The largest number of blocks; 0: it has to be computed again.
    most_nbytes : int
        The most bytes of a task's rows, unless a single row has more; 0: no limit.
    ahead, least_window : int
        The largest number of blocks by measured times of tasks (0: not measured), and the least that must be allowed.
    """

    group, ragged, least_window, most_nbytes = 1, False, 0, 0

    def __init__(self, number: int, tasks: Any, meter: StageMeter) -> None:
        self.number, self.tasks, self.meter = number, tasks, meter
        self.pace = Pace()
        self.blocks = self.nbytes = self.block_nbytes = self.window = self.ahead = 0

    def rows_in_task(self, workers: int) -> int:
        """Return how many rows a task should have, given the number of workers."""
        return self.pace.rows_in_task(workers, alone=self.group == 1)

    @property
    def exhausted(self) -> bool:
        """True if the input has ended and all of it has been issued."""
        return False

    def feed(self) -> bool:
        """Issue blocks while there is room; return True if anything changed."""
        return False

    def queued(self) -> list[Any]:
        """Blocks that are in flight or ready."""
        return []

    def forget(self) -> None:
        """Stop the stage and drop all of its blocks."""

    def split(self, block: Any, size: int) -> None:
        """Replace a block by blocks of fewer rows: a worker died on it, or it is too large for a slot."""
        raise NotImplementedError

    def begun(self) -> tuple[int, int, int]:
        """Return how many elements of the current blocks were delivered, dropped, and delivered as errors."""
        return 0, 0, 0
