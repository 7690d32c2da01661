"""Words on a terminal: a little weight and colour, one line that changes, and tables.

Only a terminal gets any of it; a pipe or a file gets plain lines.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

from tundish.loader.watch.wording import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

_BAR = 28
_EVERY_S = 0.1


USAGE = 2
"""The exit status if nothing was done, since the object of the command does not exist."""


def live() -> bool:
    """Return True if a line may be written over."""
    return _is_terminal(sys.stdout)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def say(text: str = "") -> None:
    """Print a line, now: someone may be watching through a pipe."""
    print(text, flush=True)  # noqa: T201 - this is the one place that prints


def refuse(text: str) -> int:
    """Print why nothing is done, where no program reads it as a result; return the exit status."""
    sys.stdout.flush()
    red = _styled("1;31", text, stream=sys.stderr)
    print(red, file=sys.stderr, flush=True)  # noqa: T201 - as above
    return USAGE


def bold(text: str) -> str:
    """Return a text in bold, for what a reader should see first."""
    return _styled("1", text)


def dim(text: str) -> str:
    """Return a text in pale, for details."""
    return _styled("2", text)


def good(text: str) -> str:
    """A promise that was kept."""
    return _styled("32", text)


def warn(text: str) -> str:
    """A promise that was not."""
    return _styled("1;31", text)


def _styled(code: str, text: str, *, stream: TextIO | None = None) -> str:
    plain = not (live() if stream is None else _is_terminal(stream)) or "NO_COLOR" in os.environ
    return text if plain else f"\x1b[{code}m{text}\x1b[0m"


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print a table with a header row, each column as wide as its longest entry.

    Parameters
    ----------
    rows : sequence of sequence of str
        The header row first.
    right : sequence of int
        The columns to be set flush right: numbers.
    """
    head, *lines = aligned(rows, right, "   ")
    for line in (dim(head), *lines):
        say(line)


class ProgressLine:
    """One line that says how far something is and how fast it goes.

    Parameters
    ----------
    total : int
        How many items there will be.
    unit : str
        The name of what is counted.
    """

    def __init__(self, total: int, unit: str) -> None:
        self._total, self._unit = total, unit
        self._done = 0
        self._start = self._shown = time.perf_counter()

    def advance(self, count: int) -> None:
        """Add to the number of items done."""
        self._done += count
        now = time.perf_counter()
        if live() and now - self._shown >= _EVERY_S:
            self._shown = now
            full = round(_BAR * self._done / self._total)
            bar = "━" * full + dim("━" * (_BAR - full))
            done = f"{self._done:,}/{self._total:,} {self._unit}"
            sys.stdout.write(f"\r\x1b[K{bar}  {done}  {self._rate(now):,.0f}/s")
            sys.stdout.flush()

    def finish(self) -> None:
        """Print the last line, which stays."""
        now = time.perf_counter()
        if live():
            sys.stdout.write("\r\x1b[K")
        say(
            f"{self._done:,} {self._unit} in {now - self._start:.1f} s"
            f" ({self._rate(now):,.0f} {self._unit}/s)"
        )

    def _rate(self, now: float) -> float:
        return self._done / (now - self._start)
