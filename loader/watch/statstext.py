"""Statistics as the text of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.watch.wording import aligned, bytes_text, count_text, seconds_text, share_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tundish.loader.watch.histogram import Histogram
    from tundish.loader.watch.stats import Stats


def stats_lines(stats: Stats, prefix: str = "") -> Iterator[str]:
    """Yield the lines of a table of one iterator's, or one dataset's, statistics."""
    yield f"{prefix}: {_one(stats)}" if prefix else _one(stats)
    if stats.stages:
        yield from aligned([_OPERATORS, *_operators(stats)])
    if stats.edges:
        yield ""
        yield from aligned([_EDGES, *_edges(stats.edges)])


def _one(stats: Stats) -> str:
    said = [count_text(stats.elements, "element")]
    if stats.nbytes:
        said.append(bytes_text(stats.nbytes))
    said.append(count_text(stats.errors, "error"))
    counted = ((stats.restarts, "restart"), (stats.hedged, "hedged task"))
    for count, what in (*counted, (stats.copies, "private copy")):
        if count:
            said.append(count_text(count, what, "private copies" if "copy" in what else ""))
    if stats.wall_s:
        parts = (
            ("waiting", stats.waited_s),
            ("at work", stats.own_s),
            ("outside", stats.outside_s),
        )
        shares = ", ".join(f"{share_text(s / stats.wall_s)} {what}" for what, s in parts)
        said.append(f"{seconds_text(stats.wall_s)} ({shares})")
    return ", ".join(said)


_OPERATORS = (
    "stage, operator",
    "made in",
    "elements",
    "left out",
    "errors",
    "busy",
    "mean",
    "p50",
    "p99",
)
_EDGES = ("edge", "elements", "mean", "p50", "p99", "longest")


def _operators(stats: Stats) -> Iterator[tuple[str, ...]]:
    for stage in stats.stages:
        counts = (f"{stage.elements:,}", _some(stage.dropped), _some(stage.errors))
        tasks = _times(stage.time)[:3] if stage.where == "workers" else ("", "", "")
        where = stage.where
        if tasks[0]:
            where = f"{count_text(stage.tasks, 'task')}"
        yield (f"stage {stage.name}", where, *counts, seconds_text(stage.busy_s), *tasks)
        for node in stage.nodes:
            counts = (f"{node.elements:,}", _some(node.dropped), _some(node.errors))
            busy = seconds_text(node.busy_s) if node.time.count else ""
            yield (f"  {node.name}", "", *counts, busy, *_times(node.time)[:3])


def _edges(edges: Mapping[str, Histogram]) -> Iterator[tuple[str, ...]]:
    for tag, histogram in edges.items():
        yield (tag, f"{histogram.count:,}", *_times(histogram))


def _times(time: Histogram) -> tuple[str, ...]:
    if not time.count:
        return ("",) * 4
    each = (time.mean_s, time.quantile_s(0.5), time.quantile_s(0.99), time.most_s)
    return tuple(map(seconds_text, each))


def _some(count: int) -> str:
    return f"{count:,}" if count else ""
