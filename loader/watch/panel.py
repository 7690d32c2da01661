"""What a verdict's picture shows: which bars, how long, and what is written beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.watch.limit import QUEUE
from tundish.loader.watch.picture import Bar, Group
from tundish.loader.watch.view import PlanNode, PlanView
from tundish.loader.watch.wording import (
    a_text,
    bytes_text,
    count_text,
    number_text,
    rate_text,
    seconds_text,
    share_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tundish.loader.watch.costs import Costs
    from tundish.loader.watch.limit import Limit
    from tundish.loader.watch.prediction import Prediction
    from tundish.loader.watch.stats import Stats

__all__ = ["groups"]

_MOSTLY = 0.8  # of the cores: where less is used, others have the rest


def groups(
    stats: Stats,
    plan: PlanView,
    costs: Costs,
    limit: Limit,
    found: Sequence[Prediction],
) -> tuple[Group, ...]:
    """The three groups of bars: operators, who is busy, and what changes would give."""
    measured = limit.kind != "unknown"
    return (
        _operators(plan, costs, limit),
        Group("who is busy", tuple(_busy(stats, costs, limit)) if measured else ()),
        Group("what would change it", tuple(_changes(costs, found))),
    )


def _operators(plan: PlanView, costs: Costs, limit: Limit) -> Group:
    """Each operator, and how much of the time of those who compute it takes."""
    seconds = costs.nodes
    times = max(1, costs.workers)
    nodes = list(plan.nodes) or [PlanNode(name, name.partition("#")[0]) for name in seconds]
    who = f"of {count_text(costs.workers, 'worker')}" if costs.workers else "of this process"
    bars = []
    for node in nodes:
        spent = seconds.get(node.name, 0.0)
        share = min(1.0, spent * costs.rate / times)
        text = f"{share_text(share)}, {seconds_text(spent)}" if spent else ""
        is_limit = node.name == limit.name and bool(limit.name)
        parts = (("work", share),) if spent else ()
        bars.append(Bar(node.called, text, parts, limit=is_limit))
    return Group(
        f"where the time {who} goes: the share, and how long for {a_text(plan.unit[0])}",
        tuple(bars),
        rail=True,
    )


def _busy(stats: Stats, costs: Costs, limit: Limit) -> Iterator[Bar]:
    """Workers, cores, memory and the consumer."""
    if costs.workers:
        share = costs.busy
        could = costs.bounds(costs.workers)["workers"]
        text = f"busy {share_text(share)}"
        if costs.busy_s:
            text += f", could make {rate_text(max(could, costs.rate))}"
        hot = limit.kind == "workers"
        yield Bar(count_text(costs.workers, "worker"), text, (("work", share),), limit=hot)
    used = costs.cores_used / costs.cores
    text = f"about {number_text(round(costs.cores_used, 1))} in use"
    parts: tuple[tuple[str, float], ...] = (("work", used),)
    if costs.queueing >= QUEUE and used < _MOSTLY:
        text += ", the others by other programs"
        parts = (*parts, ("own", 1 - used))
    yield Bar(count_text(costs.cores, "core"), text, parts, limit=limit.kind == "cores")
    full = stats.used_bytes / stats.budget_bytes if stats.budget_bytes else 0.0
    if limit.kind == "memory" or full > 0.5:
        text = f"{bytes_text(stats.used_bytes)} of {bytes_text(stats.budget_bytes)}"
        yield Bar("shared memory", text, (("work", full),), limit=limit.kind == "memory")
    yield _consumer(costs, limit)


def _consumer(costs: Costs, limit: Limit) -> Bar:
    whole = max(costs.waited_s + costs.own_s + costs.outside_s, 1e-12)
    parts = (
        (
            "wait" if costs.workers else "work",
            costs.waited_s / whole,
            "waits" if costs.workers else "computes",
        ),
        ("own", costs.own_s / whole, "library"),
        ("yours", costs.outside_s / whole, "your code"),
    )
    text = ", ".join(f"{word} {share_text(share)}" for _, share, word in parts)
    hot = {"consumer": "yours", "coordinator": "own", "generator": "own", "process": "work"}
    red = hot.get(limit.kind, "")
    drawn = tuple(("limit" if kind == red else kind, share) for kind, share, _ in parts)
    return Bar("the consumer", text, drawn, limit=bool(red))


def _changes(costs: Costs, found: Sequence[Prediction]) -> Iterator[Bar]:
    """What each change would give; the mark is what there is now."""
    rates = [each for each in found if each.unit.endswith("/s")]
    most = max([costs.rate, *(each.then for each in rates)])
    for each in found:
        if each not in rates:
            yield Bar(each.what, each.change.removeprefix(f"{each.what}: "))
            continue
        text = f"{rate_text(each.then)}, x {number_text(each.gain)} (±{min(max(each.spread, 0.01), 1.0):.0%})"
        parts = (("gain", each.then / most),)
        yield Bar(each.what, text.replace("%", " %"), parts, tick=each.now / most)
