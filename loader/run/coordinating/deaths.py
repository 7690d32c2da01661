"""The decision on the task that a worker had begun when it died."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tundish.errors import StalledError, WorkerDiedError
from tundish.loader.run.starting.watchdog import deadlocked

if TYPE_CHECKING:
    from tundish.loader.run.coordinating.tasks import Tasks
    from tundish.loader.run.pool.peers import Job
    from tundish.loader.run.starting.workerprocess import Exit

_MAX_DEATHS = 3


class Fate(Enum):
    """A way to run a task again."""

    AGAIN = "as it is"
    SPLIT = "in blocks of one row, to find the one that failed"


class Deaths:
    """Counts deaths by task, and decides when to give up.

    Parameters
    ----------
    limit : int, optional
        The permitted number of deaths; 0: no limit.
    deadline : float, optional
        Seconds that an element may take, after which its worker ends.
    """

    def __init__(self, limit: int | None = None, deadline: float | None = None) -> None:
        self._limit = _MAX_DEATHS if limit is None else limit
        self._deadline = deadline

    def of(self, job: Job, how: Exit) -> Fate | BaseException:
        """Decide how to continue a task on which a worker died; an error replaces its rows.

        Parameters
        ----------
        job : Job
            The task.
        how : Exit
            The end of the worker: its exit code and last output.
        """
        tasks: Tasks = job.block.stage.tasks
        deaths = tasks.died(job)
        if deaths is None:
            return Fate.SPLIT
        late = self._deadline if "Timeout (" in how.stderr else None
        over = self._limit and deaths >= self._limit
        if not (late or how.stuck or over) and tasks.makes_again:
            job.progress = None
            tasks.again(job)
            return Fate.AGAIN

        def error(what: str) -> BaseException:
            if how.stuck:
                return deadlocked(what, how.stderr)
            if late is not None:
                return StalledError(what, late, how.stderr)
            return WorkerDiedError(what, tasks.ended(how), deaths, how.stderr)

        return tasks.blame(job, error)
