"""``tundish trace``: what coordinator and workers said to each other, and who was busy when.

``TUNDISH_TRACE=FILE`` makes iterators write a line of JSON for each message and what else happens:
`tundish.loader.run.watching.tracing` says what is in it. Here it is words, or a file that Perfetto opens.
"""

from __future__ import annotations

import gzip
import io
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.cli.terminal import bold, dim, refuse, say, table
from tundish.loader.watch.perfetto import Converted, convert, messages

if TYPE_CHECKING:
    from collections.abc import Iterable

Event = dict[str, Any]

_COLUMNS = 60
_UNFINISHED = ".unfinished"
_SHADES = " ▁▂▃▄▅▆▇█"
_HEAD = ("t", "dir", "worker", "kind")
_RARELY_READ = (
    "it",
    "tail",
    "layout",
    "flags",
    "have",
    "may",
    "total",
    "first",
    "rows",
    "block",
    "us",
)


def run(
    file: str, *, summary: bool = False, worker: int | None = None, perfetto: str | None = None
) -> int:
    """Print a trace, or write it for Perfetto.

    Parameters
    ----------
    file : str
        What ``TUNDISH_TRACE`` named.
    summary : bool
        Leave the messages out.
    worker : int, optional
        Only the messages of this worker.
    perfetto : str, optional
        The file to write, and nothing is printed of the messages; compressed if it ends in ``.gz``.

    Returns
    -------
    int
        The exit status: 2 if the file is not a trace.
    """
    try:
        if perfetto is not None:
            return show_converted(perfetto, for_perfetto(Path(file), Path(perfetto)))
        events = read(Path(file))
    except (OSError, ValueError) as error:
        named = str(getattr(error, "filename2", None) or getattr(error, "filename", None) or file)
        return refuse(
            f"{named.removesuffix(_UNFINISHED)}: {getattr(error, 'strerror', None) or error}"
        )
    if worker is not None:
        events = [event for event in events if event["worker"] == worker]
    if not events:
        say("no messages")
        return 0
    by_iterator: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_iterator[event.get("it", "")].append(event)
    for number, (name, its_own) in enumerate(by_iterator.items()):
        # Calls that share a line are written at their end.
        its_own.sort(key=lambda event: event["t"])
        if len(by_iterator) > 1:
            process, _, which = name.partition(".")
            plan = its_own[0].get("plan", "")
            say(bold(f"iterator {which} of process {process}  {plan}".rstrip()))
        show(its_own, summary=summary)
        if number + 1 < len(by_iterator):
            say()
    return 0


def show(events: list[Event], *, summary: bool) -> None:
    """Print what happened to one iterator."""
    start = events[0]["t"]
    if not summary:
        before = start
        for event in events:
            say(line(event, start, before))
            before = event["t"]
        say()
    show_summary(events)


def for_perfetto(file: Path, out: Path) -> Converted:
    """Write a trace for Perfetto; `out` is there when it is complete."""
    if out.exists() and out.samefile(file):
        raise ValueError("--perfetto would write over the trace itself; name another file")
    unfinished = out.with_name(f"{out.name}{_UNFINISHED}")
    try:
        with ExitStack() as stack:
            lines: Iterable[str] = stack.enter_context(
                file.open(encoding="utf-8", errors="replace")
            )
            target: Any = stack.enter_context(unfinished.open("wb"))
            if out.suffix == ".gz":
                target = stack.enter_context(gzip.GzipFile("", "wb", 6, target, mtime=0))
            text = stack.enter_context(io.TextIOWrapper(target, encoding="utf-8"))
            done = convert(lines, text.write)
        unfinished.replace(out)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return done


def show_converted(out: str, done: Converted) -> int:
    """Print the name of the file that was written, and how to look at it."""
    of = f" of {done.iterators} iterators" if done.iterators > 1 else ""
    say(
        f"{done.lines:,} lines{of}, {done.events:,} events in {out}: open it at https://ui.perfetto.dev"
    )
    if done.torn:
        say(dim(f"{done.torn:,} torn lines were left out"))
    return 0


def read(path: Path) -> list[Event]:
    """Return the messages of a trace, without the torn line that a killed process leaves before those of others."""
    done = Converted()
    with path.open(encoding="utf-8", errors="replace") as lines:
        events = list(messages(lines, done))
    done.refuse_others()
    return events


def line(event: Event, start: float, before: float) -> str:
    """A message in words."""
    since = (event["t"] - before) * 1e3
    head = f"{event['t'] - start:10.6f} s {dim(f'{since:+9.3f} ms')}"
    who = f"{event['dir']} {event['worker'] or '':>3}"
    kind = bold(f"{event['kind']:<7}")
    return f"{head}  {who}  {kind} {words(event)}".rstrip()


def words(event: Event) -> str:
    """Describe a message: the rows and the block that it is about, and its other fields."""
    said = []
    if "block" in event:
        said.append(f"block {event['block']}")
    if "rows" in event:
        first, rows = event.get("first", 0), event["rows"]
        of = f" of {event['total']}" if "total" in event else ""
        said.append(f"rows {first}..{first + rows - 1}{of}" if rows > 1 else f"row {first}{of}")
    if "us" in event:
        said.append(f"in {event['us'] / 1e3:.3f} ms")
    rest = [name for name in event if name not in (*_HEAD, *_RARELY_READ)]
    said += [f"{name}={event[name]}" for name in rest]
    return "  ".join(said)


def show_summary(events: list[Event]) -> None:
    """Show what each worker did, and when it was busy."""
    start, end = events[0]["t"], events[-1]["t"]
    wall = max(end - start, 1e-9)
    kinds = Counter((event["dir"], event["kind"]) for event in events)
    counted = ", ".join(
        f"{count:,} {arrow} {kind}" for (arrow, kind), count in sorted(kinds.items())
    )
    say(f"{len(events):,} messages in {wall:.3f} s: {counted}")
    show_consumer(events, wall)
    if not any(event["kind"] == "DONE" for event in events):
        return
    say()
    rows = [["worker", "tasks", "rows", "busy", "share", "task, median", "longest", ""]]
    ended = {
        event["worker"]: event.get("how", "died") for event in events if event["kind"] == "DIED"
    }
    drawn = {}
    done: defaultdict[Any, list[Event]] = defaultdict(list)
    for event in events:
        done[event["worker"]].extend([event] if event["kind"] == "DONE" else [])
    for worker, answers in sorted(done.items()):
        times = sorted(answer.get("us", 0) / 1e6 for answer in answers)
        if not times:
            continue
        rows.append(
            [
                str(worker),
                f"{len(times):,}",
                f"{sum(answer.get('rows', 0) for answer in answers):,}",
                f"{sum(times):.3f} s",
                f"{sum(times) / wall:.0%}",
                f"{times[len(times) // 2] * 1e3:.3f} ms",
                f"{times[-1] * 1e3:.3f} ms",
                ended.get(worker, ""),
            ]
        )
        drawn[worker] = shades(answers, start, wall)
    table(rows, right=range(7))
    say()
    for worker, picture in drawn.items():
        say(f"{worker!s:>6}   {picture}")
    left = f"{0:.3f} s"
    say(dim(f"{'':9}{left}{f'{wall:.3f} s':>{_COLUMNS - len(left)}}"))
    again = computed_again(events)
    if again:
        say()
        say(f"{again:,} rows were computed again, for workers that died")


def show_consumer(events: list[Event], wall: float) -> None:
    """Show how much of the time was spent in `next`, and how much of that was waiting."""
    inside = waited = 0.0
    began: float | None = None  # the first wait of a call, where that is before what it tells
    for event in events:
        spent = event.get("us", 0) / 1e6
        if event["kind"] == "WAIT":
            waited += spent
            began = event["t"] - spent if began is None else began
        elif event["kind"] == "NEXT":
            inside += max(spent, 0.0 if began is None else event["t"] - began)
            began = None
    if inside:
        within = f"{inside / wall:.0%} of the time in next"
        say(f"consumer: {within}, {waited / wall:.0%} waiting for workers")


def shades(answers: list[Event], start: float, wall: float) -> str:
    """Show how busy a worker was in each part of the time: a task ends when its answer arrives."""
    busy = [0.0] * _COLUMNS
    width = wall / _COLUMNS
    for answer in answers:
        until = answer["t"] - start
        since = max(0.0, until - answer.get("us", 0) / 1e6)
        for column in range(int(since / width), min(int(until / width), _COLUMNS - 1) + 1):
            covered = min(until, (column + 1) * width) - max(since, column * width)
            busy[column] += max(0.0, covered)
    return "".join(_SHADES[min(8, round(8 * part / width))] for part in busy)


def computed_again(events: list[Event]) -> int:
    """Return how many rows were handed out more than once."""
    asked = Counter(
        (event["stage"], event["block"], row)
        for event in events
        if event["kind"] == "TASK"
        for row in range(event["first"], event["first"] + event["rows"])
    )
    return sum(count - 1 for count in asked.values())
