"""Progress messages of a command: a changing line, plain lines, or JSON lines.

People watch on stderr, where a terminal gets a bar; what a command has to say in the end goes to
stdout. With ``--json`` every line on stdout is an object with ``event`` and ``time``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

_BAR, _SHORT = 24, 8
_REDRAW_S = 0.1
_LINE_S = 10.0
_JSON_S = 2.0
_WINDOW_S = 30.0
_MOST_BAD = 10


def amount(nbytes: float) -> str:
    """Return a size as text.

    Examples
    --------
    >>> amount(5_000), amount(3.2e9)
    ('5.0 kB', '3.2 GB')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:,.1f} {unit}"
    return f"{nbytes:,.0f} bytes"


def duration(seconds: float) -> str:
    """Return a duration as text.

    Examples
    --------
    >>> duration(7), duration(440), duration(26_500)
    ('7 s', '7 min 20 s', '7 h 21 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


@dataclass(frozen=True)
class Reached:
    """The progress of a run.

    Parameters
    ----------
    elements, bytes, errors : int
        Numbers of the run: made, bytes written, failed.
    of : int or None
        The total number of elements, if known.
    rate, bytes_rate : float
        Recent elements and bytes a second.
    """

    elements: int
    bytes: int
    errors: int
    of: int | None
    rate: float
    bytes_rate: float

    @property
    def left_s(self) -> float | None:
        """The remaining seconds."""
        if self.of is None or not self.rate:
            return None
        return max(0, self.of - self.elements) / self.rate

    def to_json(self) -> dict[str, Any]:
        """Return it as an object of a JSON line."""
        left = self.left_s
        return {
            "elements": self.elements,
            "of": self.of,
            "bytes": self.bytes,
            "errors": self.errors,
            "elements_per_second": round(self.rate, 3),
            "bytes_per_second": round(self.bytes_rate),
            "eta_seconds": None if left is None else round(left, 1),
        }


class RecentRates:
    """Rates over the last half minute.

    Parameters
    ----------
    of : int or None
        The total number of elements.
    elements, bytes : int
        The numbers so far.
    """

    def __init__(self, of: int | None, elements: int = 0, nbytes: int = 0) -> None:
        self._of = of
        self._seen = deque([(time.monotonic(), elements, nbytes)])

    def reached(self, elements: int, nbytes: int, errors: int) -> Reached:
        """Record the progress."""
        now = time.monotonic()
        self._seen.append((now, elements, nbytes))
        while len(self._seen) > 2 and self._seen[1][0] < now - _WINDOW_S:
            self._seen.popleft()
        then, had, had_bytes = self._seen[0]
        seconds = max(now - then, 1e-9)
        return Reached(
            elements,
            nbytes,
            errors,
            self._of,
            (elements - had) / seconds,
            (nbytes - had_bytes) / seconds,
        )


class Log:
    """Progress messages; this class prints nothing."""

    every_s = _LINE_S
    """The seconds between two calls of `progress`."""

    def started(self, **fields: Any) -> None:
        """Report that work begins."""

    def progress(self, reached: Reached) -> None:
        """Report the progress."""

    def committed(self, elements: int, nbytes: int) -> None:
        """Report how many elements are durable."""

    def bad_record(self, record: dict[str, Any]) -> None:
        """Report an element that failed."""

    def finished(self, status: int, text: str, **fields: Any) -> None:
        """Report that work has ended, and how."""


class JsonLog(Log):
    """Prints a JSON object for each message."""

    every_s = _JSON_S

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def _line(self, event: str, fields: dict[str, Any]) -> None:
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        print(json.dumps({"event": event, "time": when, **fields}), file=self._out, flush=True)

    def started(self, **fields: Any) -> None:
        self._line("started", fields)

    def progress(self, reached: Reached) -> None:
        self._line("progress", reached.to_json())

    def committed(self, elements: int, nbytes: int) -> None:
        self._line("committed", {"elements": elements, "bytes": nbytes})

    def bad_record(self, record: dict[str, Any]) -> None:
        self._line("bad record", record)

    def estimate(self, **fields: Any) -> None:
        """Report an estimate."""
        self._line("estimate", fields)

    def finished(self, status: int, text: str, **fields: Any) -> None:
        self._line("finished", {"status": status, "text": text, **fields})


class HumanLog(Log):
    """Prints a bar on a terminal, else a line every ten seconds; the result goes to stdout.

    Parameters
    ----------
    err, out : text streams
        The streams for progress, and for the result.
    """

    def __init__(self, err: TextIO, out: TextIO) -> None:
        self._err, self._out = err, out
        self._live = err.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.every_s = _REDRAW_S if self._live else _LINE_S
        self._drawn = False
        self._bad = 0

    def started(self, **fields: Any) -> None:
        shard = "" if fields.get("shard") is None else " shard {}/{} of".format(*fields["shard"])
        done = fields.get("durable", 0)
        workers = fields.get("workers", 0)
        who = f"{workers} worker{'s' * (workers != 1)}" if workers else "in this process"
        self._say(
            f"writing{shard} {fields['target']} to {fields['path']} (key {fields['key']}, {who})"
        )
        if done:
            self._say(f"{done:,} elements are there already: continuing after them")

    def progress(self, reached: Reached) -> None:
        parts = [f"{reached.elements:,} elements"]
        if reached.of is not None:
            share = 1.0 if not reached.of else min(1.0, reached.elements / reached.of)
            parts = [f"{reached.elements:,}/{reached.of:,} elements", f"{share:.0%}"]
        parts += [f"{reached.rate:,.1f}/s", f"{reached.bytes_rate / 1e6:,.1f} MB/s"]
        if reached.left_s is not None:
            parts.append(f"{duration(reached.left_s)} left")
        if reached.errors:
            parts.append(f"{reached.errors:,} failed")
        text = "  ".join(parts)
        if not self._live:
            self._say(text)
            return
        width = _width(self._err) - 1
        room = min(_BAR, width - len(text) - 2)
        if reached.of and room >= _SHORT:  # the numbers tell more than the bar
            full = round(room * min(1.0, reached.elements / reached.of))
            text = f"{'━' * full}{'─' * (room - full)}  {text}"
        self._err.write(f"\r\x1b[K{text[:width]}")
        self._err.flush()
        self._drawn = True

    def bad_record(self, record: dict[str, Any]) -> None:
        self._bad += 1
        if self._bad > _MOST_BAD:
            return
        self._say(f"element {record['index']} failed: {record['error']}")
        self._say(f"  run it again: {record['reproduce']}")
        if self._bad == _MOST_BAD:
            self._say("further failures are only counted; --bad-records FILE lists all")

    def finished(self, status: int, text: str, **fields: Any) -> None:
        self._clear()
        print(text, file=self._out if not status else self._err, flush=True)

    def _say(self, text: str) -> None:
        self._clear()
        print(text, file=self._err, flush=True)

    def _clear(self) -> None:
        if self._drawn:
            self._err.write("\r\x1b[K")
            self._err.flush()
            self._drawn = False


def _width(terminal: TextIO) -> int:
    """Return the width of a terminal in characters."""
    with suppress(OSError):
        return os.get_terminal_size(terminal.fileno()).columns or 80  # some say 0
    return 80


def make_log(*, as_json: bool) -> Log:
    """Return the requested kind of log."""
    return JsonLog(sys.stdout) if as_json else HumanLog(sys.stderr, sys.stdout)
