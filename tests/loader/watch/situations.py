"""Made-up measurements, as an engine would give them: of a consumer, workers and their stages."""

from __future__ import annotations

from tundish.loader.watch.histogram import Durations, Histogram
from tundish.loader.watch.stats import NodeStats, StageStats, Stats, WorkerStats
from tundish.loader.watch.view import PlanNode, PlanView


def times(*pairs: tuple[float, int]) -> Histogram:
    """Durations: pairs of seconds and how often."""
    seen = Durations()
    for seconds, count in pairs:
        seen.add(seconds, count)
    return seen.frozen()


def node(
    name: str, each_s: float = 0.0, elements: int = 0, *, dropped: int = 0, calls: bool = True
) -> NodeStats:
    """An operator that takes so long for each element."""
    asked = elements + dropped
    timed = times((each_s, min(asked, 500))) if each_s and asked else Histogram()
    return NodeStats(name, elements, dropped, 0, timed, each_s * asked, calls)


def stage(
    *nodes: NodeStats,
    ahead: int = 0,
    cpu: float = 1.0,
    where: str = "workers",
    tasks: Histogram | None = None,
    busy_s: float | None = None,
    cpu_s: float | None = None,
) -> StageStats:
    """Operators that run fused; `ahead` elements more have been computed than have left it."""
    last = nodes[-1]
    left = last.elements + last.dropped
    worked = sum(each.busy_s for each in nodes) * (left + ahead) / max(1, left)
    busy = worked if busy_s is None else busy_s
    tasks = tasks or times((busy / 1000, 1000))
    return StageStats(
        last.name,
        nodes,
        where,
        last.elements,
        last.dropped,
        tasks=tasks.count if where == "workers" else 0,
        rows=left + ahead if where == "workers" else 0,
        busy_s=busy,
        cpu_s=busy * cpu if cpu_s is None else cpu_s,
        time=tasks,
        window=7,
    )


def stats(
    *stages: StageStats,
    workers: int,
    elements: int,
    waited_s: float = 0.0,
    own_s: float = 0.0,
    outside_s: float = 0.0,
    outside_cpu: float = 0.0,
    cores: int = 8,
    pool: tuple[float, ...] = (),
    queued: float = 0.0,
    errors: int = 0,
    restarts: int = 0,
    copies: int = 0,
    used: float = 0.0,
    nbytes: int = 0,
) -> Stats:
    """Make the stats of an iterator; `pool`: how long each worker was busy, of the whole time."""
    wall_s = waited_s + own_s + outside_s
    busy_s = sum(each.busy_s for each in stages if each.where == "workers")
    shares = pool or tuple(busy_s / workers for _ in range(workers))
    computed = sum(each.cpu_s for each in stages if each.where == "consumer")
    return Stats(
        workers=workers,
        elements=elements,
        errors=errors,
        restarts=restarts,
        copies=copies,
        tasks=sum(each.tasks for each in stages),
        used_bytes=round(used * 2**30),
        budget_bytes=2**30,
        nbytes=nbytes,
        wall_s=wall_s,
        waited_s=waited_s,
        own_s=own_s,
        outside_s=outside_s,
        waits=times((waited_s / max(1, elements), elements))
        if workers and waited_s
        else Histogram(),
        cpu_s=computed + own_s + outside_cpu * outside_s,
        cores=cores,
        watched=True,
        stages=stages,
        pool=tuple(
            WorkerStats(number, 100 + number, 10, 10, busy, busy, wall_s, queued * busy)
            for number, busy in enumerate(shares)
        ),
    )


def elsewhere(each_s: float, away_s: float, wall_s: float) -> tuple[WorkerStats, ...]:
    """Two workers of another machine, each with half of a hundred tasks."""
    done = (None, 50, 50, 50 * each_s, 50 * each_s, wall_s)
    return tuple(
        WorkerStats(k, *done, where="10.0.0.7:5050", received=200_000_000, away_s=away_s)
        for k in range(2)
    )


def view(*nodes: PlanNode, ordered: bool = True) -> PlanView:
    """A chain: each operator takes what the one before it gives."""
    chained = []
    for at, each in enumerate(nodes):
        up = (nodes[at - 1].name,) if at else ()
        chained.append(PlanNode(**{**vars(each), "inputs": up}))
    return PlanView(tuple(chained), ordered)


RANGE = PlanNode("range#0", "range", count=100_000)
LOAD = PlanNode("map#1", "map", function="load", each=True, count=100_000)
BATCH = PlanNode("batch#2", "batch", rows=10, count=10_000)
LOADING = view(RANGE, LOAD, BATCH)
"""``range(100_000).map(load).batch(10)``"""
