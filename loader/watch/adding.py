"""What several iterators have done, added up to one `Stats`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from typing import Any, TypeVar

from tundish.loader.watch.stats import NodeStats, StageStats, Stats, WorkerStats

T = TypeVar("T")


def no_stats() -> Stats:
    """That of no iterator."""
    return Stats(cores=0)


def ended(stats: Stats) -> Stats:
    """What is left of an iterator that is closed: what it has done, and nothing of how it stands."""
    return replace(
        stats,
        workers=0,
        leased=0,
        used_bytes=0,
        budget_bytes=0,
        pool=(),
        stages=tuple(replace(stage, in_flight=0, ready=0, window=0) for stage in stats.stages),
    )


def added(parts: Iterable[Stats]) -> Stats:
    """Add up what iterators have done, and how those stand that run.

    Parameters
    ----------
    parts : iterable of Stats
        Of different iterators.

    Returns
    -------
    Stats
        Memory and cores belong to the process, and are not added. Stages with the same operators
        are one. `skipped` and `sources` are left out: a restored iterator goes on with the counts
        of the one before it, so that they would be counted twice; what an operator has left out is
        in `NodeStats.dropped`.

    Examples
    --------
    >>> added([Stats(elements=2, wall_s=1.0), Stats(elements=3, wall_s=1.5)]).elements
    5
    """
    return reduce(_both, parts, no_stats())


def continued(earlier: Stats, later: Stats) -> Stats:
    """What one iterator has done in two engines, one after the other; how it stands is the later's.

    Stages that were computed elsewhere are stages of their own.
    """
    return replace(
        added((ended(earlier), later)),
        workers=later.workers,
        leased=later.leased,
        used_bytes=later.used_bytes,
        budget_bytes=later.budget_bytes,
        cores=later.cores,
        sources=later.sources,
        skipped=later.skipped,
        snapshots=later.snapshots,
        pool=later.pool,
        tuned=later.tuned,
    )


def _both(one: Stats, other: Stats) -> Stats:
    return Stats(
        workers=one.workers + other.workers,
        elements=one.elements + other.elements,
        errors=one.errors + other.errors,
        restarts=one.restarts + other.restarts,
        tasks=one.tasks + other.tasks,
        copies=one.copies + other.copies,
        leased=max(one.leased, other.leased),
        used_bytes=max(one.used_bytes, other.used_bytes),
        budget_bytes=max(one.budget_bytes, other.budget_bytes),
        snapshots=_newest(
            (*one.snapshots, *other.snapshots), lambda each: (each.path, each.key, each.run)
        ),
        nbytes=one.nbytes + other.nbytes,
        wall_s=one.wall_s + other.wall_s,
        waited_s=one.waited_s + other.waited_s,
        own_s=one.own_s + other.own_s,
        outside_s=one.outside_s + other.outside_s,
        waits=one.waits + other.waits,
        cpu_s=one.cpu_s + other.cpu_s,
        queued_s=one.queued_s + other.queued_s,
        cores=max(one.cores, other.cores),
        watched=one.watched or other.watched,
        stages=_joined((*one.stages, *other.stages), _operators, _stage),
        pool=_joined((*one.pool, *other.pool), lambda each: each.name, _worker),
        edges={
            tag: _sum(side.edges[tag] for side in (one, other) if tag in side.edges)
            for tag in dict.fromkeys((*one.edges, *other.edges))
        },
        counters={
            tag: one.counters.get(tag, 0) + other.counters.get(tag, 0)
            for tag in dict.fromkeys((*one.counters, *other.counters))
        },
    )


def _sum(parts: Iterable[Any]) -> Any:
    return reduce(lambda one, other: one + other, parts)


def _newest(parts: tuple[T, ...], key: Callable[[T], Any]) -> tuple[T, ...]:
    return tuple({key(each): each for each in parts}.values())


def _joined(
    parts: tuple[T, ...], key: Callable[[T], Any], join: Callable[[T, T], T]
) -> tuple[T, ...]:
    """Those with the same key joined, in the order in which they first come."""
    found: dict[Any, T] = {}
    for each in parts:
        name = key(each)
        found[name] = join(found[name], each) if name in found else each
    return tuple(found.values())


def _operators(stage: StageStats) -> Any:
    return stage.name, stage.where, tuple(node.name for node in stage.nodes)


def _stage(one: StageStats, other: StageStats) -> StageStats:
    return replace(
        other,
        nodes=tuple(_node(*both) for both in zip(one.nodes, other.nodes, strict=True)),
        elements=one.elements + other.elements,
        dropped=one.dropped + other.dropped,
        errors=one.errors + other.errors,
        tasks=one.tasks + other.tasks,
        rows=one.rows + other.rows,
        busy_s=one.busy_s + other.busy_s,
        cpu_s=one.cpu_s + other.cpu_s,
        nbytes=one.nbytes + other.nbytes,
        time=one.time + other.time,
        in_flight=one.in_flight + other.in_flight,
        ready=one.ready + other.ready,
        window=one.window + other.window,
    )


def _node(one: NodeStats, other: NodeStats) -> NodeStats:
    return replace(
        other,
        elements=one.elements + other.elements,
        dropped=one.dropped + other.dropped,
        errors=one.errors + other.errors,
        time=one.time + other.time,
        busy_s=one.busy_s + other.busy_s,
    )


def _worker(one: WorkerStats, other: WorkerStats) -> WorkerStats:
    return replace(
        other,
        pid=None,  # workers of the same number, of several iterators
        tasks=one.tasks + other.tasks,
        rows=one.rows + other.rows,
        busy_s=one.busy_s + other.busy_s,
        cpu_s=one.cpu_s + other.cpu_s,
        alive_s=one.alive_s + other.alive_s,
    )
