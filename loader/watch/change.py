"""What has happened between two looks at one iterator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.loader.watch.stats import NodeStats, StageStats, Stats, WorkerStats

__all__ = ["between"]


def between(earlier: Stats, later: Stats) -> Stats:
    """What was done and measured since an earlier look.

    Parameters
    ----------
    earlier, later : Stats
        Of one iterator. What says how things are (workers, slots in use) is the later one's.

    Examples
    --------
    >>> from tundish.loader.watch.stats import Stats
    >>> between(Stats(elements=100, wall_s=2.0), Stats(elements=350, wall_s=3.0)).elements
    250
    """
    waited_s, own_s, outside_s = _spent(earlier, later)
    stages = {stage.name: stage for stage in earlier.stages}
    pool = {worker.name: worker for worker in earlier.pool}
    return replace(
        later,
        elements=later.elements - earlier.elements,
        errors=later.errors - earlier.errors,
        restarts=later.restarts - earlier.restarts,
        tasks=later.tasks - earlier.tasks,
        copies=later.copies - earlier.copies,
        nbytes=later.nbytes - earlier.nbytes,
        wall_s=later.wall_s - earlier.wall_s,
        waited_s=waited_s,
        cpu_s=later.cpu_s - earlier.cpu_s,
        queued_s=later.queued_s - earlier.queued_s,
        own_s=own_s,
        outside_s=outside_s,
        waits=later.waits.since(earlier.waits),
        stages=tuple(
            _stage(stages[stage.name], stage) if stage.name in stages else stage
            for stage in later.stages
        ),
        pool=tuple(
            _worker(pool[worker.name], worker) if worker.name in pool else worker
            for worker in later.pool
        ),
    )


def _spent(earlier: Stats, later: Stats) -> list[float]:
    """The consumer's time: waited, own, outside.

    Without workers it is put together of a sample, and what was thought of the earlier time may
    be more than what is thought of all of it.
    """
    spent = [
        later.waited_s - earlier.waited_s,
        later.own_s - earlier.own_s,
        later.outside_s - earlier.outside_s,
    ]
    above = [max(0.0, seconds) for seconds in spent]
    whole = sum(above)
    return [seconds * max(0.0, sum(spent)) / whole if whole else 0.0 for seconds in above]


def _stage(earlier: StageStats, later: StageStats) -> StageStats:
    nodes = {node.name: node for node in earlier.nodes}
    return replace(
        later,
        nodes=tuple(
            _node(nodes[node.name], node) if node.name in nodes else node for node in later.nodes
        ),
        elements=later.elements - earlier.elements,
        dropped=later.dropped - earlier.dropped,
        errors=later.errors - earlier.errors,
        tasks=later.tasks - earlier.tasks,
        rows=later.rows - earlier.rows,
        busy_s=later.busy_s - earlier.busy_s,
        cpu_s=later.cpu_s - earlier.cpu_s,
        nbytes=later.nbytes - earlier.nbytes,
        time=later.time.since(earlier.time),
    )


def _node(earlier: NodeStats, later: NodeStats) -> NodeStats:
    return replace(
        later,
        elements=later.elements - earlier.elements,
        dropped=later.dropped - earlier.dropped,
        errors=later.errors - earlier.errors,
        busy_s=later.busy_s - earlier.busy_s,
        time=later.time.since(earlier.time),
    )


def _worker(earlier: WorkerStats, later: WorkerStats) -> WorkerStats:
    return replace(
        later,
        tasks=later.tasks - earlier.tasks,
        rows=later.rows - earlier.rows,
        busy_s=later.busy_s - earlier.busy_s,
        cpu_s=later.cpu_s - earlier.cpu_s,
        queued_s=later.queued_s - earlier.queued_s,
        alive_s=later.alive_s - earlier.alive_s,
    )
