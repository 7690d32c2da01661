"""The verdict on a pipeline: what it is waiting for.

It consists of pure functions of `Stats` and a view of the plan. A reader of a verdict need not know
how the loader works: it says what the limit is, the numbers that show it, and what would change it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING

from tundish.loader.watch.adding import between
from tundish.loader.watch.advice import predict
from tundish.loader.watch.costs import Costs, apart_s, costs_of, left
from tundish.loader.watch.limit import Kind, Limit, find_limit
from tundish.loader.watch.picture import draw, groups
from tundish.loader.watch.stats import Stats
from tundish.loader.watch.view import PlanView
from tundish.loader.watch.wording import (
    a_text,
    bytes_text,
    count_text,
    joined,
    lines_of,
    rate_text,
    seconds_text,
    share_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tundish.loader.watch.prediction import Prediction

_FEW = 8  # elements
_FEW_ROWS = 64  # of which these are made
_SHORT_S = 0.1

_WHAT: dict[Kind, str] = {
    "workers": "the workers",
    "cores": "the cores",
    "consumer": "the consumer",
    "coordinator": "the library's own work in this process",
    "process": "this process, which computes",
    "generator": "a generator in this process",
    "reader": "reading files",
    "order": "the order (one slow element holds up the others)",
    "window": "the window (too few elements are in preparation)",
    "memory": "shared memory",
    "receiving": "receiving from other machines, in this process",
    "network": "the network",
    "unknown": "",
}


@dataclass(frozen=True)
class Verdict:
    """The limit of a pipeline, and what would change it.

    Attributes
    ----------
    limit : str
        The kind of limit, in one word, such as "workers"; the guide has a table of them.
    name : str
        The operator that is the limit, or has the largest part in it; "" if there is none.
    lines : tuple of str
        The findings, in words.
    predictions : tuple of Prediction
        Predicted changes, the best first.
    costs : Costs
        The cost of an element.
    stats : Stats
        The measurements.
    plan : PlanView
        The plan that was measured.
    """

    limit: Kind
    name: str
    lines: tuple[str, ...]
    predictions: tuple[Prediction, ...] = ()
    costs: Costs = field(default_factory=lambda: costs_of(Stats(), PlanView()), repr=False)
    stats: Stats = field(default_factory=Stats, repr=False)
    plan: PlanView = field(default_factory=PlanView, repr=False)

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = 100) -> str:
        """Return the findings, and the predictions with their bases, as text.

        Parameters
        ----------
        width : int
            The number of characters in a line.
        """
        found = [part for line in self.lines for part in lines_of(line, width)]
        for each in self.predictions:
            found += lines_of(each.change, width, "- ", "  ")
            found += lines_of(each.basis, width, "    ", "    ")
        return "\n".join(found)

    def svg(self, title: str = "") -> str:
        """Return a picture of the verdict: operators, utilisation, and predicted changes.

        Parameters
        ----------
        title : str
            The title above it.
        """
        limit = Limit(self.limit, self.name, "")
        bars = groups(self.stats, self.plan, self.costs, limit, self.predictions)
        return draw(title or self.headline, self.lines, bars)

    @property
    def headline(self) -> str:
        """The verdict in a few words."""
        several = self.plan.unit[1]
        if self.limit == "unknown":
            return "too little is known"
        return f"{rate_text(self.costs.rate).replace('/s', f' {several}/s')}. The limit: {_WHAT[self.limit]}"

    @property
    def waits(self) -> str:
        """A few words on whether your code waits for the input or the input for your code; "" if too little is known."""
        if self.limit == "unknown":
            return ""
        if self.limit == "consumer":
            return "the input waits for your code"
        costs = self.costs
        share = share_text(1 - costs.outside_s / costs.spent_s)
        return f"your code waits {share} for {self.name or _WHAT[self.limit].partition(' (')[0]}"

    def _repr_html_(self) -> str:
        # An image: a style within a page would be the whole page's.
        data = base64.b64encode(self.svg().encode()).decode()
        return f'<img alt="{escape(self.headline)}" src="data:image/svg+xml;base64,{data}">'


def explain(stats: Stats, plan: PlanView | None = None, since: Stats | None = None) -> Verdict:
    """Find what a pipeline is waiting for.

    Parameters
    ----------
    stats : Stats
        An iterator's statistics.
    plan : PlanView, optional
        Its plan; without one, changes of the order and snapshots are not considered.
    since : Stats, optional
        Earlier statistics of the same iterator: the verdict is then about the time since.

    Returns
    -------
    Verdict
        `lines` and `predictions` are for people, `limit` and the numbers for programs.

    Raises
    ------
    TypeError
        `since` is something else.
    """
    plan = plan or PlanView()
    if since is not None:
        if not isinstance(since, Stats):
            raise TypeError(
                f"since must be an earlier `stats` of the iterator, not {type(since).__name__} ({since!r:.60})"
            )
        stats = between(since, stats)
    costs = costs_of(stats, plan)
    few = _too_few(stats, plan)
    if few:
        return Verdict("unknown", "", (few, *_notes(stats)), (), costs, stats, plan)
    limit = find_limit(stats, plan, costs)
    one, several = plan.unit
    why = limit.why.replace(" an element", f" {a_text(one)}")  # what `next` gives, and no row of it
    why = why.replace(" two elements", f" two {several}")
    lines = (_throughput(stats, plan, costs), _consumer(costs, plan), why, *_notes(stats))
    found = predict(stats, plan, costs, limit.kind, several)
    found = tuple(
        replace(each, basis=each.basis.replace(" an element", f" {a_text(one)}")) for each in found
    )
    return Verdict(limit.kind, limit.name, lines, found, costs, stats, plan)


def _too_few(stats: Stats, plan: PlanView) -> str:
    """Return the reason why no verdict is possible yet; "" if it is."""
    one, several = plan.unit
    seen = (
        f"{count_text(stats.elements + stats.errors, one, several)} in {seconds_text(stats.wall_s)}"
    )
    if not stats.watched:
        return f"{seen}. Times are not measured: Options(stats=StatsOptions(enabled=True)) measures them"
    start_s = apart_s(stats.waits, 1) if stats.workers else 0.0
    elements, rows = (
        stats.elements + stats.errors,
        max((left(each) for each in stats.stages), default=0),
    )
    few = elements < _FEW and (elements < 2 or rows < _FEW_ROWS)
    if few or stats.wall_s - start_s < _SHORT_S:
        start = f", {seconds_text(start_s)} of it the start" if start_s else ""
        return (
            f"{seen}{start}: too little to tell what is the limit; at least {_FEW} {several} and "
            f"{seconds_text(_SHORT_S)} are needed"
        )
    return ""


def _throughput(stats: Stats, plan: PlanView, costs: Costs) -> str:
    one, several = plan.unit
    rows = plan.last.rows if plan.nodes else 1
    each = f", {rate_text(costs.rate * rows)} of {rows} rows each" if rows > 1 else ""
    seen = count_text(stats.elements + stats.errors, one, several)
    return f"{rate_text(costs.rate).replace('/s', f' {several}/s')}{each}: {seen} in {seconds_text(stats.wall_s)}"


def _consumer(costs: Costs, plan: PlanView) -> str:
    whole, one = costs.spent_s, plan.unit[0]
    verb = "waits for workers" if costs.workers else "computes"
    each = f" ({seconds_text(costs.waited_s)} for {a_text(one)})" if costs.waited_s >= 1e-9 else ""
    rest = [
        (costs.feeding_s, "functions that run in this process take"),
        (costs.own_s, "the library's own work takes"),
        (costs.outside_s, f"your code between two {plan.unit[1]} takes"),
    ]
    parts = [f"{what} {share_text(s / whole)}" for s, what in rest if s >= 1e-9]
    also = f"; {joined(parts)}" if parts else ""
    return f"`next` {verb} {share_text(costs.waited_s / whole)} of the time{each}{also}"


def _notes(stats: Stats) -> Iterator[str]:
    """Yield further observations."""
    if stats.tuned:
        yield f"AUTOTUNE chose {count_text(stats.tuned[-1][1], 'worker')} after {seconds_text(stats.tuned[-1][0])}"
    if stats.restarts:
        yield f"{count_text(stats.restarts, 'worker')} died and {'was' if stats.restarts == 1 else 'were'} replaced"
    if stats.errors:
        yield f"{count_text(stats.errors, 'element')} failed: {share_text(stats.errors / (stats.elements + stats.errors))}"
    skipped = sum(stats.skipped.values())
    if skipped:
        names = ", ".join(f"{count:,} by {name}" for name, count in stats.skipped.items())
        yield f"elements skipped for their errors: {names}"
    if stats.copies:
        yield (
            f"{count_text(stats.copies, 'batch', 'batches')} had to be copied, since those that you keep and those in "
            f"preparation use up the memory budget ({bytes_text(stats.budget_bytes)})"
        )
