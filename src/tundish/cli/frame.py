"""The frame of `tundish top`, as lines, made from readings of a process's board."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Self

from tundish.cli.terminal import bold, dim, good, warn
from tundish.loader.watch.adding import between
from tundish.loader.watch.stats import StageStats, Stats, WorkerStats
from tundish.loader.watch.verdict import explain
from tundish.loader.watch.wording import (
    aligned,
    bytes_text,
    count_text,
    rate_text,
    seconds_text,
    share_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOW = 4  # readings that "now" lies between
_QUIET_S = 2.0
_BAR = 24
_WORKER_BAR = 8
_COLUMNS = 88  # the width of the table of stages without their names
_STYLES = re.compile("\x1b\\[[0-9;]*m")


@dataclass(frozen=True)
class IteratorReport:
    """The last report of one iterator.

    Parameters
    ----------
    name, plan : str
        The iterator's name and its operators.
    at : float
        The time of the report, in seconds since 1970.
    stats : Stats
        The statistics since its start.
    """

    name: str
    plan: str
    at: float
    stats: Stats


@dataclass(frozen=True)
class BoardReading:
    """The contents of a process's board.

    Parameters
    ----------
    argv : tuple of str
        The process's command line.
    iterators : tuple of IteratorReport
        The living iterators, the oldest first.
    left_out : int
        The number of further iterators.
    """

    argv: tuple[str, ...] = ()
    iterators: tuple[IteratorReport, ...] = ()
    left_out: int = 0

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Parse what `tundish.loader.run.watching.publishing` has published."""
        told = json.loads(data)
        iterators = (
            IteratorReport(each["name"], each["plan"], each["at"], Stats.from_dict(each["stats"]))
            for each in told["iterators"]
        )
        ordered = sorted(iterators, key=lambda each: int(each.name))
        return cls(tuple(told["argv"]), tuple(ordered), told["left_out"])


class History:
    """The last few readings, whose differences show the present activity."""

    def __init__(self) -> None:
        self._told: dict[str, deque[IteratorReport]] = {}

    def add(self, reading: BoardReading) -> None:
        """Add a reading; iterators that it lacks are dropped."""
        before, self._told = self._told, {}
        for told in reading.iterators:
            seen = self._told[told.name] = before.get(told.name, deque(maxlen=_NOW))
            if seen and told.stats.wall_s < seen[-1].stats.wall_s:  # it went to a state: from anew
                seen.clear()
            if not seen or told.at != seen[-1].at:
                seen.append(told)

    def earlier(self, name: str) -> Stats | None:
        """Return an iterator's statistics of some readings ago; None if there is only one."""
        seen = self._told[name]
        return seen[0].stats if len(seen) > 1 else None

    @property
    def moved(self) -> bool:
        """True if every iterator has an earlier reading to be compared with."""
        return all(len(seen) > 1 for seen in self._told.values())

    def as_dicts(self, reading: BoardReading) -> list[dict[str, Any]]:
        """Return the iterators as JSON: since their start, and now."""
        told = []
        for each in reading.iterators:
            earlier = self.earlier(each.name)
            now = between(earlier, each.stats).to_dict() if earlier is not None else None
            about = {"name": each.name, "plan": each.plan, "at": each.at}
            told.append({**about, "now": now, "stats": each.stats.to_dict()})
        return told


def frame(pid: int, reading: BoardReading, history: History, width: int) -> list[str]:
    """Return the lines of a frame.

    Parameters
    ----------
    pid : int
        The process id.
    reading : BoardReading
        The last reading, which is also in `history`.
    history : History
        The last few readings.
    width : int
        The number of columns.

    Returns
    -------
    list of str
        Its lines.
    """
    lines = [f"{bold(f'process {pid}')}  {dim(' '.join(reading.argv))}"]
    if not reading.iterators:
        lines += ["", "no iterator lives now"]
    for told in reading.iterators:
        lines += ["", *_iterator(told, history.earlier(told.name), width)]
    if reading.left_out:
        lines += ["", dim(f"{count_text(reading.left_out, 'more iterator')}, asked longer ago")]
    return [clip(line, width) for line in lines]


def _iterator(told: IteratorReport, earlier: Stats | None, width: int) -> list[str]:
    stats = told.stats
    now = between(earlier, stats) if earlier is not None else stats
    head = f"{bold(told.plan.replace(' -> ', ' → '))}  {dim(f'iterator {told.name}')}"
    lines = [head, *_numbers(told, now if earlier is not None else None)]
    if stats.watched:
        lines += _limit(stats, earlier, width)
    if stats.stages:
        lines += ["", *_stages(now, stats.workers, width)]
    if stats.pool:
        lines += ["", *_workers(now.pool, width)]
    return lines


def _limit(stats: Stats, earlier: Stats | None, width: int) -> list[str]:
    """Return the present verdict; if too little has happened, that of the whole time."""
    found = explain(stats, since=earlier)
    if found.limit == "unknown" and earlier is not None:
        found = explain(stats)
    mark = "The limit: "
    said = next((line for line in found.lines if line.startswith(mark)), found.lines[0])
    indent = " " * len("limit     ")
    text = said.removeprefix(mark)
    return wrap(f"limit     {text}", max(width, 40), subsequent_indent=indent)[:3]


def _numbers(told: IteratorReport, now: Stats | None) -> list[str]:
    stats = told.stats
    quiet = time.time() - told.at
    since_start = rate_text(stats.elements / max(stats.wall_s, 1e-9))
    parts = [f"{stats.elements:,} in {_clock(stats.wall_s)}, {since_start}"]
    if stats.errors:
        parts.append(warn(count_text(stats.errors, "error")))
    if stats.restarts:
        parts.append(warn(count_text(stats.restarts, "worker restarted", "workers restarted")))
    if quiet > _QUIET_S:
        parts.insert(0, warn(f"asked for nothing for {seconds_text(quiet)}"))
    elif now is not None and now.wall_s > 0:
        per_second = rate_text(now.elements / now.wall_s).replace("/s", " elements/s")
        volume = f", {bytes_text(now.nbytes / now.wall_s)}/s" if now.nbytes else ""
        parts.insert(0, f"{bold(f'{per_second} now')}{volume}")
    lines = ["given     " + "   ".join(parts)]
    since = now if now is not None and now.wall_s > 0 else stats
    if stats.watched and since.wall_s > 0:
        # A full bar is good: it is the share of the caller's own work.
        shares = [part / since.wall_s for part in (since.outside_s, since.own_s, since.waited_s)]
        words = ("outside", "own work", "waits for workers" if stats.workers else "computes")
        said = [
            f"{word} {share_text(min(1.0, share))}"
            for word, share in zip(words, shares, strict=True)
        ]
        lines.append(f"consumer  {_bar(shares[:2], _BAR, '█▓░')}  {'   '.join(said)}")
    if stats.budget_bytes and stats.workers:
        share = stats.used_bytes / stats.budget_bytes
        said = [
            f"{bytes_text(stats.used_bytes)} of {bytes_text(stats.budget_bytes)}",
            f"{count_text(stats.leased, 'slot')} leased",
        ]
        if stats.copies:
            said.append(count_text(stats.copies, "private copy", "private copies"))
        lines.append(f"memory    {_bar([share], _BAR)}  {'   '.join(said)}")
    return lines


def _stages(stats: Stats, workers: int, width: int) -> list[str]:
    """Return a row for each stage: rate, utilisation, time of an element, blocks in flight."""
    head = (
        "stage",
        "where",
        "elements",
        "busy",
        "each",
        "p99",
        "▓ ready + ▒ in flight, of",
    )
    rows: list[tuple[str, ...]] = [head]
    rows += [_stage(stage, stats.wall_s, workers, width) for stage in stats.stages]
    first, *lines = aligned(rows, range(2, 6), "   ", _width)
    return [dim(first), *lines]


def _stage(stage: StageStats, wall_s: float, workers: int, width: int) -> tuple[str, ...]:
    wall = max(wall_s, 1e-9)
    hands = workers if stage.where == "workers" else 1
    done = stage.rows if stage.where == "workers" else stage.elements
    # A task has several elements: its longest are told as if it took each of them as long.
    each = stage.busy_s / done if done else 0.0
    a_task = done / stage.tasks if stage.where == "workers" and stage.tasks else 1.0
    nodes = " → ".join(node.name for node in stage.nodes) or stage.name
    if len(nodes) > width - _COLUMNS:
        nodes = stage.name
    window = ""
    if stage.window:
        cells = min(stage.window, 16)
        parts = [stage.ready / stage.window, stage.in_flight / stage.window]
        window = f"{_bar(parts, cells, '▓▒░')}  {stage.ready} + {stage.in_flight} of {stage.window}"
    return (
        nodes,
        stage.where if stage.where != "workers" else count_text(workers, "worker"),
        rate_text(stage.elements / wall),
        share_text(min(1.0, stage.busy_s / (wall * max(1, hands)))),
        seconds_text(each) if done else "",
        seconds_text(stage.time.quantile_s(0.99) / max(a_task, 1.0)) if stage.time.count else "",
        window,
    )


def _workers(pool: Sequence[WorkerStats], width: int) -> list[str]:
    """Return the workers, as many in a line as fit."""
    cells = [_worker(worker) for worker in pool]
    size = max(_width(cell) for cell in cells)
    columns = max(1, (width + 3) // (size + 3))
    lines = [dim("worker")]
    for first in range(0, len(cells), columns):
        row = cells[first : first + columns]
        lines.append("   ".join(cell + " " * (size - _width(cell)) for cell in row).rstrip())
    return lines


def _worker(worker: WorkerStats) -> str:
    share = min(1.0, worker.busy_s / worker.alive_s) if worker.alive_s > 0 else 0.0
    who = str(worker.pid) if worker.pid is not None else "…"
    if worker.where:
        who = f"{worker.where} {bytes_text(worker.received)}, {seconds_text(worker.round_trip_s)} away"
    return (
        f"{worker.name:>3} {_bar([share], _WORKER_BAR)} {share_text(share):>5} {dim(f'{who:<7}')}"
    )


def _bar(shares: Sequence[float], size: int, shades: str = "█░") -> str:
    """Return a bar of shares, each in its shade; the rest in the last."""
    ends, covered = [], 0.0
    for share in shares:
        covered += max(0.0, share)
        ends.append(min(size, round(covered * size)))
    text, begin = "", 0
    for end, shade in zip(ends, shades, strict=False):
        text += shade * (end - begin)
        begin = max(begin, end)
    return good(text) + dim(shades[-1] * (size - begin))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _width(text: str) -> int:
    """Return the width of a text in columns, without its styles."""
    return len(_STYLES.sub("", text))


def clip(line: str, width: int) -> str:
    """Cut a line to a number of columns, and end its styles.

    Parameters
    ----------
    line : str
        Characters of one column each, and styles.
    width : int
        The number of columns.
    """
    if _width(line) <= width:
        return line
    found, at, left = "", 0, max(0, width - 1)
    styled = False
    while left or _STYLES.match(line, at):
        style = _STYLES.match(line, at)
        if style is not None:
            found += style.group()
            styled = style.group() != "\x1b[0m"
            at = style.end()
            continue
        found += line[at]
        at, left = at + 1, left - 1
    return f"{found}…" + ("\x1b[0m" if styled else "")
