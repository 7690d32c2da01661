"""The number of processes that compute for an iterator, and the memory that it may use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import AUTOTUNE, walk
from tundish.loader.run.starting.inside import WORKER, overruled
from tundish.shm.budget import default_budget, parse_bytes, usable_cores

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
    if (executor or options.executor) != "thread" and _asked(root, options, asked):
        from tundish.loader.run.starting.launcher import prestart  # noqa: PLC0415 - if it is needed

        prestart(options.intra_op_threads, options.start, [WORKER])


def how_many_workers(root: Operator, options: Options, asked: int | None) -> int:
    """Return the number of workers that run a plan.

    That is ``TUNDISH_WORKERS``, else what the caller asks for, else ``Options.workers``, else the largest
    `num_parallel_calls`, else 0; AUTOTUNE means the cores this process may use, divided by the local
    ranks of a launcher, or what `Options.autotune` and `Options.threading` say. It is 0 inside a worker.
    """
    count = _asked(root, options, asked)
    return options.cores(usable_cores()) if count == AUTOTUNE else count


def asked_workers(root: Operator, options: Options, asked: int | None) -> int | None:
    """Return the number of workers that the caller, the options or the plan ask for; None if none of them does."""
    count = asked if asked is not None else options.asked_workers
    if count is None:
        calls = [n for n in map(options.parallel_of, walk(root, running=True)) if n is not None]
        count = AUTOTUNE if AUTOTUNE in calls else max(calls, default=None)
    return count


def is_tuned(root: Operator, options: Options, asked: int | None) -> bool:
    """Return True if the number of workers may change during a run: it is AUTOTUNE, and tuning is enabled."""
    return options.autotune.tunes and _asked(root, options, asked) == AUTOTUNE


def _asked(root: Operator, options: Options, asked: int | None) -> int:
    forced = overruled()
    if forced is not None:
        return forced
    if all(node.uncomputed for node in walk(root, running=True)):
        return 0  # nothing is to be computed: what stands in files is read where it is wanted
    return asked_workers(root, options, asked) or 0


def writes_apart(context: Context) -> bool:
    """Return True if a snapshot is written by a separate process although there are no workers.

    `prefetch` permits something to run beside the consumer.
    """
    prefetched = any(node.prefetched is not None for node in context.nodes)
    return bool(context.recorders) and prefetched and sys.platform != "win32"


def budget_of(options: Options, *, tuned: bool) -> int:
    """Return the number of bytes for an iterator's slots; `tuned` if the number of workers may change."""
    asked = options.memory_budget
    nbytes = default_budget().nbytes if asked is None else parse_bytes(asked)
    if tuned and options.autotune.ram_budget is not None:
        return min(nbytes, options.autotune.ram_budget)
    return nbytes
