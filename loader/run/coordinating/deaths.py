"""The fate of the task that a worker had begun when it died."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from tundish.errors import StalledError, WorkerDiedError
from tundish.loader.protocols.chains import run_of
from tundish.loader.protocols.items import ref_of
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.rows import as_ref
from tundish.loader.run.coordinating.seat import Seat
from tundish.loader.run.evaluating.evaluators import compile_values
from tundish.loader.run.stages.streams import StreamStage
from tundish.loader.run.starting.watchdog import deadlocked

if TYPE_CHECKING:
    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine
    from tundish.loader.run.coordinating.tasks import Definitions
    from tundish.loader.run.pool.peers import Job
    from tundish.loader.run.starting.launcher import Exit

_MAX_DEATHS = 3


class Fate(Enum):
    """The way in which a task is done again."""

    AGAIN = "as it is"
    SPLIT = "in blocks of one row, so that it is seen which one it was"


class Deaths:
    """Counts deaths by element, and says when it is enough.

    Parameters
    ----------
    context, options
        Of the iterator.
    definitions : Definitions
        Of its stages.
    """

    def __init__(self, context: Context, options: Options, definitions: Definitions) -> None:
        self._context, self._definitions = context, definitions
        self._deadline = options.deadline
        self._limit = _MAX_DEATHS if options.max_deaths is None else options.max_deaths

    def of(self, job: Job, how: Exit) -> Fate | BaseException:
        """Decide the fate of a task on which a worker died; an error takes the place of its rows.

        Parameters
        ----------
        job : Job
            The task.
        how : Exit
            How the worker ended.
        """
        block, stage = job.block, job.block.stage
        limit, alone = self._limit, job.task.rows == 1
        if isinstance(stage, Seat):
            job.deaths += 1
            if limit and job.deaths >= limit:
                return WorkerDiedError("an order", how.how, job.deaths, how.stderr)
            return Fate.AGAIN
        late = self._deadline is not None and "Timeout (" in how.stderr
        if isinstance(stage, StreamStage):
            block.inputs.deaths += alone
            deaths = block.inputs.deaths
        else:
            job.deaths += alone
            deaths = job.deaths
        if not alone:
            return Fate.SPLIT
        if late or how.stuck or (limit and deaths >= limit):
            # One that cannot be opened, at first or again, gives no more elements.
            block.gone = isinstance(stage, StreamStage) and job.progress is None
            return self._error(job, deaths, how, late=late)
        job.progress = None
        return Fate.AGAIN

    def origin(self, job: Job) -> str:
        """Describe the element that a task of one row makes."""
        block = job.block
        if isinstance(block.stage, StreamStage):
            what = "the opening" if block.gone else f"element {block.refs.first}"
            return f"{what} of the dataset made of {block.refs.outer}"
        node, _, pass_ = self._definitions[block.stage.number]
        _, identity = compile_values(node, self._context, _no_inner)
        return describe_origin(*identity(ref_of(as_ref(block.refs[job.task.first])), pass_))

    def _error(self, job: Job, deaths: int, how: Exit, *, late: bool) -> BaseException:
        context, origin = self._context, self.origin(job)
        node, *_ = self._definitions[job.block.stage.number]
        called = [n for n in reversed(run_of(node)) if n.calls]
        labels = [context.label(n) for n in called] or [context.label(node)]
        element = f"{origin} in {', '.join(labels)}"
        if how.stuck:
            error: BaseException = deadlocked(element, how.stderr)
        elif late:
            assert self._deadline is not None
            error = StalledError(element, self._deadline, how.stderr)
        else:
            error = WorkerDiedError(element, how.how, deaths, how.stderr)
        return add_origin(error, origin, "in a worker")


def _no_inner(*_: Any) -> Machine:
    raise AssertionError("identities open nothing")
