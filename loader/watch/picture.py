"""A verdict as an SVG: operators' time, utilisation, and predicted changes.

It has three groups of bars. The limit is red, so that it is seen first.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from tundish.loader.watch.limit import QUEUE
from tundish.loader.watch.view import PlanNode, PlanView
from tundish.loader.watch.wording import (
    a_text,
    bytes_text,
    count_text,
    lines_of,
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

CHARACTER = 7.3  # of the monospaced 12 px text: the widths must be known without a font
_TITLE = 9.2  # of the title's
_MARGIN = 28.0
_LINE = 24.0
_HEIGHT = 14.0  # of a bar
_WIDTH = 250.0
_GAP = 16.0  # between columns
_BETWEEN = 18.0  # groups
_RAIL = 18.0
_WIDEST = 60  # characters of a name
_LONGEST = 110  # of a line
_LEAST = 14.0  # of a part in which its share is written: three characters

_WORDS = """
.tundish text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2933; }
.tundish .title { font-size: 15px; font-weight: 600; }
.tundish .quiet { fill: #6b7785; }
"""
_STYLE = """\
.tundish .hot { fill: #b3261e; font-weight: 600; }
.tundish .room { fill: #edf1f5; }
.tundish .work { fill: #6f9fd0; }
.tundish .limit { fill: #d5493f; }
.tundish .wait { fill: #e3b04b; }
.tundish .own { fill: #9aa7b4; }
.tundish .yours { fill: #6fae84; }
.tundish .gain { fill: #6fae84; }
.tundish .rail { stroke: #b8c2cc; stroke-width: 2; }
.tundish .stop { fill: #ffffff; stroke: #8895a3; stroke-width: 2; }
.tundish .tick { stroke: #1f2933; stroke-width: 2; }
"""


@dataclass(frozen=True)
class Bar:
    """A line with a bar.

    Attributes
    ----------
    name, text : str
        The text before the bar and after it.
    parts : tuple of (str, float)
        The parts of the bar: a kind (``work``, ``wait``, ``own``, ``yours``, ``gain``), and its share of
        the whole width. Without parts there is no bar.
    limit : bool
        True if this is the pipeline's limit.
    tick : float
        The position of a tick mark, as a share of the width; 0: none.
    """

    name: str
    text: str = ""
    parts: tuple[tuple[str, float], ...] = ()
    limit: bool = False
    tick: float = 0.0


@dataclass(frozen=True)
class Group:
    """Bars with a heading; bars of a pipeline are connected by a line."""

    heading: str
    bars: tuple[Bar, ...]
    rail: bool = False


def draw(title: str, lines: Sequence[str], groups: Sequence[Group]) -> str:
    """Draw groups of bars.

    Parameters
    ----------
    title : str
        The title, in one line.
    lines : sequence of str
        The text below the title.
    groups : sequence of Group
        The groups of bars, from top to bottom.

    Returns
    -------
    str
        An SVG document.
    """
    bars = [bar for group in groups for bar in group.bars]
    names = max((len(_cut(bar.name)) for bar in bars), default=0) * CHARACTER
    texts = max((len(bar.text) for bar in bars), default=0) * CHARACTER
    left = _MARGIN + _RAIL
    at = left + names + _GAP
    shapes: list[str] = []
    y = _MARGIN + 12
    shapes.append(label(_MARGIN, y, title, "title"))
    lines = [part for line in lines for part in lines_of(line, _LONGEST)]
    for line in lines:
        y += _LINE - 4
        shapes.append(label(_MARGIN, y, line, "quiet"))
    for group in groups:
        if not group.bars:
            continue
        y += _LINE + _BETWEEN
        shapes.append(label(_MARGIN, y, group.heading, "quiet"))
        if group.rail and len(group.bars) > 1:
            x, top = _MARGIN + 5, y + _LINE - 4
            shapes.append(_rail(x, top, top + _LINE * (len(group.bars) - 1)))
        for bar in group.bars:
            y += _LINE
            if group.rail:
                kind = "limit" if bar.limit else "stop"
                shapes.append(
                    f'<circle class="{kind}" cx="{_MARGIN + 5:.1f}" cy="{y - 4:.1f}" r="4"/>'
                )
            shapes += _drawn(bar, left, at, y)
    written = [(title, _TITLE), *((line, CHARACTER) for line in lines)]
    written += [(group.heading, CHARACTER) for group in groups]
    widest = max(len(text) * each for text, each in written)
    width = max(at + _WIDTH + _GAP + texts, _MARGIN + widest) + _MARGIN
    return document(title, width, y + _MARGIN, _STYLE, shapes)


def document(title: str, width: float, height: float, style: str, shapes: Sequence[str]) -> str:
    """Return an SVG document of shapes, from the lowest layer up."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tundish" {size} role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_WORDS}{style}</style>",
            '<rect width="100%" height="100%" rx="8" fill="#ffffff"/>',
            *shapes,
            "</svg>\n",
        ]
    )


def _drawn(bar: Bar, left: float, at: float, y: float) -> list[str]:
    """Draw a bar with its name and the text after it."""
    top = y - _HEIGHT + 3
    shapes = [label(left, y, _cut(bar.name), "hot" if bar.limit else "")]
    if bar.parts:
        shapes.append(_rect("room", at, top, _WIDTH))
    x = at
    for kind, share in bar.parts:
        width = _WIDTH * min(1.0, max(0.0, share))
        width = min(width, at + _WIDTH - x)
        if width > 0:
            shapes.append(_rect("limit" if bar.limit and kind == "work" else kind, x, top, width))
        x += width
    if bar.tick:
        x = at + _WIDTH * bar.tick
        shapes.append(
            f'<line class="tick" x1="{x:.1f}" y1="{top - 2:.1f}" x2="{x:.1f}" y2="{top + _HEIGHT + 2:.1f}"/>'
        )
    behind = at + _WIDTH + _GAP if bar.parts else at
    if bar.text:
        shapes.append(label(behind, y, bar.text, "hot" if bar.limit else "quiet"))
    return shapes


def _cut(name: str) -> str:
    """Shorten a long name in the middle, since its ends matter most."""
    if len(name) <= _WIDEST:
        return name
    half = (_WIDEST - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def _rail(x: float, top: float, bottom: float) -> str:
    return f'<line class="rail" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}"/>'


def _rect(kind: str, x: float, y: float, width: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_HEIGHT:.0f}" rx="2"/>'


def label(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> str:
    """Return a line of text as SVG."""
    style = f' class="{kind}"' if kind else ""
    place = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}"{place} xml:space="preserve">{escape(text)}</text>'


_MOSTLY = 0.8  # of the cores: where less is used, others have the rest


def groups(
    stats: Stats,
    plan: PlanView,
    costs: Costs,
    limit: Limit,
    found: Sequence[Prediction],
) -> tuple[Group, ...]:
    """Make the three groups of bars: operators, utilisation, and predicted changes."""
    measured = limit.kind != "unknown"
    return (
        _operators(plan, costs, limit),
        Group("who is busy", tuple(_busy(stats, costs, limit)) if measured else ()),
        Group("what would change it", tuple(_changes(costs, found))),
    )


def _operators(plan: PlanView, costs: Costs, limit: Limit) -> Group:
    """Make a bar for each operator, with its share of computing time."""
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
    """Yield bars for workers, cores, memory and the consumer."""
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
    whole = costs.spent_s
    waits = (("wait", costs.waited_s / whole, "waits"),) if costs.workers else ()
    here_s = costs.feeding_s if costs.workers else costs.waited_s
    computes = (("work", here_s / whole, "computes"),) if here_s or not costs.workers else ()
    parts = (
        *waits,
        *computes,
        ("own", costs.own_s / whole, "library"),
        ("yours", costs.outside_s / whole, "your code"),
    )
    text = ", ".join(f"{word} {share_text(share)}" for _, share, word in parts)
    hot = {"consumer": "yours", "coordinator": "own", "generator": "work", "process": "work"}
    red = hot.get(limit.kind, "")
    drawn = tuple(("limit" if kind == red else kind, share) for kind, share, _ in parts)
    return Bar("the consumer", text, drawn, limit=bool(red))


def _changes(costs: Costs, found: Sequence[Prediction]) -> Iterator[Bar]:
    """Yield a bar for each predicted change; the tick is the present rate."""
    rates = [each for each in found if each.unit.endswith("/s")]
    most = max([costs.rate, *(each.then for each in rates)])
    for each in found:
        if each not in rates:
            yield Bar(each.what, each.change.removeprefix(f"{each.what}: "))
            continue
        text = f"{rate_text(each.then)}, x {number_text(each.gain)} (±{min(max(each.spread, 0.01), 1.0):.0%})"
        parts = (("gain", each.then / most),)
        yield Bar(each.what, text.replace("%", " %"), parts, tick=each.now / most)
