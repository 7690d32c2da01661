"""The processes that compute for an iterator, and the bytes that it may hold."""

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
    """Start what starts workers, if a plan needs some: its imports overlap with this process's own.

    Nothing is done where an iterator with workers has been made before.
    """
    if _ENGINE in sys.modules or sys.platform == "win32":
        return
    options = options_of(root)
    if (executor or options.executor) != "thread" and _asked(root, options, asked):
        from tundish.loader.run.starting.launcher import prestart  # noqa: PLC0415 - if it is needed

        prestart(options.intra_op_threads, options.start, [WORKER])


def how_many_workers(root: Operator, options: Options, asked: int | None) -> int:
    """Return the number of workers that run a plan.

    ``TUNDISH_WORKERS``, else what the caller asks for, else ``Options.workers``, else the largest
    `num_parallel_calls`, else 0; AUTOTUNE is the cores this process may use, divided by the local
    ranks of a launcher, or what `Options.autotune` and `Options.threading` say. 0 inside a worker.
    """
    count = _asked(root, options, asked)
    return options.cores(usable_cores()) if count == AUTOTUNE else count


def is_tuned(root: Operator, options: Options, asked: int | None) -> bool:
    """Return True if the number of workers may change while a plan runs: it is AUTOTUNE, and nobody forbids it."""
    return options.autotune.tunes and _asked(root, options, asked) == AUTOTUNE


def _asked(root: Operator, options: Options, asked: int | None) -> int:
    forced = overruled()
    if forced is not None:
        return forced
    count = asked if asked is not None else options.asked_workers
    running = list(walk(root, running=True))
    if all(node.uncomputed for node in running):
        return 0  # nothing is to be computed: what stands in files is read where it is wanted
    if count is not None:
        return count
    asked_for = map(options.parallel_of, running)
    calls = [n for n in asked_for if n is not None]
    return AUTOTUNE if AUTOTUNE in calls else max(calls, default=0)


def writes_apart(context: Context) -> bool:
    """Return True if a snapshot is written by a process of its own though there are no workers.

    `prefetch` says that something may run beside the consumer.
    """
    prefetched = any(node.prefetched is not None for node in context.nodes)
    return bool(context.recorders) and prefetched and sys.platform != "win32"


def budget_of(options: Options, *, tuned: bool) -> int:
    """Return the bytes that an iterator's slots may have; `tuned`: the number of its workers may change."""
    asked = options.memory_budget
    nbytes = default_budget().nbytes if asked is None else parse_bytes(asked)
    if tuned and options.autotune.ram_budget is not None:
        return min(nbytes, options.autotune.ram_budget)
    return nbytes
