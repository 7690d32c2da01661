"""Addition and subtraction of statistics: over several iterators, and between two moments of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, TypeVar

from tundish.loader.watch.histogram import Histogram
from tundish.loader.watch.stats import NodeStats, StageStats, Stats, WorkerStats

T = TypeVar("T")

_COUNTED: dict[type, tuple[str, ...]] = {
    Stats: (
        *("elements", "errors", "restarts", "hedged", "tasks", "copies", "nbytes", "received"),
        "receiving_s",
        *("wall_s", "waited_s", "own_s", "outside_s", "waits", "cpu_s", "queued_s"),
    ),
    StageStats: (
        *("elements", "dropped", "errors", "tasks", "rows"),
        *("busy_s", "cpu_s", "nbytes", "time"),
    ),
    NodeStats: ("elements", "dropped", "errors", "time", "busy_s"),
    WorkerStats: (
        *("tasks", "rows", "busy_s", "cpu_s", "alive_s", "queued_s"),
        *("received", "away_s"),
    ),
}
"""The fields that only grow: they are added up, and subtracted from those known later."""
_OF_PROCESS = ("leased", "used_bytes", "budget_bytes", "cores")
_STANDING = (*_OF_PROCESS, "workers", "sources", "skipped", "snapshots", "pool", "tuned")


def no_stats() -> Stats:
    """Return statistics with every counter zero."""
    return Stats(cores=0)


def ended(stats: Stats) -> Stats:
    """Return the statistics of a closed iterator: its totals, without its momentary levels."""
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
    """Add up the totals of several iterators, and the levels of those that are open.

    Parameters
    ----------
    parts : iterable of Stats
        The statistics of different iterators.

    Returns
    -------
    Stats
        Memory and cores belong to the process, and are not added. Stages with the same operators
        are merged. `skipped` and `sources` are left out: a restored iterator continues the counts
        of the one before it, so they would be counted twice; what an operator has dropped is
        in `NodeStats.dropped`.

    Examples
    --------
    >>> added([Stats(elements=2, wall_s=1.0), Stats(elements=3, wall_s=1.5)]).elements
    5
    """
    return reduce(_both, parts, no_stats())


def continued(earlier: Stats, later: Stats) -> Stats:
    """Combine the statistics of one iterator from two engines in sequence; levels are the later one's.

    Stages that were computed elsewhere are kept separate.
    """
    standing = {name: getattr(later, name) for name in _STANDING}
    return replace(added((ended(earlier), later)), **standing)


def _both(one: Stats, other: Stats) -> Stats:
    most: dict[str, Any] = {
        name: max(getattr(one, name), getattr(other, name)) for name in _OF_PROCESS
    }
    return Stats(
        **_sums(one, other, "workers"),
        **most,
        snapshots=_newest(
            (*one.snapshots, *other.snapshots), lambda each: (each.path, each.key, each.run)
        ),
        watched=one.watched or other.watched,
        stages=_joined((*one.stages, *other.stages), _operators, _stage),
        pool=_joined((*one.pool, *other.pool), lambda each: each.name, _worker),
        edges=_by_tag(one.edges, other.edges),
        counters=_by_tag(one.counters, other.counters),
    )


def _sums(one: T, other: T, *more: str) -> dict[str, Any]:
    names = (*_COUNTED[type(one)], *more)
    return {name: getattr(one, name) + getattr(other, name) for name in names}


def _by_tag(one: Mapping[str, T], other: Mapping[str, T]) -> dict[str, T]:
    """Add up numbers or histograms by tag."""
    found: dict[str, Any] = dict(one)
    for tag, more in other.items():
        found[tag] = found[tag] + more if tag in found else more
    return found


def _newest(parts: tuple[T, ...], key: Callable[[T], Any]) -> tuple[T, ...]:
    return tuple({key(each): each for each in parts}.values())


def _joined(
    parts: tuple[T, ...], key: Callable[[T], Any], join: Callable[[T, T], T]
) -> tuple[T, ...]:
    """Join items with the same key, in the order in which keys first appear."""
    found: dict[Any, T] = {}
    for each in parts:
        name = key(each)
        found[name] = join(found[name], each) if name in found else each
    return tuple(found.values())


def _operators(stage: StageStats) -> Any:
    return stage.name, stage.where, tuple(node.name for node in stage.nodes)


def _stage(one: StageStats, other: StageStats) -> StageStats:
    nodes = tuple(
        replace(later, **_sums(earlier, later))
        for earlier, later in zip(one.nodes, other.nodes, strict=True)
    )
    return replace(other, nodes=nodes, **_sums(one, other, "in_flight", "ready", "window"))


def _worker(one: WorkerStats, other: WorkerStats) -> WorkerStats:
    return replace(other, pid=None, **_sums(one, other))  # of several iterators


def between(earlier: Stats, later: Stats) -> Stats:
    """Return the statistics of the time between two moments.

    Parameters
    ----------
    earlier, later : Stats
        Statistics of one iterator. Levels (workers, slots in use) are those of the later one.

    Examples
    --------
    >>> from tundish.loader.watch.stats import Stats
    >>> between(Stats(elements=100, wall_s=2.0), Stats(elements=350, wall_s=3.0)).elements
    250
    """
    grown = {**_grown(earlier, later), **_spent(earlier, later)}
    return replace(
        later,
        **grown,
        stages=_since(earlier.stages, later.stages),
        pool=_since(earlier.pool, later.pool),
    )


def _since(earlier: Iterable[Any], later: Iterable[Any]) -> tuple[Any, ...]:
    """Subtract earlier from later stages, operators or workers, by name."""
    known = {each.name: each for each in earlier}
    return tuple(
        replace(each, **_grown(known[each.name], each)) if each.name in known else each
        for each in later
    )


def _grown(earlier: Any, later: Any) -> dict[str, Any]:
    grown: dict[str, Any] = {}
    for name in _COUNTED[type(later)]:
        then, now = getattr(earlier, name), getattr(later, name)
        grown[name] = now.since(then) if isinstance(now, Histogram) else now - then
    if isinstance(later, StageStats):
        grown["nodes"] = _since(earlier.nodes, later.nodes)
    return grown


def _spent(earlier: Stats, later: Stats) -> dict[str, float]:
    """Return the consumer's time between two moments: waited, own, outside.

    Without workers it is extrapolated from a sample, and the earlier estimate may exceed the later one.
    """
    names = ("waited_s", "own_s", "outside_s")
    spent = [getattr(later, name) - getattr(earlier, name) for name in names]
    above = [max(0.0, seconds) for seconds in spent]
    whole, all_s = sum(above), max(0.0, sum(spent))
    return {n: s * all_s / whole if whole else 0.0 for n, s in zip(names, above, strict=True)}
