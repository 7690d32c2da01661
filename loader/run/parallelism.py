"""The number of processes that compute for an iterator, and the memory that it may use."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, NamedTuple

from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import AUTOTUNE, walk
from tundish.loader.run.starting.inside import WORKER, overruled
from tundish.shm.budget import default_budget, parse_bytes, usable_cores
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Operator

_ENGINE = "tundish.loader.run.parallelengine"


def prepare(root: Operator, asked: int | None, executor: str | None) -> None:
    """Start the zygote if a plan needs workers, so that its imports overlap with this process's own.

    It does nothing if an iterator with workers has been made before.
    """
    if _ENGINE in sys.modules or sys.platform == "win32":
        return
    options = options_of(root)
    if (executor or options.executor) != "thread" and parallelism_of(root, options, asked).workers:
        from tundish.loader.run.starting.launcher import prestart  # noqa: PLC0415 - if it is needed

        prestart(options.intra_op_threads, options.start, [WORKER])


class Parallelism(NamedTuple):
    """The processes that work for an iterator.

    Attributes
    ----------
    workers : int
        The number of workers, at the start.
    tuned : bool
        True if it may change during a run: it is AUTOTUNE, and tuning is enabled.
    asked : int or None
        The number that the caller, the options or the plan ask for, AUTOTUNE included; None if none of them does.
    beside : bool
        True if a snapshot may be written by a separate process although there are no workers: `prefetch` permits
        something to run beside the consumer.
    """

    workers: int
    tuned: bool = False
    asked: int | None = None
    beside: bool = False


def parallelism_of(root: Operator, options: Options, asked: int | None) -> Parallelism:
    """Return the processes that work for an iterator.

    The number of workers is ``TUNDISH_WORKERS``, else what the caller asks for, else ``Options.workers``, else the
    largest `num_parallel_calls` (before a service's node, if there is one), else 0; AUTOTUNE means the cores this process may use, divided by the local
    ranks of a launcher, or what `Options.autotune` and `Options.threading` say. It is 0 inside a worker.
    """
    forced = overruled()
    if forced is not None:
        return Parallelism(forced)
    running = list(walk(root, running=True))
    prefetches = any(node.prefetched is not None for node in running)
    beside = prefetches and sys.platform != "win32"
    count = options.asked_workers if asked is None else asked
    if count is None:
        tops = [up for node in running if node.service is not None for up in node.inputs]
        theirs = [below for top in tops for below in walk(top)] if tops else running
        calls = [calls for calls in map(options.parallel_of, theirs) if calls is not None]
        count = AUTOTUNE if AUTOTUNE in calls else max(calls, default=None)
    if all(node.uncomputed for node in running):
        workers = 0  # stored elements are read by the process that needs them
    elif count == AUTOTUNE:
        return Parallelism(options.cores(usable_cores()), options.autotune.tunes, count, beside)
    else:
        workers = count or 0
    return Parallelism(workers, asked=count, beside=beside)


def warn_of_deadline(context: Context, options: Options) -> None:
    """Warn that a deadline limits nothing, in a plan that asks for no workers."""
    calls = any(node.calls for node in context.nodes)
    if options.deadline is not None and calls and overruled() is None:
        warnings.warn(
            f"Options(deadline={options.deadline:g}) has no effect: this pipeline has no workers, and a function that runs "
            "in this process cannot be ended. Give a map num_parallel_calls=td.AUTOTUNE, or set Options(workers=)",
            stacklevel=callers_level(),
        )


def budget_of(options: Options, *, tuned: bool) -> int:
    """Return the number of bytes for an iterator's slots; `tuned` if the number of workers may change."""
    asked = options.memory_budget
    nbytes = default_budget().nbytes if asked is None else parse_bytes(asked)
    if tuned and options.autotune.ram_budget is not None:
        return min(nbytes, options.autotune.ram_budget)
    return nbytes
