"""What several iterators have measured, added up: `Summary`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tundish.loader.watch.adding import added
from tundish.loader.watch.wording import bytes_text, count_text, seconds_text, share_text

if TYPE_CHECKING:
    from tundish.loader.watch.histogram import Histogram
    from tundish.loader.watch.stats import Stats

__all__ = ["Summary", "named"]


@dataclass(frozen=True)
class Summary:
    """What the iterators have done and measured that report to one `StatsAggregator`.

    ``str`` is a table.

    Attributes
    ----------
    iterators : int
        How many have told something.
    open : int
        How many of them are not closed.
    datasets : mapping of str to Stats
        What was added up, by `StatsOptions.prefix`: iterators of one dataset and of datasets with
        the same prefix are one entry; "" is that of those without.
    counters : mapping of str to int
        What `Dataset.bytes_produced_stats` has counted, as ``prefix::tag``.

    Examples
    --------
    >>> from tundish.loader.watch.stats import Stats
    >>> Summary(1, 0, {"train": Stats(elements=7)}, {}).elements
    7
    """

    iterators: int = 0
    open: int = 0
    datasets: Mapping[str, Stats] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> Stats:
        """What all iterators together have done, whatever their prefixes."""
        return replace(added(self.datasets.values()), edges=self.edges, counters=self.counters)

    @property
    def elements(self) -> int:
        """How many elements were delivered."""
        return sum(stats.elements for stats in self.datasets.values())

    @property
    def errors(self) -> int:
        """How many elements' errors were raised."""
        return sum(stats.errors for stats in self.datasets.values())

    @property
    def edges(self) -> dict[str, Histogram]:
        """What `Dataset.latency_stats` has measured, as ``prefix::tag``."""
        return {
            named(prefix, tag): histogram
            for prefix, stats in self.datasets.items()
            for tag, histogram in stats.edges.items()
        }

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def named(prefix: str, tag: str) -> str:
    """``prefix::tag``, as tf.data writes it."""
    return f"{prefix}::{tag}" if prefix else tag


def _lines(summary: Summary) -> Iterator[str]:
    told = count_text(summary.iterators, "iterator")
    yield f"{told} ({summary.open} open), {count_text(summary.elements, 'element')}"
    for prefix, stats in summary.datasets.items():
        yield ""
        yield f"{prefix}: {_one(stats)}" if prefix else _one(stats)
        if stats.stages:
            yield from _table(_OPERATORS, _operators(stats))
        if stats.edges:
            yield ""
            yield from _table(_EDGES, _edges(stats.edges))
    if summary.counters:
        yield ""
        yield from _table(("counter", "sum"), [(k, f"{v:,}") for k, v in summary.counters.items()])


def _one(stats: Stats) -> str:
    said = [count_text(stats.elements, "element")]
    if stats.nbytes:
        said.append(bytes_text(stats.nbytes))
    said.append(count_text(stats.errors, "error"))
    for count, what in ((stats.restarts, "restart"), (stats.copies, "private copy")):
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


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Lines in columns: the first one to the left, numbers to the right."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        first, *rest = zip(line, widths, strict=True)
        yield "  ".join([first[0].ljust(first[1]), *(cell.rjust(w) for cell, w in rest)]).rstrip()
