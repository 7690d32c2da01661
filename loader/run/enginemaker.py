"""The choice of an iterator's engine: in this process, or in workers, and in how many."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tundish.errors import SnapshotError
from tundish.loader.run.engine import Engine, InlineEngine
from tundish.loader.run.parallelism import budget_of, parallelism_of, warn_of_deadline
from tundish.loader.run.starting.inside import overruled
from tundish.shm.budget import usable_cores

if TYPE_CHECKING:
    import contextlib

    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.run.coordinating.placement import Staff
    from tundish.loader.run.parallelism import Parallelism
    from tundish.loader.run.watching.tuning import Tuning


def _check_reachable(context: Context) -> None:
    """Refuse snapshots that other processes cannot see."""
    from tundish.loader.operators.snapshot import snapshots  # noqa: PLC0415 - not for pipelines without workers

    for node in snapshots(context.root, running=True):
        if "memory://" in node.path and node.keeping.mode != "off":
            raise SnapshotError(
                f"{node.path} is memory of this process, which worker processes cannot see: use a folder, workers=0 without "
                "`prefetch`, or threads (executor='thread')"
            )


class EngineMaker:
    """Makes the engines of one iterator, one after another.

    Parameters
    ----------
    options : Options
        The options of the plan.
    workers : int or None
        The number of workers that the caller asks for.
    executor : {"process", "thread"}
        What workers are.

    Attributes
    ----------
    tuning : Tuning or None
        Decides the number of workers if that is AUTOTUNE; made with the first engine.
    """

    def __init__(self, options: Options, workers: int | None, executor: str) -> None:
        self._options, self._workers, self._executor = options, workers, executor
        self.tuning: Tuning | None = None

    def make(self, context: Context, undo: contextlib.ExitStack) -> Engine:
        """Return an engine that is not open yet; `undo` collects what to undo if opening it fails."""
        parallelism = parallelism_of(context.root, self._options, self._workers)
        staff = self._staff(context, parallelism.asked, undo)
        workers = self._how_many(parallelism, staff, recording=bool(context.recorders))
        # A quarter of the budget is for decoded rows, and each worker has its part.
        context.room = budget_of(self._options, tuned=False) // (4 * max(1, workers))
        if workers and sys.platform == "win32":
            raise RuntimeError("workers need Linux or macOS: use workers=0 here, or WSL2")
        if not workers and self._workers is None and parallelism.asked is None:
            warn_of_deadline(context, self._options)
        if not (workers or (parallelism.beside and context.recorders)):
            return InlineEngine(context, self._options, self.tuning)
        if self._executor != "thread":
            _check_reachable(context)
        from tundish.loader.run.parallelengine import ParallelEngine  # noqa: PLC0415

        return ParallelEngine(
            context, self._options, workers, self._executor, self.tuning, staff=staff
        )

    def _staff(
        self, context: Context, asked: int | None, undo: contextlib.ExitStack
    ) -> Staff | None:
        """Return the seats of the service that the plan names; None if it names none, or if nothing is to use it."""
        tuned_away = self.tuning is not None and not self.tuning.workers
        if not context.services or asked == 0 or tuned_away or overruled() is not None:
            return None
        if self._executor == "thread":
            raise ValueError(
                "distribute() needs workers that are processes, and the executor is 'thread': leave out one of them"
            )
        # Few iterators need these modules, here and below.
        from tundish.loader.run.coordinating.placement import service_of  # noqa: PLC0415

        cores = self._options.cores(usable_cores())
        staff = service_of(context.services).staff(asked, cores)
        undo.callback(staff.close)
        return staff

    def _how_many(self, asked: Parallelism, staff: Staff | None, *, recording: bool) -> int:
        """Return the number of workers to start with, from the tuner if there is one."""
        if self.tuning is None:
            if not asked.tuned:
                return asked.workers if staff is None else staff.seats()
            from tundish.loader.run.starting.launcher import start_method  # noqa: PLC0415
            from tundish.loader.run.watching.tuning import Tuning  # noqa: PLC0415

            options, most, first = self._options, asked.workers, None
            # The consumer's process cannot do what these options ask of workers.
            apart = recording or options.deadline is not None or options.worker_init is not None
            # Workers would be forks of this process as it is now.
            apart = apart or start_method(options.start) == "fork"
            if staff is not None:
                most, first = staff.most, staff.local
                apart = apart or not first
            self.tuning = Tuning(options, most, first=first, inline=not apart)
        return self.tuning.workers
